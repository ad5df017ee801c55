"""A queue for code without an event loop: `q.sync` has every method of the queue as a blocking one.

All calls of a process run on one loop in one daemon thread, so that they share connections and batches, whichever
thread they come from; after a fork the child gets its own.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from qo.errors import UsageError
from qo.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")


class Portal:
    """The loop in its thread; started by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run it there and wait for its result here. Interrupting the wait (Ctrl-C) cancels the work."""
        if threading.current_thread() is self._thread:
            work.close()
            raise UsageError("a blocking call inside qo's own event loop would wait for itself; await the async method")
        answer = asyncio.run_coroutine_threadsafe(work, self._started())
        try:
            return answer.result()
        except BaseException:
            answer.cancel()
            raise

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="qo-sync", daemon=True)
                self._thread.start()
            return self._loop

    def left_by_fork(self) -> None:
        """In a child there is no thread, and the lock may be held by nobody."""
        _parents.append(self._loop)
        self.__init__()


_parents: list[object] = []
PORTAL = Portal()
os.register_at_fork(after_in_child=PORTAL.left_by_fork)


class Blocking(Generic[P, R]):
    """A method of Queue as a blocking one of SyncQueue, with the same arguments."""

    def __init__(self, method: Callable[Concatenate[Queue, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "Blocking[P, R]": ...
    @overload
    def __get__(self, instance: "SyncQueue", owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: "SyncQueue | None", owner: type) -> "Blocking[P, R] | Callable[P, R]":
        if instance is None:
            return self
        method, queue = self._method, instance.queue

        def blocking(*args: P.args, **kwargs: P.kwargs) -> R:
            return PORTAL.run(method(queue, *args, **kwargs))

        return blocking


class SyncQueue:
    """Every async method of a queue, blocking. Usable from any thread; from a coroutine, await the queue's own."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    submit = Blocking(Queue.submit)
    submit_call = Blocking(Queue.submit_call)
    submit_many = Blocking(Queue.submit_many)
    result = Blocking(Queue.result)
    ended = Blocking(Queue.ended)
    get = Blocking(Queue.get)
    find = Blocking(Queue.find)
    history = Blocking(Queue.history)
    stats = Blocking(Queue.stats)
    types = Blocking(Queue.types)
    workers = Blocking(Queue.workers)
    controls = Blocking(Queue.controls)
    cancel = Blocking(Queue.cancel)
    replay = Blocking(Queue.replay)
    archive = Blocking(Queue.archive)
    unarchive = Blocking(Queue.unarchive)
    delete = Blocking(Queue.delete)
    bulk = Blocking(Queue.bulk)
    purge = Blocking(Queue.purge)
    expire = Blocking(Queue.expire)
    pause = Blocking(Queue.pause)
    resume = Blocking(Queue.resume)
    set_rate_limit = Blocking(Queue.set_rate_limit)
    close = Blocking(Queue.close)

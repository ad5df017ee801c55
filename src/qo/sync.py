"""A queue for code without an event loop: `q.sync` has every async method of the queue as a blocking one.

All calls of a process run on one loop in one daemon thread, so that they share connections and batches, whichever
thread they come from; after a fork the child gets its own.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from qo.calls import TaskHandle
from qo.errors import UsageError
from qo.options import Duration
from qo.pull import ClaimedTask
from qo.queue import Queue
from qo.task import Task

P = ParamSpec("P")
R = TypeVar("R")
Of = TypeVar("Of")
Of_co = TypeVar("Of_co", covariant=True)


class Portal:
    """The loop in its thread; started by the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

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
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self.loop.run_forever, name="qo-sync", daemon=True)
                self._thread.start()
            return self.loop

    def forked(self) -> None:
        """In a child the thread is gone, and the lock may be held by nobody. The loop is the parent's: kept, unused."""
        _of_parents.append(self.loop)
        self.loop = self._thread = None
        self._lock = threading.Lock()


_of_parents: list[object] = []
PORTAL = Portal()
os.register_at_fork(after_in_child=PORTAL.forked)


class Twin(Protocol[Of_co]):
    """Something blocking, and what it stands for."""

    @property
    def inner(self) -> Of_co: ...


class Blocking(Generic[Of, P, R]):
    """An async method as a blocking one of its twin, with the same arguments."""

    def __init__(self, method: Callable[Concatenate[Of, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> "Blocking[Of, P, R]": ...
    @overload
    def __get__(self, instance: Twin[Of], owner: type) -> Callable[P, R]: ...
    def __get__(self, instance: Twin[Of] | None, owner: type) -> "Blocking[Of, P, R] | Callable[P, R]":
        if instance is None:
            return self
        method, inner = self._method, instance.inner

        def blocking(*args: P.args, **kwargs: P.kwargs) -> R:
            return PORTAL.run(method(inner, *args, **kwargs))

        return blocking


class SyncClaimedTask:
    """A ClaimedTask whose methods block."""

    def __init__(self, inner: ClaimedTask) -> None:
        self.inner = inner

    @property
    def task(self) -> Task:
        """The record; after settling, as it then is."""
        return self.inner.task

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.inner.id

    @property
    def input(self) -> Any:
        """The input, as JSON knows it."""
        return self.inner.input

    @property
    def cancel_requested(self) -> bool:
        """Somebody cancelled it, as of the last renewal."""
        return self.inner.cancel_requested

    complete = Blocking(ClaimedTask.complete)
    retry = Blocking(ClaimedTask.retry)
    fail = Blocking(ClaimedTask.fail)
    release = Blocking(ClaimedTask.release)
    snooze = Blocking(ClaimedTask.snooze)
    heartbeat = Blocking(ClaimedTask.heartbeat)


class SyncQueue:
    """Every async method of a queue, blocking. Usable from any thread; in a coroutine, await the queue's own."""

    def __init__(self, inner: Queue) -> None:
        self.inner = inner

    submit = Blocking(Queue.submit)
    submit_call = Blocking(Queue.submit_call)
    submit_many = Blocking(Queue.submit_many)
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
    run_once = Blocking(Queue.run_once)
    close = Blocking(Queue.close)

    # By hand: `Blocking` would keep only the first of its overloads.
    @overload
    def result(self, task: TaskHandle[R], timeout: Duration | None = None) -> R: ...
    @overload
    def result(self, task: str, timeout: Duration | None = None) -> Any: ...
    def result(self, task: str | TaskHandle[Any], timeout: Duration | None = None) -> Any:
        """What the handler returned; waits for it. Raises TaskFailed, TaskCancelled, TaskNotFound or ResultTimeout."""
        return PORTAL.run(self.inner.result(task, timeout))

    @contextmanager
    def claim(
        self,
        *types: str,
        limit: int = 1,
        capabilities: Iterable[str] = (),
        lease: Duration | None = None,
        wait: Duration = 0,
    ) -> Generator[list[SyncClaimedTask]]:
        """Pull by hand: `with q.sync.claim("crawl", limit=5) as tasks`. Leases are renewed by the background thread."""
        claim = self.inner.claim(*types, limit=limit, capabilities=capabilities, lease=lease, wait=wait)
        claimed = PORTAL.run(claim.__aenter__())
        try:
            yield [SyncClaimedTask(one) for one in claimed]
        finally:
            PORTAL.run(claim.__aexit__(None, None, None))


async def close_behind(queue: Queue) -> None:
    """Close what blocking calls have opened of a queue that is closed on another loop."""
    loop = PORTAL.loop
    if loop is not None and loop is not asyncio.get_running_loop():
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(queue.close(), loop))

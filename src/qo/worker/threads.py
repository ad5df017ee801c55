"""Runs sync handlers in threads, which take attempts and leave outcomes without a trip through the loop for each."""

import asyncio
import contextvars
import inspect
import queue
import threading
from collections import deque

from qo.context import enter
from qo.errors import UsageError
from qo.outcomes import Outcome, Returned
from qo.worker.coroutines import Finish
from qo.worker.run import Run, bad_input, raised, stopped


class Threads:
    """Up to `size` threads, started as they are needed. `finish` is called on the worker's loop."""

    def __init__(self, size: int, finish: Finish, output_limit: int) -> None:
        self._size = size
        self._finish = finish
        self._output_limit = output_limit
        self._loop = asyncio.get_running_loop()
        self._inbox: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._outbox: deque[tuple[Run, Outcome]] = deque()
        self._called = False
        self._busy = 0
        self._threads = 0
        self._clean = contextvars.copy_context()

    def start(self, run: Run) -> None:
        """Hand it to a free thread, or start one."""
        self._busy += 1
        self._inbox.put(run)
        if self._busy > self._threads < self._size:
            self._threads += 1
            threading.Thread(target=self._live, name=f"qo-handler-{self._threads}", daemon=True).start()

    def close(self) -> None:
        """End the threads that have nothing to do. One that still runs a handler ends after it, or with the process."""
        for _ in range(self._threads):
            self._inbox.put(None)

    def _live(self) -> None:
        while (run := self._inbox.get()) is not None:
            # A copy of the context for each run: what a handler sets must not be seen by the next.
            outcome = self._clean.copy().run(self._execute, run)
            self._outbox.append((run, outcome))
            if not self._called:
                self._called = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:  # the loop is closed: nobody wants the outcome any more
                    return

    def _deliver(self) -> None:
        # Before looking, so that an outcome added meanwhile calls again.
        self._called = False
        while self._outbox:
            run, outcome = self._outbox.popleft()
            self._busy -= 1
            self._finish(run, outcome)

    def _execute(self, run: Run) -> Outcome:
        if (outcome := stopped(run)) is not None:
            return outcome  # interrupted before it began
        enter(run.context())
        try:
            try:
                args, kwargs = run.handler.arguments(run.task.raw_input)
            except Exception as error:
                return bad_input(error)
            value = run.handler.fn(*args, **kwargs)
            if inspect.iscoroutine(value):
                value.close()
                raise UsageError(f"{run.handler.place} returned a coroutine that nobody awaits: make it async def")
            return Returned(run.handler.encode_output(value, self._output_limit))
        except BaseException as error:
            return raised(error, run)

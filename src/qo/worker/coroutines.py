"""Runs async handlers on consumer coroutines that are used again and again.

A new asyncio task for each attempt, with a timeout of its own, costs 35 µs; a coroutine that takes the next attempt
under 1. So each consumer loops, one timer (in `runner`) watches all deadlines, and a handler is interrupted by
cancelling its consumer.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable

import msgspec

from qo.context import enter
from qo.errors import InvalidInput
from qo.outcomes import Outcome, Returned
from qo.worker.run import Run, bad_input, raised, stopped

Finish = Callable[[Run, Outcome], None]


class Coroutines:
    """As many consumers as attempts run at once; they stay for the next ones."""

    def __init__(self, finish: Finish, output_limit: int) -> None:
        self._finish = finish
        self._output_limit = output_limit
        self._idle: deque[asyncio.Future[Run]] = deque()
        self._consumers: set[asyncio.Task[None]] = set()
        self._clean = contextvars.copy_context()

    def start(self, run: Run) -> None:
        """Hand it to an idle consumer, or make one."""
        while self._idle:
            waiting = self._idle.pop()
            if not waiting.done():
                waiting.set_result(run)
                return
        consumer = asyncio.create_task(self._consume(run), name="qo-consumer", context=self._clean.copy())
        self._consumers.add(consumer)
        consumer.add_done_callback(self._consumers.discard)

    def interrupt(self, run: Run) -> None:
        """Raise CancelledError in the handler, at its next await."""
        if run.consumer is not None:
            run.consumer.cancel()

    async def close(self) -> None:
        """End the consumers; call it when nothing runs any more."""
        for consumer in list(self._consumers):
            consumer.cancel()
        await asyncio.gather(*self._consumers, return_exceptions=True)

    async def _consume(self, run: Run) -> None:
        consumer = asyncio.current_task()
        assert consumer is not None
        loop = asyncio.get_running_loop()
        while True:
            run.consumer = consumer
            outcome = await self._execute(run)
            run.consumer = None
            # An interruption that came too late must not hit the next run.
            while consumer.cancelling():
                consumer.uncancel()
            enter(None)
            self._finish(run, outcome)
            if not self._is_clean():
                return  # The handler left context variables behind; the next run gets a fresh consumer.
            waiting: asyncio.Future[Run] = loop.create_future()
            self._idle.append(waiting)
            run = await waiting

    def _is_clean(self) -> bool:
        now = contextvars.copy_context()
        return len(now) <= len(self._clean) + 1 and all(now.get(var) is value for var, value in self._clean.items())

    async def _execute(self, run: Run) -> Outcome:
        enter(run.context)
        try:
            args, kwargs = run.handler.arguments(run.task.raw_input)
        except (InvalidInput, msgspec.DecodeError) as error:
            return bad_input(error)
        try:
            value = await run.handler.fn(*args, **kwargs)
            return Returned(run.handler.encode_output(value, self._output_limit))
        except asyncio.CancelledError as error:
            return stopped(run) or raised(error, run)
        except BaseException as error:
            return raised(error, run)

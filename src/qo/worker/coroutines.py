"""Runs async handlers on consumer coroutines that are used again and again.

A new asyncio task for each attempt, with a timeout of its own, costs 35 µs; a coroutine that takes the next attempt
under 1. So each consumer loops, one timer (in `runner`) watches all deadlines, and a handler is interrupted by
cancelling its consumer.
"""

import asyncio
import contextvars
import logging
from collections import deque
from collections.abc import Callable

from qo.context import enter
from qo.outcomes import Outcome, Returned
from qo.worker.run import Run, bad_input, raised, stopped

log = logging.getLogger("qo.worker")
Finish = Callable[[Run, Outcome], None]
CLOSE_GRACE = 1.0
"""Seconds that consumers have to end at the end; longer waits only for those that will not."""


class Coroutines:
    """As many consumers as attempts run at once; they stay for the next ones."""

    def __init__(self, finish: Finish, output_limit: int) -> None:
        self._finish = finish
        self._output_limit = output_limit
        self._idle: deque[asyncio.Future[Run]] = deque()
        self._consumers: set[asyncio.Task[None]] = set()
        self._clean = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._closing = False

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
        """End the consumers. A handler that ignores even this is left behind: nobody can wait for it."""
        self._closing = True
        for consumer in list(self._consumers):
            consumer.cancel()
        if self._consumers:
            _, stubborn = await asyncio.wait(list(self._consumers), timeout=CLOSE_GRACE)
            if stubborn:
                log.error("%d handlers ignore that they were cancelled and are left behind", len(stubborn))

    async def _consume(self, run: Run) -> None:
        consumer = asyncio.current_task()
        assert consumer is not None
        while True:
            run.consumer = consumer
            # It may have been interrupted before it began.
            outcome = stopped(run) or await self._execute(run)
            run.consumer = None
            # Cancelled by somebody else: the program ends, and waits for us to end.
            foreign = consumer.cancelling() > 0 and run.stop is None
            # An interruption that came too late must not hit the next run.
            while consumer.cancelling():
                consumer.uncancel()
            enter(None)
            self._finish(run, outcome)
            if foreign or self._closing or not self._is_clean():
                return  # Or the handler left context variables behind; the next run gets a fresh consumer.
            waiting: asyncio.Future[Run] = self._loop.create_future()
            self._idle.append(waiting)
            run = await waiting

    def _is_clean(self) -> bool:
        now = contextvars.copy_context()
        return len(now) <= len(self._clean) + 1 and all(now.get(var) is value for var, value in self._clean.items())

    async def _execute(self, run: Run) -> Outcome:
        enter(run.context())
        try:
            try:
                args, kwargs = run.handler.arguments(run.task.raw_input)
            except Exception as error:
                return bad_input(error)
            value = await run.handler.fn(*args, **kwargs)
            return Returned(run.handler.encode_output(value, self._output_limit))
        except asyncio.CancelledError as error:
            return stopped(run) or raised(error, run)
        except GeneratorExit as error:
            if not self._loop.is_running():
                raise  # not the handler's: Python tears the coroutine down after the loop
            return raised(error, run)
        except BaseException as error:
            return raised(error, run)

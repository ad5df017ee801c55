"""Runs claimed tasks, each the way its handler asks for, and ends those that take too long."""

import asyncio
import logging
from collections.abc import Callable

from qo.clock import Clock
from qo.outcomes import GivenBack, Outcome
from qo.worker.coroutines import Coroutines
from qo.worker.isolated import Isolated
from qo.worker.run import GRACE, OnFailure, Run, Stop, stopped
from qo.worker.threads import Threads

log = logging.getLogger("qo.worker")

OnOutcome = Callable[[Run, Outcome], None]
OnFree = Callable[[Run], None]


class Runner:
    """Calls `on_outcome` once for each run and `on_free` when its place is free: later, for a thread past its time."""

    def __init__(
        self,
        size: int,
        clock: Clock,
        output_limit: int,
        *,
        on_outcome: OnOutcome,
        on_free: OnFree,
        on_failure: OnFailure,
    ) -> None:
        self._clock = clock
        self._on_failure = on_failure
        self._on_outcome = on_outcome
        self._on_free = on_free
        self._runs: set[Run] = set()
        self._coroutines = Coroutines(self._finish, output_limit)
        self._threads = Threads(size, self._finish, output_limit)
        self._isolated = Isolated(size, self._finish, output_limit)
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0

    @property
    def running(self) -> int:
        return len(self._runs)

    def start(self, run: Run) -> None:
        """Begin an attempt."""
        self._runs.add(run)
        # Processes are killed at their deadline by the pool, which knows when a child really began.
        if run.deadline is not None and run.handler.isolation != "process":
            self._watch(run.deadline)
        if run.handler.isolation == "async":
            self._coroutines.start(run)
        elif run.handler.isolation == "thread":
            self._threads.start(run)
        else:
            self._isolated.start(run)

    def interrupt(self, run: Run, why: Stop) -> None:
        """Make it end: at its next await, its next look at `cancelled`, or by killing its process."""
        if run.stop is not None or run not in self._runs:
            return
        run.stop = why
        if run.handler.isolation == "async":
            self._coroutines.interrupt(run)
        elif run.handler.isolation == "thread":
            self._abandon(run)
        else:
            self._isolated.interrupt(run)

    def interrupt_all(self, why: Stop) -> None:
        """The same for everything that runs."""
        for run in list(self._runs):
            self.interrupt(run, why)

    def abandon_all(self) -> None:
        """Report what ignores its interruption; it may run on, but counts no more."""
        for run in list(self._runs):
            self._report(run, stopped(run) or GivenBack())

    async def close(self) -> None:
        """Let go of consumers, threads and processes; what still runs was interrupted before."""
        if self._alarm is not None:
            self._alarm.cancel()
        await self._coroutines.close()
        await self._isolated.close()
        self._threads.close()

    def _finish(self, run: Run, outcome: Outcome) -> None:
        self._runs.discard(run)
        try:
            self._report(run, outcome)
        except Exception as error:
            self._on_failure(error)
        self._on_free(run)

    def _report(self, run: Run, outcome: Outcome) -> None:
        if not run.reported:
            run.reported = True
            self._on_outcome(run, outcome)

    def _abandon(self, run: Run) -> None:
        """No thread can be made to end.

        Past its time, or at shutdown, its attempt is settled without it; asked to cancel it may stop by itself.
        """
        if run.stop != "cancelled":
            self._report_stubborn(run)

    def _report_stubborn(self, run: Run) -> None:
        outcome = stopped(run)
        if outcome is None or run.reported:
            return
        log.warning(
            "task %s (%s) still runs after %s and keeps its place until it ends", run.task.id, run.task.type, run.stop
        )
        self._report(run, outcome)

    # One timer for all deadlines.

    def _watch(self, deadline: float) -> None:
        if self._alarm is None or deadline < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = deadline
            delay = max(0.0, deadline - self._clock.monotonic())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now = self._clock.monotonic()
        coming: list[float] = []
        for run in list(self._runs):
            if run.deadline is None or run.reported or run.handler.isolation == "process":
                continue
            if run.deadline > now:
                coming.append(run.deadline)
            elif run.deadline + GRACE > now:
                self.interrupt(run, "timeout")
                coming.append(run.deadline + GRACE)
            else:
                # It swallowed its cancellation. From now on its lease is not renewed, so it is settled without it.
                self._report_stubborn(run)
        if coming:
            self._watch(min(coming))

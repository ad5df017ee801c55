"""Runs handlers in child processes: killed at their timeout, replaced when they crash. Called by the runner.

`ProcessPool` decides who runs where and what a death means; `children` starts, hears and kills; `child` is the other
side. A job is answered only after its process has answered or is dead, so a retry never runs beside it.
"""

import asyncio
import logging
import pickle
from collections import deque
from collections.abc import Sequence

from qo.clock import SYSTEM, Clock
from qo.errors import ConfigError
from qo.worker import child as protocol
from qo.worker.alarm import Alarm
from qo.worker.children import Launched, Spawner
from qo.worker.jobs import Answered, Crashed, Job, Reply, Stopped, TimedOut, raised
from qo.worker.slots import OnProgress, Running, Slot

START_TIMEOUT = 60.0
"""Seconds a child may take to import the preload modules."""
HUNG_UP_GRACE = 1.0
"""Seconds between a child's end of the socket and its own."""
FIRST_BACKOFF, LONGEST_BACKOFF = 0.1, 10.0

log = logging.getLogger("qo.worker")


class ProcessPool:
    """Up to `size` reused child processes, started when there is work for them. Belongs to one event loop."""

    def __init__(self, size: int, *, preload: Sequence[str] = (), clock: Clock = SYSTEM) -> None:
        if size < 1:
            raise ConfigError(f"a process pool needs at least one process, not {size}")
        self._size = size
        self._preload = tuple(preload)
        self._clock = clock
        self._spawner: Spawner | None = None
        self._slots: set[Slot] = set()
        self._idle: list[Slot] = []
        self._waiting: deque[Running] = deque()
        self._launching = 0
        self._owed = 0
        """Children that died after they were up, to be replaced even when nothing waits."""
        self._failures = 0
        self._not_before = 0.0
        # For everything: the nearest deadline of any child, the end of a backoff, the end of `close`.
        self._alarm = Alarm(clock, self._tick)
        self._count = 0
        self._close_at: float | None = None
        self._gone = asyncio.Event()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that are up or starting."""
        return tuple(slot.child.pid for slot in self._slots)

    async def start(self) -> None:
        """Get ready to start children; the first one starts with the first job."""
        if protocol.importing_main():
            raise ConfigError(
                "the main module starts a worker when it is imported, and the worker's child processes import it: "
                'put what starts the worker under `if __name__ == "__main__":`'
            )
        if self._spawner is None:
            self._spawner = Spawner()

    async def close(self, deadline: float) -> None:
        """Take no more jobs, let the running ones end for that many seconds, then kill. Called again it can hurry."""
        while self._waiting:
            self._waiting.popleft().answer(Stopped(began=False))
        at = self._clock.monotonic() + deadline
        self._close_at = at if self._close_at is None else min(at, self._close_at)
        for slot in self._slots:
            if slot.ready:
                slot.child.finish()
            else:
                slot.condemn(Stopped(began=False))
        self._tick()
        self._check_gone()
        await self._gone.wait()
        await self._alarm.stop()
        if self._spawner is not None:
            self._spawner.stop()
            self._spawner = None

    async def run(self, job: Job, on_progress: OnProgress | None = None) -> Reply:
        """Run it in a child, after waiting for one if all are busy."""
        return await self.begin(job, on_progress).reply()

    def begin(self, job: Job, on_progress: OnProgress | None = None) -> Running:
        """Give it to a child or put it in line; the handle can cancel, kill and wait."""
        self._count += 1
        running = Running(job, self._count, on_progress, self._withdraw)
        if self._close_at is not None:
            running.answer(Stopped(began=False))
            return running
        if self._spawner is None:
            raise RuntimeError("the process pool has not been started")
        self._waiting.append(running)
        self._assign()
        return running

    def _withdraw(self, running: Running) -> None:
        """It does not want a child any more; nothing happens when it has ended."""
        if running in self._waiting:
            self._waiting.remove(running)
        running.answer(Stopped(began=False))

    def _heard(self, slot: Slot, kind: bytes, body: bytes) -> None:
        """A message of a child; an empty one when it hung up."""
        running = slot.running
        if kind == protocol.ANSWER and running is not None:
            self._ended(slot, running, Answered(body))
        elif kind == protocol.RAISED and running is not None:
            self._ended(slot, running, raised(body))
        elif kind == protocol.PROGRESS and running is not None:
            try:
                if running.on_progress is not None:
                    running.on_progress(body)
            except Exception:
                log.exception("on_progress raised")
        elif kind == protocol.READY:
            slot.ready, slot.deadline = True, None
            self._idle.append(slot)
            self._assign()
        elif kind == protocol.IMPORTING:
            slot.importing = body.decode()
        elif kind == protocol.FAILED:
            slot.failure = raised(body)
        elif kind == b"":
            if slot in self._idle:
                self._idle.remove(slot)
            if self._close_at is None:
                slot.deadline = self._clock.monotonic() + HUNG_UP_GRACE
                self._alarm.set(slot.deadline)
        else:
            slot.condemn(Crashed("the child process sent something that is no message"))

    def _died(self, slot: Slot, code: int, unread: bool) -> None:
        """A child has ended, by itself or killed."""
        self._slots.discard(slot)
        if slot in self._idle:
            self._idle.remove(slot)
        running, slot.running = slot.running, None
        if self._close_at is None:
            self._owed += slot.ready
            if running is None and not slot.served:
                self._back_off(slot.obituary(code), answer=not slot.ready)
        if running is not None:
            self._bury(running, slot, code, unread)
        self._start_more()
        self._check_gone()

    def _bury(self, running: Running, slot: Slot, code: int, unread: bool) -> None:
        if slot.fate is not None:
            running.answer(slot.fate)
        elif unread and not running.given_again and self._close_at is None:
            # It died before it had read the job. Once only: reading may be what kills it (out of memory).
            running.given_again, running.slot = True, None
            self._waiting.appendleft(running)
            self._assign()
        else:
            running.answer(slot.obituary(code))

    def _back_off(self, obituary: Crashed, *, answer: bool = True) -> None:
        """A child ended before it did anything: the next one will too, so it must not follow at once."""
        delay = min(FIRST_BACKOFF * 2**self._failures, LONGEST_BACKOFF)
        self._failures = min(self._failures + 1, 16)
        self._not_before = self._clock.monotonic() + delay
        log.warning("a child process ended before it ran anything (next start in %g s): %s", delay, obituary.message)
        if answer and self._waiting:
            self._waiting.popleft().answer(obituary)

    def _ended(self, slot: Slot, running: Running, reply: Reply) -> None:
        slot.running, slot.deadline, slot.served = None, None, True
        self._failures = 0
        running.answer(reply)
        if slot.fate is None:
            self._idle.append(slot)
            if self._waiting:
                self._assign()

    def _assign(self) -> None:
        while self._waiting and self._idle:
            slot, running = self._idle.pop(), self._waiting.popleft()
            job = running.job
            slot.running, running.slot = running, slot
            if job.timeout is not None:
                slot.deadline = self._clock.monotonic() + job.timeout
                self._alarm.set(slot.deadline)
            slot.child.send(pickle.dumps((running.number, job.entry, job.function, job.raw_input, job.context)))
        if self._waiting:
            self._start_more()

    def _start_more(self) -> None:
        if self._close_at is not None or self._spawner is None:
            return
        coming = self._launching + sum(not slot.ready for slot in self._slots)
        room = self._size - len(self._slots) - self._launching
        wanted = min(len(self._waiting) + self._owed - coming, room)
        if wanted > 0 and self._clock.monotonic() < self._not_before:
            self._alarm.set(self._not_before)
            return
        for _ in range(wanted):
            self._owed = max(0, self._owed - 1)
            self._launching += 1
            self._spawner.launch(self._preload, self._launched)

    def _launched(self, launched: Launched | OSError) -> None:
        self._launching -= 1
        if isinstance(launched, OSError):
            self._back_off(Crashed(f"no child process could be started: {launched}"))
            self._start_more()
        else:
            slot = Slot(launched, self._clock.monotonic() + START_TIMEOUT, self._heard, self._died)
            self._slots.add(slot)
            self._alarm.set(self._clock.monotonic() + START_TIMEOUT)
            if self._close_at is not None:
                slot.condemn(Stopped(began=False))
        self._check_gone()

    def _tick(self) -> None:
        now = self._clock.monotonic()
        closing = self._close_at is not None and self._close_at <= now
        for slot in list(self._slots):
            if closing:
                slot.condemn(Stopped(began=True))
            elif slot.deadline is not None and slot.deadline <= now:
                self._overdue(slot)
        self._start_more()
        deadlines = [slot.deadline for slot in self._slots if slot.deadline is not None]
        if self._close_at is not None and not closing:
            deadlines.append(self._close_at)
        if deadlines:
            self._alarm.set(min(deadlines))

    def _overdue(self, slot: Slot) -> None:
        due, _ = slot.deadline, slot.child.drain()
        if slot.deadline != due:
            return  # an answer that has come while the loop was busy is in time
        if slot.child.hung_up:
            slot.condemn(Crashed("it closed its connection to the worker"))
        elif not slot.ready:
            slot.condemn(Crashed(f"the child process did not start within {START_TIMEOUT:g} s"))
        elif slot.running is not None and slot.running.job.timeout is not None:
            slot.condemn(TimedOut(slot.running.job.timeout))

    def _check_gone(self) -> None:
        if self._close_at is not None and not self._slots and not self._launching:
            self._gone.set()

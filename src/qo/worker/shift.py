"""One stretch of work: all parts of a worker put together, and ended in good order.

claimer --tasks--> runner --outcomes--> settler --> store        lease keeper, upkeep and heartbeat beside them
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from qo.changes import Renewed, Settled, Settlement
from qo.clock import Clock, wait_until
from qo.commit import GroupCommit
from qo.errors import QoError
from qo.handlers import Handler
from qo.logs import log_settled, log_start
from qo.outcomes import Outcome, Raised
from qo.records import Controls, WorkerInfo
from qo.settings import Settings
from qo.stores.protocol import Claimed, Store, Want
from qo.task import ErrorInfo, Task
from qo.worker.claimer import Claimer
from qo.worker.heartbeat import Heartbeat
from qo.worker.leases import LeaseKeeper
from qo.worker.limits import Rates, Slots
from qo.worker.run import Run, with_own_options
from qo.worker.runner import Runner
from qo.worker.settler import Settler
from qo.worker.upkeep import Upkeep

log = logging.getLogger("qo.worker")
STUBBORN_GRACE = 2.0
"""Seconds an interrupted handler has to end before its task is given back without it."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is asked to do."""

    worker_id: str
    queue: str
    settings: Settings
    clock: Clock
    open_store: Callable[[], Store]
    handlers: Mapping[str, Handler[..., Any]]
    concurrency: int
    any_type: bool
    capabilities: frozenset[str]
    upkeep: bool
    describe: Callable[[Literal["active", "draining"], tuple[str, ...]], WorkerInfo]
    counters: dict[str, int]


class Shift:
    """From `open` to `close`; made anew for each run of a worker."""

    def __init__(self, job: Job) -> None:
        self._job = job
        settings, clock = job.settings, job.clock
        self.store = job.open_store()
        self.held: dict[tuple[str, int], Run] = {}
        """(task id, attempt) to run, from claim until the settlement is answered. The lease keeper reads it."""
        self.moved = asyncio.Event()
        """Set whenever a run ended or a settlement was answered."""
        self._commit = GroupCommit(self.store, clock)
        self._slots = Slots(job.concurrency, _said(job.handlers, "concurrency"))
        self._rates = Rates(_said(job.handlers, "rate_limit"), clock)
        self._types = None if job.any_type else frozenset(job.handlers)
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        """Done when a part broke. Then the worker must end: without any one of them it would do harm or nothing."""
        self.settler = Settler(self.store, self._commit, clock, self._on_settled)
        self.runner = Runner(
            job.concurrency,
            clock,
            settings.max_output_bytes,
            on_outcome=self._on_outcome,
            on_free=self._on_free,
            on_failure=self._on_failure,
        )
        self.claimer = Claimer(
            self.store,
            clock,
            self._slots,
            self._rates,
            want=self._want,
            take=self._take,
            poll_min=settings.poll_min,
            poll_max=settings.poll_max,
        )
        self._keeper = LeaseKeeper(
            job.open_store,
            self.store,
            self.held,
            ttl=settings.lease,
            every=settings.renew,
            clock=clock,
            on_answer=self._on_lease,
            on_failure=self._on_failure,
        )
        self._heartbeat = Heartbeat(
            self.store,
            clock,
            job.queue,
            every=settings.heartbeat,
            dead_after=settings.worker_dead_after,
            describe=self._describe,
            on_controls=self._on_controls,
        )
        self._settling: asyncio.Task[None] | None = None
        self._beside: list[asyncio.Task[None]] = []
        self._shown = False

    async def open(self, *, shown: bool) -> None:
        """Connect and begin. A shift that is not `shown` has no heartbeat and does no upkeep: it will be short."""
        await self.store.open()
        await self.store.attach(self._job.worker_id)
        self._settling = self.begin(self.settler.run(), "qo-settler")
        self._keeper.start()
        if not shown:
            await self._heartbeat.read_controls()
            return
        self._shown = True
        self._beside.append(self.begin(self._heartbeat.run(), "qo-heartbeat"))
        if self._job.upkeep:
            upkeep = Upkeep(self.store, self._job.queue, self._job.settings, self._job.clock)
            self._beside.append(self.begin(upkeep.run(), "qo-upkeep"))

    def begin(self, part: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a part of the worker beside the others; when it breaks, `failed` says so."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._on_failure(error)

        task = asyncio.create_task(part, name=name)
        task.add_done_callback(ended)
        return task

    def check(self) -> None:
        """Raise what broke a part of the worker."""
        if self.failed.done():
            raise self.failed.result()

    async def drain(self, deadline: float | None) -> None:
        """Let running tasks end for that many seconds (None: as long as it takes), then give back what did not."""
        if self._shown:
            await self._quietly(self._heartbeat.show("draining"))
        await self._until_done(deadline)
        if self.runner.running:
            log.warning("%d tasks did not end in time and are given back", self.runner.running)
            self.runner.interrupt_all("shutdown")
            await self._until_done(STUBBORN_GRACE)
            self.runner.abandon_all()

    async def close(self) -> None:
        """Write every outcome, then let go.

        Outcomes that the store does not take within a lease time are lost to it.
        """
        self.settler.close()
        if self._settling is not None:
            done, _ = await asyncio.wait([self._settling], timeout=self._job.settings.lease)
            if not done:
                self._settling.cancel()
                await asyncio.wait([self._settling])
            if self.held:
                log.error("%d outcomes could not be written; their leases will run out", len(self.held))
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self.runner.close()
        await self._keeper.stop()
        if self._shown:
            await self._quietly(self._heartbeat.remove(self._job.worker_id))
        await self._quietly(self.store.detach(self._job.worker_id))
        await self._commit.close()
        await self.store.close()

    async def until_moved(self, timeout: float) -> None:
        """Until something ended, or that many seconds."""
        self.moved.clear()
        await wait_until(self.moved, self._job.clock, timeout)

    async def _until_done(self, seconds: float | None) -> None:
        end = None if seconds is None else self._job.clock.monotonic() + seconds
        while not self.failed.done() and (self.runner.running or (self.held and end is None)):
            left = 1.0 if end is None else end - self._job.clock.monotonic()
            if left <= 0:
                return
            await self.until_moved(min(left, 1.0))

    @staticmethod
    async def _quietly(call: Any) -> None:
        """What would be nice to do at the end, if the store is there."""
        try:
            await call
        except QoError as error:
            log.debug("at the end: %s", error)
        except Exception:
            log.exception("at the end of the worker")

    # What the parts tell each other.

    def _want(self, limit: int, room: dict[str, int]) -> Want:
        return Want(
            worker_id=self._job.worker_id,
            lease_id=self._job.clock.new_id(),
            limit=limit,
            ttl=self._job.settings.lease,
            queues=(self._job.queue,),
            types=self._types,
            capabilities=self._job.capabilities,
            room=room,
        )

    def _take(self, claimed: Claimed, asked_at: float) -> None:
        now = self._job.clock.monotonic()
        for corrupt in claimed.corrupt:
            extra = {"task_id": corrupt.id, "attempt": corrupt.attempt}
            log.error("task %s cannot be read and fails: %s", corrupt.id, corrupt.message, extra=extra)
            self.settler.add_corrupt(corrupt)
        self._job.counters["claimed"] += len(claimed.tasks)
        for task in claimed.tasks:
            handler = self._job.handlers.get(task.type)
            if handler is None:
                message = f"no handler for type {task.type!r} in this worker, which takes any type"
                self.settler.add(task, Raised(ErrorInfo(reason="permanent", message=message, retriable=False)))
                continue
            log_start(task)
            run = Run(with_own_options(task, handler), handler, now, leased=asked_at)
            self.held[task.id, task.attempt] = run
            self._slots.take(task.type)
            self._rates.take(task.type)
            self.runner.start(run)

    def _on_outcome(self, run: Run, outcome: Outcome) -> None:
        if run.stop == "lost":
            self._forget(run.task)
            self._job.counters["lost"] += 1
            log.warning("task %s (%s) lost its lease; what it did is not recorded", run.task.id, run.task.type)
            return
        asked = run.stop == "cancelled"
        self.settler.add(msgspec.structs.replace(run.task, cancel_requested=True) if asked else run.task, outcome)

    def _on_free(self, run: Run) -> None:
        self._slots.give_back(run.task.type)
        self.claimer.freed()
        self.moved.set()

    def _on_settled(self, task: Task | None, settlement: Settlement, answer: Settled | None) -> None:
        if task is None:
            self._job.counters["failed"] += 1
            return
        self._forget(task)
        if answer == "written":
            name: str = settlement.state
            if name == "pending":  # given back and snoozed tasks have no error
                name = "retried" if settlement.error else "put_back"
            self._job.counters[name] = self._job.counters.get(name, 0) + 1
            log_settled(task, settlement)
        else:
            self._job.counters["lost"] += 1
            log.warning("task %s (%s) had lost its lease; its outcome is not recorded", task.id, task.type)

    def _forget(self, task: Task) -> None:
        self.held.pop((task.id, task.attempt), None)
        self.moved.set()

    def _on_lease(self, run: Run, answer: Renewed) -> None:
        self.runner.interrupt(run, "lost" if answer == "lost" else "cancelled")

    def _on_failure(self, error: BaseException) -> None:
        if not self.failed.done():
            log.critical("a part of the worker broke, so the worker ends", exc_info=error)
            self.failed.set_result(error)
            self.moved.set()

    def _on_controls(self, controls: Controls) -> None:
        self._rates.set(controls.rate_limit, controls.rate_limits)

    def _describe(self, state: Literal["active", "draining"]) -> WorkerInfo:
        return self._job.describe(state, tuple(run.task.id for run in list(self.held.values())[:1000]))


def _said(handlers: Mapping[str, Handler[..., Any]], option: str) -> dict[str, Any]:
    values = {type: getattr(handler.options, option) for type, handler in handlers.items()}
    return {type: value for type, value in values.items() if value is not UNSET}

"""Pulling tasks by hand, without a worker: `async with q.claim("crawl", limit=5) as tasks`.

While the block runs the leases are renewed in the background, up to each task's timeout; at its end, however it ends,
what was not settled is given back.
"""

import asyncio
import logging
import traceback
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from qo import lifecycle
from qo.changes import Lease, apply_settlement
from qo.clock import Clock
from qo.context import PROGRESS_LIMIT
from qo.errors import Contention, IllegalTransition, InvalidInput, LeaseLost, OutcomeUnknown, QoError, StoreError
from qo.options import Duration
from qo.outcomes import GivenBack, Outcome, Raised, Returned, Snoozed
from qo.session import Session
from qo.stores.protocol import Claimed, Want
from qo.task import ErrorInfo, Task
from qo.values import encode_value
from qo.views import duration

if TYPE_CHECKING:
    from qo.queue import Queue

log = logging.getLogger("qo")
REPEATS = 6
"""How often a claim whose reply was lost is repeated."""
MOST_CONTENDED = 100


class ClaimedTask:
    """A task that is ours until its lease is lost. Settle it once: complete, retry, fail, release or snooze."""

    def __init__(self, queue: "Queue", session: Session, task: Task, ttl: float) -> None:
        self._queue = queue
        self._session = session
        self._ttl = ttl
        self.task = task
        """The record; after settling, as it then is."""
        self.settled = False
        self.lost = False
        """Somebody else may be running it now."""
        timeout = task.retry.timeout(task.timeout, task.failures)
        self.renew_until = None if timeout is None else queue.clock.monotonic() + timeout

    def __repr__(self) -> str:
        return f"ClaimedTask({self.task.id} {self.task.type}, attempt {self.task.attempt})"

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.task.id

    @property
    def input(self) -> Any:
        """The input, as JSON knows it."""
        return self.task.input

    @property
    def cancel_requested(self) -> bool:
        """Somebody cancelled it, as of the last renewal: stop, and settle it any way you like."""
        return self.task.cancel_requested

    @property
    def open(self) -> bool:
        """It is still ours to settle."""
        return not (self.settled or self.lost)

    async def complete(self, output: object = None) -> Task:
        """It succeeded."""
        limit = self._queue.settings.max_output_bytes
        handler = self._queue.registry.find(self.task.type)
        if handler is not None:
            return await self._settle(Returned(handler.encode_output(output, limit)))
        return await self._settle(Returned(encode_value(output, limit=limit, what="output")))

    async def retry(self, after: Duration | None = None, error: str | BaseException | None = None) -> Task:
        """It failed, and should be tried again while it has retries left: after that time, else after its backoff."""
        info = _info("raised", error if error is not None else "given back for a retry")
        return await self._settle(Raised(info, None if after is None else duration("after", after)))

    async def fail(self, error: str | BaseException = "failed") -> Task:
        """It failed for good."""
        return await self._settle(Raised(replace(_info("permanent", error), retriable=False)))

    async def release(self) -> Task:
        """Give it back as if it had not been claimed: nothing is counted."""
        return await self._settle(GivenBack())

    async def snooze(self, until: datetime | Duration) -> Task:
        """Run it again at that time, or after that long; nothing is counted."""
        if isinstance(until, datetime):
            if until.tzinfo is None:
                raise InvalidInput(f"until: {until} has no time zone; give it one, such as datetime.now(UTC)")
            return await self._settle(Snoozed(until))
        moment = self._session.store.now() + timedelta(seconds=duration("until", until))
        return await self._settle(Snoozed(moment))

    async def heartbeat(self, progress: object = None) -> None:
        """Renew the lease now, and show how far it is. LeaseLost when it is not ours any more."""
        raw = None if progress is None else encode_value(progress, limit=PROGRESS_LIMIT, what="progress")
        self._check_open()
        (answer,) = await self._session.commits.renew([self.lease(None if raw is None else bytes(raw))], self._ttl)
        if isinstance(answer, QoError):
            raise answer
        self.renewed(answer)
        self._check_open()

    def lease(self, progress: bytes | None = None) -> Lease:
        """What is to be renewed."""
        return Lease(
            id=self.task.id,
            lease_id=self.task.lease_id or "",
            attempt=self.task.attempt,
            worker_id=self.task.worker_id or "",
            raw_progress=progress,
        )

    def renewed(self, answer: object) -> None:
        """Take in what the store said of the lease."""
        if self.settled:
            return
        if answer == "lost":
            self.lost = True
        elif answer == "cancel_asked":
            self.task = replace(self.task, cancel_requested=True)

    async def _settle(self, outcome: Outcome) -> Task:
        self._check_open()
        while True:
            now = self._session.store.now()
            settlement = lifecycle.settle(self.task, outcome, now, self._queue.clock.chance())
            answer = await self._session.commits.settle(settlement)
            if answer == "written":
                self.settled = True
                self.task = apply_settlement(self.task, settlement)
                return self.task
            if answer == "lost":
                self.lost = True
                self._check_open()
            # A cancellation came between: decide again, knowing of it. It is never taken back while the lease holds.
            self.task = replace(self.task, cancel_requested=True)

    def _check_open(self) -> None:
        if self.settled:
            raise IllegalTransition(f"task {self.task.id} is settled already: it is {self.task.state}")
        if self.lost:
            raise LeaseLost(
                f"the lease of task {self.task.id} ran out or was taken: another worker may be running it, "
                "and nothing was written",
                self.task.id,
            )


class Claim:
    """The block in which claimed tasks are ours. Made by `q.claim(…)`; used once."""

    def __init__(
        self,
        queue: "Queue",
        types: tuple[str, ...],
        limit: int,
        capabilities: frozenset[str],
        lease: float,
        wait: float,
    ) -> None:
        self._queue = queue
        self._clock: Clock = queue.clock
        self._types = types
        self._limit = limit
        self._capabilities = capabilities
        self._lease = lease
        self._wait = wait
        self._tasks: list[ClaimedTask] = []
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> list[ClaimedTask]:
        self._session = await self._queue.session()
        self._worker_id = await self._session.attach()
        found = await self._claim_some()
        self._tasks = [ClaimedTask(self._queue, self._session, task, self._lease) for task in found]
        if self._tasks:
            self._keeper = asyncio.create_task(self._keep(), name="qo-claim-renewal")
        return list(self._tasks)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        await self._give_back([one.task for one in self._tasks if one.open])

    async def _claim_some(self) -> list[Task]:
        deadline = self._clock.monotonic() + self._wait
        store, settings = self._session.store, self._queue.settings
        pause, upkeep_at, contended = settings.poll_min, 0.0, 0
        while True:
            if self._clock.monotonic() >= upkeep_at:
                await self._queue.expire()
                upkeep_at = self._clock.monotonic() + (settings.upkeep_interval or 2.0)
            claimed = await self._ask()
            if claimed.tasks:
                return claimed.tasks
            left = deadline - self._clock.monotonic()
            if claimed.contended:
                contended += 1
                if contended > MOST_CONTENDED and left <= 0:
                    raise Contention("other claims were in the way again and again; try again later")
                await self._clock.sleep(0.001)
                continue
            if left <= 0:
                return []
            longest = settings.poll_max if store.capabilities.push_wakeup else pause
            if claimed.next_due is not None:
                longest = min(longest, max(0.0, (claimed.next_due - store.now()).total_seconds()))
            await store.wait(min(left, longest))
            pause = min(2 * pause, settings.poll_max)

    async def _ask(self) -> Claimed:
        """One claim; when the caller is cancelled meanwhile, what it got is given back."""
        asking = asyncio.ensure_future(self._repeated())
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.wait([asking])
            if not asking.cancelled() and asking.exception() is None:
                await self._give_back(asking.result().tasks)
            raise

    async def _repeated(self) -> Claimed:
        want = Want(
            worker_id=self._worker_id,
            lease_id=self._clock.new_id(),
            limit=self._limit,
            ttl=self._lease,
            queues=(self._queue.name,),
            types=frozenset(self._types) if self._types else None,
            capabilities=self._capabilities,
        )
        for tried in range(REPEATS):
            try:
                return await self._took(await self._session.store.claim(want))
            except OutcomeUnknown:
                want = replace(want, again=True)
                await self._clock.sleep(0.05 * 2**tried * (0.5 + self._clock.chance()))
        return await self._took(await self._session.store.claim(want))

    async def _took(self, claimed: Claimed) -> Claimed:
        """Records that cannot be read are failed on the way."""
        for bad in claimed.corrupt:
            log.error("task %s cannot be read and is failed: %s", bad.id, bad.message)
            now = self._session.store.now()
            await self._session.commits.settle(lifecycle.give_up(bad.id, bad.lease_id, bad.attempt, bad.message, now))
        return claimed

    async def _keep(self) -> None:
        """Renew what is still open, again and again."""
        every = min(self._queue.settings.renew, self._lease / 4)
        while True:
            await self._clock.sleep(every)
            now = self._clock.monotonic()
            held = [one for one in self._tasks if one.open and (one.renew_until is None or now < one.renew_until)]
            if not held:
                continue
            try:
                answers = await self._session.commits.renew([one.lease() for one in held], self._lease)
            except StoreError as error:
                log.warning("cannot renew the leases of claimed tasks, trying again: %s", error)
                continue
            for one, answer in zip(held, answers, strict=True):
                one.renewed(answer)

    async def _give_back(self, tasks: list[Task]) -> None:
        """Release them all. The lease covers what cannot be released, so this never hides the caller's own error."""
        while tasks:
            now = self._session.store.now()
            settlements = [lifecycle.settle(task, GivenBack(), now, self._clock.chance()) for task in tasks]
            try:
                answers = await self._session.commits.settle_many(settlements)
            except StoreError as error:
                log.warning("%d tasks could not be given back, their leases will run out: %s", len(tasks), error)
                return
            pairs = zip(tasks, answers, strict=True)
            tasks = [replace(task, cancel_requested=True) for task, answer in pairs if answer == "cancel_asked"]


def _info(reason: Any, error: str | BaseException) -> ErrorInfo:
    if isinstance(error, str):
        return ErrorInfo(reason=reason, message=error)
    text = "".join(traceback.format_exception(error))
    return ErrorInfo(reason=reason, message=str(error), type=type(error).__qualname__, traceback=text)

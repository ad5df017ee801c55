"""The workbench of a scenario: a store, short words for the verbs, seeded ids. Scenarios talk to the store through it.

No scenario moves time or sleeps, since most engines' clocks cannot be moved: what is old was made with an earlier
`now`, what is due later with a later one, a lease of 0 s has run out, one of an hour has not. All start from the time
of the store.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from qo import lifecycle
from qo.changes import Amended, Amendment, Lease, Renewed, Settled, Settlement
from qo.clock import SYSTEM, ManualClock
from qo.outcomes import Outcome, Returned
from qo.records import Controls, encode_record
from qo.stores.protocol import Capabilities, Claimed, Store, Submitted, Want
from qo.task import State, Task, Transition
from qo.testing.conformance.harness import Harness, Opener
from qo.testing.conformance.tools import HOUR, failed_for_good, only, read, same
from qo.values import encode_value

TOLERANCE = timedelta(seconds=60)
"""How far a time stamped by the engine may be from what the test expects: slow machines and clocks that differ."""


class Skipped(Exception):
    """The store does not claim to do what the scenario checks."""


class Bench:
    """One store in an empty place, and others on the same place when asked."""

    def __init__(self, harness: Harness, opener: Opener, store: Store) -> None:
        self.harness = harness
        self.store = store
        self.ids = ManualClock(seed=7)
        self._opener = opener
        self._open = [store]
        self._workers = 0

    @classmethod
    async def opened(cls, harness: Harness, opener: Opener) -> "Bench":
        """A bench whose store is open."""
        store = opener()
        await store.open()
        return cls(harness, opener, store)

    async def close(self) -> None:
        """Close every store that was opened."""
        while self._open:
            await self._open.pop().close()

    async def open_another(self) -> Store:
        """A second store on the same place, as another process would open it."""
        store = self._opener()
        await store.open()
        self._open.append(store)
        return store

    async def open_others(self, count: int) -> list[Store]:
        """Stores of so many other processes."""
        return [await self.open_another() for _ in range(count)]

    def need(self, capability: str) -> None:
        """Skip the scenario unless the store claims this capability."""
        if not getattr(self.capabilities, capability):
            raise Skipped(f"the store does not claim {capability}")

    @property
    def capabilities(self) -> Capabilities:
        return self.store.capabilities

    def now(self) -> datetime:
        """The store's time."""
        return self.store.now()

    def ago(self, seconds: float) -> datetime:
        """That long before the store's time; negative for later."""
        return self.now() - timedelta(seconds=seconds)

    def near(self, moment: datetime | None, expected: datetime) -> bool:
        """Is a time stamped by the engine what it should be, give or take?"""
        return moment is not None and abs(moment - expected) <= TOLERANCE

    async def until(self, moment: datetime) -> None:
        """Let time pass until then; for a fraction of a second at most, since most clocks are real."""
        while (left := (moment - self.now()).total_seconds()) > 0:
            if self.harness.clock is not None:
                self.harness.clock.advance(left)
            else:
                await SYSTEM.sleep(left)

    # Submitting.

    def task(
        self, type: str = "job", *, age: float = 0, delay: float | None = None, input: object = None, **options: Any
    ) -> Task:
        """A task made `age` seconds ago, to run in `delay` seconds; other options as in lifecycle.submit."""
        now = self.now()
        options.setdefault("id", self.ids.new_id())
        if delay is not None:
            options["run_after"] = now + timedelta(seconds=delay)
        return lifecycle.submit(type=type, now=now - timedelta(seconds=age), input=encode_value(input), **options)

    async def submit(self, type: str = "job", *, store: Store | None = None, **options: Any) -> Task:
        """Submit one new task, as `task` makes it; the stored record."""
        answer = await self.send(self.task(type, **options), store=store)
        assert answer.outcome == "created", f"a new task was answered by {answer.outcome}"
        return answer.task

    async def send(self, task: Task, *, store: Store | None = None) -> Submitted:
        """Submit this very record."""
        return only(await (store or self.store).submit([task]))

    # Claiming.

    def want(
        self,
        limit: int = 1,
        *,
        types: Iterable[str] | None = None,
        queues: Sequence[str] = ("default",),
        capabilities: Iterable[str] = (),
        room: Mapping[str, int] | None = None,
        ttl: float = HOUR,
        worker: str | None = None,
        lease: str | None = None,
    ) -> Want:
        """What a worker asks for; a new worker and a new lease unless said."""
        self._workers += 1
        return Want(
            worker_id=worker or f"worker-{self._workers}",
            lease_id=lease or self.ids.new_id(),
            limit=limit,
            ttl=ttl,
            queues=tuple(queues),
            types=None if types is None else frozenset(types),
            capabilities=frozenset(capabilities),
            room=room or {},
        )

    async def ask(self, want: Want, *, store: Store | None = None) -> Claimed:
        """Claim, asking again while the store says that others were in the way."""
        for _ in range(1000):
            claimed = await (store or self.store).claim(want)
            if claimed.tasks or claimed.corrupt or not claimed.contended:
                return claimed
        raise AssertionError("1000 claims in a row were answered by contended")

    async def claim(self, limit: int = 1, *, store: Store | None = None, **options: Any) -> list[Task]:
        """Claim up to that many tasks; options are those of `want`."""
        return (await self.ask(self.want(limit, **options), store=store)).tasks

    async def claim_one(self, *, store: Store | None = None, **options: Any) -> Task:
        """Claim exactly one task."""
        tasks = await self.claim(1, store=store, **options)
        assert len(tasks) == 1, "there was nothing to claim"
        return tasks[0]

    async def running(self, type: str = "job", *, ttl: float = HOUR, **options: Any) -> Task:
        """A new task under a lease. No other task of its type may be waiting."""
        task = await self.submit(type, **options)
        held = await self.claim_one(types=[type], queues=[task.queue], capabilities=task.requires, ttl=ttl)
        assert held.id == task.id, "the claim took another task than the one just submitted"
        return held

    # Ending attempts.

    async def write(self, settlement: Settlement, *, store: Store | None = None) -> Settled:
        """Send this very settlement."""
        return only(await (store or self.store).settle([settlement]))

    async def settle(
        self, task: Task, outcome: Outcome, *, store: Store | None = None, at: datetime | None = None
    ) -> Settled:
        """End the attempt the way lifecycle decides."""
        return await self.write(self.decide(task, outcome, at), store=store)

    def decide(self, task: Task, outcome: Outcome, at: datetime | None = None) -> Settlement:
        """What lifecycle makes of the outcome of this attempt."""
        return lifecycle.settle(task, outcome, at or self.now(), 0.5)

    async def expire(self, task: Task, *, store: Store | None = None, max_losses: int = 10) -> Settled:
        """What upkeep does with a task it believes lost."""
        return await self.write(lifecycle.expire(task, self.now(), 0.5, max_losses), store=store)

    async def renew(self, task: Task, ttl: float = HOUR, *, store: Store | None = None, **options: Any) -> Renewed:
        """Renew the lease of a claimed task; `progress` is any JSON value."""
        assert task.lease_id is not None, f"{task} has no lease"
        progress = bytes(encode_value(options["progress"])) if "progress" in options else None
        lease = Lease(id=task.id, lease_id=task.lease_id, attempt=task.attempt, raw_progress=progress)
        return only(await (store or self.store).renew([lease], ttl))

    # Changing from outside.

    async def amend(self, amendment: Amendment | None, *, store: Store | None = None) -> Amended:
        """Send an amendment that lifecycle made."""
        assert amendment is not None, "lifecycle found nothing to do"
        return only(await (store or self.store).amend([amendment]))

    async def cancel(self, id: str, *, store: Store | None = None) -> Amended:
        """Cancel the task as it is now."""
        return await self.amend(lifecycle.cancel(await self.get(id), self.now(), "tester"), store=store)

    async def control(self, queue: str = "default", **controls: Any) -> None:
        """Set what an administrator asks of a queue."""
        await self.store.put_record("control", queue, encode_record(Controls(**controls)))

    # Reading.

    async def get(self, id: str, *, store: Store | None = None) -> Task:
        """The task as it is stored now."""
        task = only(await read(store or self.store, [id]))
        assert task is not None, f"task {id} is gone"
        return task

    async def unchanged(self, before: Task) -> bool:
        """Is the stored task still this one?"""
        return same(await self.get(before.id), before)

    async def gone(self, id: str) -> bool:
        """Is there no such task?"""
        return only(await read(self.store, [id])) is None

    async def history(self, id: str) -> list[Transition]:
        """The task's history."""
        return await self.store.history(id)

    async def steps(self, id: str) -> list[tuple[State | None, State | None]]:
        """The task's history, only from which state to which."""
        return [(line.was, line.became) for line in await self.history(id)]

    # A task in any state.

    async def make(self, state: State, type: str = "job", **options: Any) -> Task:
        """A new task in that state. No other task of its type may be waiting."""
        if state == "pending":
            return await self.submit(type, **options)
        archive = state == "archived"
        if state == "cancelled":
            task = await self.submit(type, **options)
            assert await self.cancel(task.id) == "written", "a pending task could not be cancelled"
            return await self.get(task.id)
        task = await self.running(type, **options)
        if state == "running":
            return task
        outcome = failed_for_good() if state == "failed" else Returned(encode_value({"done": True}))
        assert await self.settle(task, outcome) == "written", "the holder of the lease could not settle"
        if archive:
            amendment = lifecycle.archive(await self.get(task.id), self.now(), "tester")
            assert await self.amend(amendment) == "written", "an ended task could not be archived"
        return await self.get(task.id)

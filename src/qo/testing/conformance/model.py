"""The store under test and the memory store, driven by the same operations with the same ids: all answers must agree.

`machine` draws the operations; this module performs and compares them, and notes which situations were reached. Time is
the manual clock of the harness for both, or, on engines with their own, the store's time; then every moment that
decides is an hour off, so that a small difference between the two clocks decides nothing.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec.structs import replace

from qo import lifecycle
from qo.changes import Amendment, Lease, Settlement
from qo.clock import EPOCH, ManualClock
from qo.outcomes import Outcome
from qo.records import Controls, Record, encode_record
from qo.stores.memory import MemoryStore
from qo.stores.protocol import Filter, Sort, Store, Want
from qo.task import STATES, Task, Transition
from qo.testing.conformance import laws
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.tools import SLACK, good, ids, lost, only, plain_stats, read
from qo.values import NULL

QUEUES = ("default", "other")


class StoreClock(ManualClock):
    """The time of a store, for the reference beside it."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def now(self) -> datetime:
        return self._store.now()


class Model:
    """Two stores that must not differ."""

    def __init__(self, bench: Bench, reached: Counter[str]) -> None:
        self.bench = bench
        self.store = bench.store
        self.exact = bench.harness.clock is not None
        self.reference = MemoryStore(clock=bench.harness.clock or StoreClock(bench.store))
        self.reached = reached
        self.known: list[str] = []
        self.attempts: list[Task] = []
        """Claimed records, as their workers know them; most are stale."""
        self.settlements: list[Settlement] = []
        self.wants: list[Want] = []
        self.seen: list[tuple[Task, Task]] = []
        """Records of both stores as somebody read them once."""
        self.controls: dict[str, Controls] = {}

    async def submit(self, tasks: Sequence[Task]) -> None:
        """Submit to both."""
        mine, theirs = good(await self.store.submit(tasks)), good(await self.reference.submit(tasks))
        assert [answer.outcome for answer in mine] == [answer.outcome for answer in theirs]
        held_before = {task.key for task in tasks if task.key}
        for task, one, other in zip(tasks, mine, theirs, strict=True):
            self.agree(one.task, other.task)
            self.reached[f"submit {one.outcome}"] += 1
            if one.outcome == "created":
                assert task.id not in self.known
                self.known.append(task.id)
                if task.key in held_before and await self._former_holder(task):
                    self.reached["key taken over after its window"] += 1

    async def _former_holder(self, task: Task) -> bool:
        page = await self.reference.find(Filter(queue=task.queue, key=task.key, states=STATES))
        return len(page.tasks) > 1

    async def claim(self, want: Want, *, repeat: bool = False) -> None:
        """Claim from both; the law says what."""
        if self.bench.capabilities.strict_order is False and not repeat and len(want.types or ()) != 1:
            return  # the reference could not follow the order between lanes
        before = await self.everything()
        held = [task.id for task in sorted(before, key=lambda t: (t.rank, t.id)) if task.lease_id == want.lease_id]
        if repeat and not held:
            return
        expected = held or laws.expected_claim(before, want, self.controls, self.store.now())
        mine, theirs = await self.bench.ask(want), await self.reference.claim(want)
        assert ids(mine.tasks) == expected, "the claim took other tasks, or in another order"
        for one, other in zip(mine.tasks, theirs.tasks, strict=True):
            self.agree(one, other)
        if repeat:
            self.reached["claim repeated"] += 1
            return
        assert (mine.next_due is None) == (theirs.next_due is None)
        if mine.next_due and theirs.next_due:
            assert theirs.next_due - SLACK <= mine.next_due <= theirs.next_due
        self.wants.append(want)
        self.attempts += mine.tasks
        self._note_claim(before, want, mine.tasks)

    def _note_claim(self, before: Sequence[Task], want: Want, tasks: Sequence[Task]) -> None:
        now, taken = self.store.now(), set(ids(tasks))
        left = [task for task in before if task.state == "pending" and task.id not in taken]
        old = max((task.rank for task in tasks), default=0)
        full = {type for type, room in want.room.items() if sum(task.type == type for task in tasks) >= room}
        flags = {
            "claimed across lanes": len({task.lane for task in tasks}) > 1,
            "claimed with a later attempt": any(task.attempt > 1 for task in tasks),
            "claimed what was delayed": any(task.available_at > task.created_at for task in tasks),
            "a waiting task with a smaller rank was not in the way": any(
                task.available_at > now and task.rank < old for task in left
            ),
            "pause kept a task": any(self.controls.get(t.queue, Controls()).stops(t.type) for t in left),
            "a capability was missing": bool(tasks) and any(set(t.requires) - want.capabilities for t in left),
            "room was used up": bool(tasks) and any(task.type in full for task in left),
            "an older low task went first": any(
                task.priority == "low" and any(t.priority in ("high", "medium") and t.rank > task.rank for t in left)
                for task in tasks
            ),
        }
        self.reached.update(name for name, flag in flags.items() if flag)

    async def settle(self, number: int, outcome: Outcome, *, informed: bool) -> None:
        """End an attempt, maybe a stale one; informed: as one who has just looked at the task."""
        held = self.attempts[number % len(self.attempts)]
        if informed:
            current = only(await read(self.store, [held.id]))
            held = current if current and current.lease_id == held.lease_id else held
        settlement = lifecycle.settle(held, outcome, self.store.now(), 0.5)
        self.settlements.append(settlement)
        used_up = " when used up" if settlement.failures > held.max_retries else ""
        await self.write(settlement, f"{type(outcome).__name__} as {settlement.state}{used_up}")

    async def write(self, settlement: Settlement, name: str) -> None:
        """Send one settlement to both."""
        before = only(await read(self.reference, [settlement.id]))
        mine, theirs = only(await self.store.settle([settlement])), only(await self.reference.settle([settlement]))
        assert mine == theirs, f"{settlement} was answered by {mine}, not by {theirs}"
        self.reached[f"settle {name}" if mine == "written" else f"settle {mine}"] += 1
        if mine == "written" and before == only(await read(self.reference, [settlement.id])):
            self.reached["settle repeated"] += 1
        if mine == "lost" and settlement.expired and before and before.lease_id == settlement.lease_id:
            self.reached["expiry of a live lease refused"] += 1

    async def renew(self, number: int, ttl: float, progress: bytes | None) -> None:
        """Renew a lease, maybe a stale one."""
        held = self.attempts[number % len(self.attempts)]
        lease = Lease(id=held.id, lease_id=held.lease_id or "", attempt=held.attempt, raw_progress=progress)
        mine, theirs = only(await self.store.renew([lease], ttl)), only(await self.reference.renew([lease], ttl))
        assert mine == theirs
        self.reached[f"renew {mine}"] += 1

    async def expire(self, number: int | None, max_losses: int) -> None:
        """One round of upkeep, or, with a number, an expiry of what somebody once believed lost."""
        if number is not None:
            await self._expire_one(self.attempts[number % len(self.attempts)], max_losses)
            return
        mine, theirs = await lost(self.store, 1000), await lost(self.reference, 1000)
        assert sorted(ids(mine)) == sorted(ids(theirs))
        assert len(await lost(self.store, 1)) == min(1, len(theirs))
        for task in mine:
            await self._expire_one(task, max_losses)

    async def _expire_one(self, task: Task, max_losses: int) -> None:
        settlement = lifecycle.expire(task, self.store.now(), 0.5, max_losses)
        later = settlement.state == "pending" and settlement.losses > 1
        await self.write(settlement, f"expired as {settlement.state}{' to wait' if later else ''}")

    async def amend(self, verb: str, number: int, *, stale: bool, force: bool = False) -> None:
        """Change a task from outside, decided on the record as it is, or as it once was."""
        if not self.known:
            return
        if stale and self.seen:
            one, other = self.seen[number % len(self.seen)]
            amendment = self.decided(verb, one, force)
        else:
            # The next one that allows it: else nearly all would be refused, since most tasks are in other states.
            start = number % len(self.known)
            order = self.known[start:] + self.known[:start]
            both = zip(await read(self.store, order), await read(self.reference, order), strict=True)
            allowed = ((*pair, pair[0] and self.decided(verb, pair[0], force)) for pair in both)
            one, other, amendment = next((each for each in allowed if each[2]), (None, None, None))
        if amendment is None or one is None or other is None:
            return
        mine = only(await self.store.amend([amendment]))
        theirs = only(await self.reference.amend([replace(amendment, version=other.version)]))
        assert mine == theirs, f"{verb} was answered by {mine}, not by {theirs}"
        self.reached[f"{verb} of {one.state}" if mine == "written" else "amend changed"] += 1
        if mine == "written" and amendment.delete:
            self.known.remove(one.id)

    def decided(self, verb: str, task: Task, force: bool) -> Amendment | None:
        """What lifecycle makes of it; None when it refuses or finds nothing to do."""
        now = self.store.now()
        try:
            if verb == "replay" and (not force or task.state == "completed"):
                return lifecycle.replay(task, now, "model", force=force)
            return None if force else getattr(lifecycle, verb)(task, now, "model")
        except lifecycle.IllegalTransition:
            self.reached["illegal"] += 1
            return None

    async def control(self, queue: str, controls: Controls) -> None:
        """Pause and resume."""
        for store in (self.store, self.reference):
            assert await store.put_record("control", queue, encode_record(controls)) is not None
        self.controls[queue] = controls

    async def put_record(self, key: str, value: bytes, version: int) -> None:
        """Write a small record, maybe from a wrong version."""
        raw = msgspec.Raw(value)
        mine = await self.store.put_record("schedule", key, raw, version)
        theirs = await self.reference.put_record("schedule", key, raw, version)
        assert (mine.version if mine else None) == (theirs.version if theirs else None)

        def plain(records: list[Record]) -> list[tuple[str, int, bytes]]:
            return [(record.key, record.version, bytes(record.value)) for record in records]

        assert plain(await self.store.records("schedule")) == plain(await self.reference.records("schedule"))

    async def purge(self, filter: Filter) -> None:
        """Purge all that match."""
        mine, theirs = await self.store.purge(filter, 1000), await self.reference.purge(filter, 1000)
        assert mine == theirs
        self.reached["purged"] += mine > 0
        left = await read(self.reference, self.known)
        self.known = [task.id for task in left if task is not None]

    async def find(self, filter: Filter, sort: Sort, limit: int) -> None:
        """All pages of a list, beside the whole list of the reference."""
        whole = await self.reference.find(filter, sort=sort, limit=1000, total=True)
        got: list[str] = []
        cursor: str | None = None
        while True:
            page = await self.store.find(filter, sort=sort, limit=limit, cursor=cursor, total=True)
            assert page.total == whole.total
            got += ids(page)
            cursor = page.cursor
            if cursor is None or len(got) > len(whole.tasks):
                break
        assert got == ids(whole), "the pages are not the list"
        self.reached["found over several pages"] += len(got) > limit

    async def remember(self, number: int) -> None:
        """Somebody reads a task, to act on it later."""
        if self.known:
            id = self.known[number % len(self.known)]
            other = only(await read(self.reference, [id]))
            assert other is not None
            self.seen.append((await self.bench.get(id), other))

    # Comparing.

    async def everything(self) -> list[Task]:
        """All tasks of the store under test; none may be missing."""
        tasks = await read(self.store, self.known)
        assert None not in tasks, "a task is gone that nobody deleted"
        return [task for task in tasks if task is not None]

    async def check(self) -> None:
        """Every record and number agrees, and the laws hold."""
        tasks = await self.everything()
        for one, other in zip(tasks, await read(self.reference, self.known), strict=True):
            assert other is not None
            self.agree(one, other)
            laws.check_record(one)
        for queue in QUEUES:
            mine, theirs = await self.store.stats(queue), await self.reference.stats(queue)
            laws.check_stats([task for task in tasks if task.queue == queue], mine, self.store.now())
            assert plain_stats(mine, self.exact) == plain_stats(theirs, self.exact)

    async def check_histories(self) -> None:
        """Every history agrees and is a chain."""
        for task in await self.everything():
            mine, theirs = await self.store.history(task.id), await self.reference.history(task.id)
            laws.check_history(task, mine)
            assert [self._line(line) for line in mine] == [self._line(line) for line in theirs]

    def _line(self, line: Transition) -> Transition:
        return line if self.exact else replace(line, at=EPOCH)

    def agree(self, one: Task, other: Task) -> None:
        """Two records of one task say the same, except for what an engine counts or stamps itself."""
        assert self.plain(one) == self.plain(other)
        assert (one.input, one.output, one.progress) == (other.input, other.output, other.progress)
        if not self.exact:
            for name in ("updated_at", "started_at", "lease_expires_at"):
                mine, theirs = getattr(one, name), getattr(other, name)
                assert mine == theirs or self.bench.near(mine, theirs), f"{name} of {one}: {mine}, not {theirs}"

    def plain(self, task: Task) -> Task:
        """The record without data and version, and without stamps of a clock that is not ours."""
        task = replace(task, version=0, raw_input=NULL, raw_output=NULL, raw_progress=NULL)
        if self.exact:
            return task
        return replace(task, updated_at=EPOCH, started_at=None, lease_expires_at=None)

"""A queue as plain data: every verb of the store contract as a synchronous function of the state, an input and `now`.

The reference model. `memory` wraps it; the document layout loads and saves it. Written to be obviously right first:
what another store does differently is that store's mistake, or a change of the contract.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from qo.changes import (
    Amended,
    Amendment,
    Lease,
    Renewed,
    Settled,
    Settlement,
    apply_amendment,
    apply_claim,
    apply_renewal,
    apply_settlement,
    fits,
    judge_renewal,
    judge_settlement,
    transition,
)
from qo.errors import CorruptRecord, QoError
from qo.records import NO_CONTROLS, Controls, Kind, Record, decode_controls
from qo.stores.paging import cursor_after, matches, read_cursor
from qo.stores.protocol import ANY_VERSION, Claimed, Corrupt, Filter, Page, PriorityStats, Sort, Stats, Submitted, Want
from qo.task import ENDED, STATES, ErrorInfo, Lane, State, Task, Transition

PROMOTE_AT_ONCE = 1000
"""How many due tasks one claim moves to the ready ones at most, so that no claim takes long."""


class QueueState:
    """Tasks, their history and what finds them. Not thread-safe; the caller holds a lock."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task] = {}
        self.histories: dict[str, list[Transition]] = {}
        self.keys: dict[tuple[str, str], str] = {}
        self.saved: dict[tuple[Kind, str], Record] = {}
        # Heaps are cleaned when read: an entry counts only while its task still says the same.
        self.ready: dict[Lane, list[tuple[int, str]]] = defaultdict(list)
        self.delayed: dict[Lane, list[tuple[datetime, str]]] = defaultdict(list)
        self.ready_ids: set[str] = set()
        self.running: dict[str, set[str]] = defaultdict(set)
        """Lease id to the tasks it holds."""

    # Writing.

    def submit(self, tasks: Sequence[Task], now: datetime) -> list[Submitted | QoError]:
        return [self._submit_one(task, now) for task in tasks]

    def _submit_one(self, task: Task, now: datetime) -> Submitted:
        if existing := self.tasks.get(task.id):
            return Submitted(existing, "id_exists")
        if task.key is not None:
            holder = self.tasks.get(self.keys.get((task.queue, task.key), ""))
            if holder is not None and holder.key_until is not None and holder.key_until > now:
                return Submitted(holder, "key_held")
            self.keys[task.queue, task.key] = task.id
        self._write(None, task, now)
        return Submitted(task, "created")

    def claim(self, want: Want, now: datetime) -> Claimed:
        if held := self.running.get(want.lease_id):
            return Claimed(tasks=sorted((self.tasks[id] for id in held), key=lambda task: (task.rank, task.id)))
        lanes = self._open_lanes(want)
        self._promote(lanes, now)
        chosen = list(self._choose(lanes, want))
        claimed: list[Task] = []
        for task in chosen:
            after = apply_claim(task, now, want.lease_id, want.worker_id, want.ttl)
            self._write(task, after, now)
            claimed.append(after)
        return Claimed(tasks=claimed, next_due=self._next_due(lanes))

    def renew(self, leases: Sequence[Lease], ttl: float, now: datetime) -> list[Renewed | QoError]:
        answers: list[Renewed | QoError] = []
        for lease in leases:
            task = self.tasks.get(lease.id)
            answer = judge_renewal(task, lease)
            if task is not None and answer != "lost":
                self.tasks[task.id] = apply_renewal(task, lease, now, ttl)
            answers.append(answer)
        return answers

    def settle(self, settlements: Sequence[Settlement], now: datetime) -> list[Settled | QoError]:
        answers: list[Settled | QoError] = []
        for settlement in settlements:
            task = self.tasks.get(settlement.id)
            answer = judge_settlement(task, settlement, now)
            if task is not None and answer == "written":
                self._write(task, apply_settlement(task, settlement), now, error=settlement.error)
            answers.append("written" if answer == "repeated" else answer)
        return answers

    def amend(self, amendments: Sequence[Amendment], now: datetime) -> list[Amended | QoError]:
        answers: list[Amended | QoError] = []
        for amendment in amendments:
            task = self.tasks.get(amendment.id)
            if task is None or task.version != amendment.version:
                answers.append("changed")
                continue
            if amendment.delete:
                self._remove(task)
            else:
                self._write(task, apply_amendment(task, amendment), now, actor=amendment.actor)
            answers.append("written")
        return answers

    def expired(self, limit: int, now: datetime) -> list[Task | Corrupt]:
        held = (self.tasks[id] for ids in self.running.values() for id in ids)
        out = [task for task in held if task.lease_expires_at is not None and task.lease_expires_at <= now]
        return list(sorted(out, key=lambda task: (task.lease_expires_at or now, task.id))[:limit])

    def purge(self, filter: Filter, limit: int) -> int:
        gone = [task for task in self.tasks.values() if task.ended and matches(task, filter)]
        gone = sorted(gone, key=lambda task: (task.completed_at or task.created_at, task.id))[:limit]
        for task in gone:
            self._remove(task)
        return len(gone)

    # Reading.

    def get(self, ids: Sequence[str]) -> list[Task | CorruptRecord | None]:
        return [self.tasks.get(id) for id in ids]

    def find(self, filter: Filter, sort: Sort, limit: int, cursor: str | None, offset: int, total: bool) -> Page:
        found = [task for task in self.tasks.values() if matches(task, filter)]
        if sort == "ended":
            found = [task for task in found if task.completed_at is not None]
        found.sort(key=lambda task: _sort_key(task, sort), reverse=sort != "oldest")
        count = len(found) if total else None
        if cursor is not None:
            place = read_cursor(cursor, sort)
            found = [
                task
                for task in found
                if (_sort_key(task, sort) > place if sort == "oldest" else _sort_key(task, sort) < place)
            ]
        page = found[offset : offset + limit]
        more = len(found) > offset + limit and bool(page)
        return Page(tasks=page, cursor=cursor_after(page[-1], sort) if more else None, total=count)

    def history(self, id: str) -> list[Transition]:
        return list(self.histories.get(id, ()))

    def stats(self, queue: str, now: datetime) -> Stats:
        counts: dict[State, int] = dict.fromkeys(STATES, 0)
        by_type: dict[str, dict[State, int]] = {}
        waiting: dict[str | int, list[datetime]] = defaultdict(list)
        ended = 0
        for task in self.tasks.values():
            if task.queue != queue:
                continue
            counts[task.state] += 1
            types = by_type.setdefault(task.type, {})
            types[task.state] = types.get(task.state, 0) + 1
            if task.state == "pending" and task.available_at <= now:
                waiting[task.priority].append(task.scheduled_at)
            if task.state in ENDED and task.completed_at and task.completed_at > now - timedelta(minutes=1):
                ended += 1
        ready = sum(len(times) for times in waiting.values())
        return Stats(
            **counts,
            ready=ready,
            delayed=counts["pending"] - ready,
            by_type=by_type,
            by_priority={
                priority: PriorityStats(depth=len(times), oldest=min(times))  # pyright: ignore[reportArgumentType]
                for priority, times in waiting.items()
            },
            ended_last_minute=ended,
        )

    # Small records.

    def records(self, kind: Kind) -> list[Record]:
        return [record for (_, _), record in sorted(self.saved.items()) if record.kind == kind]

    def put_record(self, kind: Kind, key: str, value: msgspec.Raw, version: int, now: datetime) -> Record | None:
        current = self.saved.get((kind, key))
        known = current.version if current else 0
        if version not in (ANY_VERSION, known):
            return None
        record = Record(kind=kind, key=key, value=value, version=known + 1, updated_at=now)
        self.saved[kind, key] = record
        return record

    def delete_record(self, kind: Kind, key: str) -> bool:
        return self.saved.pop((kind, key), None) is not None

    # How a change is written.

    def _write(
        self,
        before: Task | None,
        after: Task,
        now: datetime,
        *,
        actor: str | None = None,
        error: ErrorInfo | None = None,
    ) -> None:
        """Replace the record, add the line of history, and keep what finds it up to date."""
        if before is not None:
            self._forget(before)
        self.tasks[after.id] = after
        self.histories.setdefault(after.id, []).append(transition(before, after, actor=actor, error=error))
        if after.state == "running" and after.lease_id:
            self.running[after.lease_id].add(after.id)
        elif after.state == "pending" and after.available_at <= now:
            self._make_ready(after)
        elif after.state == "pending":
            heapq.heappush(self.delayed[after.lane], (after.available_at, after.id))

    def _remove(self, task: Task) -> None:
        self._forget(task)
        del self.tasks[task.id], self.histories[task.id]
        if task.key is not None and self.keys.get((task.queue, task.key)) == task.id:
            del self.keys[task.queue, task.key]

    def _forget(self, task: Task) -> None:
        self.ready_ids.discard(task.id)
        if task.lease_id and (held := self.running.get(task.lease_id)):
            held.discard(task.id)
            if not held:
                del self.running[task.lease_id]

    def _make_ready(self, task: Task) -> None:
        self.ready_ids.add(task.id)
        heapq.heappush(self.ready[task.lane], (task.rank, task.id))

    # How a claim chooses.

    def _controls(self, queue: str) -> Controls:
        record = self.saved.get(("control", queue))
        return decode_controls(record.value) if record else NO_CONTROLS

    def _open_lanes(self, want: Want) -> list[Lane]:
        """Lanes with waiting tasks that this worker can run and nobody paused."""
        controls = {queue: self._controls(queue) for queue in want.queues}
        return [
            lane
            for lane in {**self.ready, **self.delayed}
            if lane[0] in controls
            and (want.types is None or lane[1] in want.types)
            and fits(lane[2], want.capabilities)
            and want.room.get(lane[1], 1) > 0
            and not controls[lane[0]].stops(lane[1])
        ]

    def _promote(self, lanes: list[Lane], now: datetime) -> None:
        moved = 0
        for lane in lanes:
            while moved < PROMOTE_AT_ONCE and (head := self._delayed_head(lane)) and head.available_at <= now:
                heapq.heappop(self.delayed[lane])
                self._make_ready(head)
                moved += 1

    def _choose(self, lanes: list[Lane], want: Want) -> Iterator[Task]:
        """Merge the heads of the lanes by rank."""
        room = dict(want.room)
        heads = [(head.rank, head.id, lane) for lane in lanes if (head := self._ready_head(lane))]
        heapq.heapify(heads)
        left = want.limit
        while heads and left > 0:
            _, id, lane = heapq.heappop(heads)
            if room.get(lane[1], 1) <= 0:
                continue
            heapq.heappop(self.ready[lane])
            self.ready_ids.discard(id)
            left -= 1
            if lane[1] in room:
                room[lane[1]] -= 1
            yield self.tasks[id]
            if head := self._ready_head(lane):
                heapq.heappush(heads, (head.rank, head.id, lane))

    def _next_due(self, lanes: list[Lane]) -> datetime | None:
        return min((head.available_at for lane in lanes if (head := self._delayed_head(lane))), default=None)

    def _ready_head(self, lane: Lane) -> Task | None:
        heap = self.ready[lane]
        while heap:
            rank, id = heap[0]
            if id in self.ready_ids and self.tasks[id].rank == rank:
                return self.tasks[id]
            heapq.heappop(heap)
        del self.ready[lane]
        return None

    def _delayed_head(self, lane: Lane) -> Task | None:
        heap = self.delayed[lane]
        while heap:
            due, id = heap[0]
            task = self.tasks.get(id)
            if task and task.state == "pending" and id not in self.ready_ids and task.available_at == due:
                return task
            heapq.heappop(heap)
        del self.delayed[lane]
        return None


def _sort_key(task: Task, sort: Sort) -> tuple[datetime, str]:
    return read_cursor(cursor_after(task, sort), sort)

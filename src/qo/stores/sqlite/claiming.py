"""Claim inside the writer's transaction: find the live lanes, move what is due, merge the heads, lease the first n."""

import heapq
import sqlite3
from collections import Counter
from typing import Any

import msgspec

from qo.changes import fits
from qo.clock import from_micros
from qo.errors import CorruptRecord
from qo.records import NO_CONTROLS, Controls, decode_controls
from qo.stores.protocol import Claimed, Corrupt, Want
from qo.stores.sqlite.counts import Counts, count
from qo.stores.sqlite.rows import COLUMNS, to_json, to_task
from qo.stores.sqlite.text import sql
from qo.task import Task

PROMOTE_AT_ONCE = 1000
"""Due tasks that one claim moves at most, so that no claim takes long."""
MERGE_AT_ONCE = 200
"""Lanes in one merging statement; SQLite allows 500."""

SqlLane = tuple[str, str, str]
_READY = {"index": "qo_tasks_ready", "live": "ready = 1"}
_DELAYED = {"index": "qo_tasks_delayed", "live": "ready = 0 AND state = 'pending'"}
_lanes = msgspec.json.Decoder(list[tuple[str, str, str]])
_times = msgspec.json.Decoder(list[int | None])
_picks = msgspec.json.Decoder(list[tuple[int, str, int, str]])
_rows = msgspec.json.Decoder(list[list[Any]])


def claim(connection: sqlite3.Connection, want: Want, now: int) -> Claimed:
    """The claim verb. `now` in microseconds."""
    again = held(connection, want)
    if again.tasks or again.corrupt:
        return again
    stops = {queue: _controls(connection, queue) for queue in want.queues}
    next_due = _promote(connection, _runnable(connection, _DELAYED, want, stops), now)
    lanes = _runnable(connection, _READY, want, stops)
    if not _lease(connection, lanes, want, now):
        return Claimed(next_due=None if next_due is None else from_micros(next_due))
    connection.execute(sql("claim_history"), {"lease_id": want.lease_id})
    _count(connection, want.lease_id)
    fresh = held(connection, want)
    if next_due is None:
        return fresh
    return msgspec.structs.replace(fresh, next_due=from_micros(next_due))


def _count(connection: sqlite3.Connection, lease_id: str) -> None:
    taken: Counts = Counter()
    for *kind, n in connection.execute(sql("claimed"), {"lease_id": lease_id}):
        taken[*kind, "pending"] = -n
        taken[*kind, "running"] = n
    count(connection, taken)


def held(connection: sqlite3.Connection, want: Want) -> Claimed:
    """What the lease of this want holds already."""
    try:
        (text,) = connection.execute(sql("held", columns=COLUMNS), {"lease_id": want.lease_id}).fetchone()
        tasks = [to_task(row) for row in _rows.decode(text)]
    except (CorruptRecord, sqlite3.OperationalError, sqlite3.DataError, msgspec.DecodeError):
        return _held_one_by_one(connection, want)
    tasks.sort(key=_order)
    return Claimed(tasks=tasks)


def _held_one_by_one(connection: sqlite3.Connection, want: Want) -> Claimed:
    """The slow way, when one of the records cannot be read, or all together are too long for one text."""
    tasks: list[Task] = []
    corrupt: list[Corrupt] = []
    keys = connection.execute("SELECT pk, id, attempt FROM qo_tasks WHERE lease_id = ?", (want.lease_id,)).fetchall()
    for pk, id, attempt in keys:
        try:
            tasks.append(to_task(connection.execute(f"SELECT {COLUMNS} FROM qo_tasks WHERE pk = ?", (pk,)).fetchone()))
        except (CorruptRecord, sqlite3.OperationalError) as error:
            corrupt.append(Corrupt(id=id, lease_id=want.lease_id, attempt=attempt, message=str(error)))
    return Claimed(tasks=sorted(tasks, key=_order), corrupt=corrupt)


def _order(task: Task) -> tuple[int, str]:
    return (task.rank, task.id)


def _controls(connection: sqlite3.Connection, queue: str) -> Controls:
    row = connection.execute("SELECT value FROM qo_records WHERE kind = 'control' AND key = ?", (queue,)).fetchone()
    return decode_controls(row[0]) if row else NO_CONTROLS


def _runnable(
    connection: sqlite3.Connection, which: dict[str, str], want: Want, stops: dict[str, Controls]
) -> list[SqlLane]:
    """The live lanes of an index that this worker may and can run."""
    queues = to_json(list(dict.fromkeys(want.queues)))
    if want.types is None:
        (text,) = connection.execute(sql("lanes", **which), {"queues": queues}).fetchone()
    else:
        wanted = {"queues": queues, "types": to_json(sorted(want.types))}
        (text,) = connection.execute(sql("lanes_of_types", **which), wanted).fetchone()
    return [
        lane
        for lane in _lanes.decode(text)
        if want.room.get(lane[1], 1) > 0
        and not stops[lane[0]].stops(lane[1])
        and (not lane[2] or fits(lane[2].split(","), want.capabilities))
    ]


def _promote(connection: sqlite3.Connection, lanes: list[SqlLane], now: int) -> int | None:
    """Move what is due into the ready index; when the next one is due."""
    if not lanes:
        return None
    left = PROMOTE_AT_ONCE
    times = _due(connection, lanes)
    for lane, due in zip(lanes, times, strict=True):
        if due is not None and due <= now and left > 0:
            queue, type, requires = lane
            where = {"queue": queue, "type": type, "requires": requires, "now": now, "most": left}
            left -= connection.execute(sql("promote"), where).rowcount
    if left < PROMOTE_AT_ONCE:
        times = _due(connection, lanes)
    return min((due for due in times if due is not None), default=None)


def _due(connection: sqlite3.Connection, lanes: list[SqlLane]) -> list[int | None]:
    (text,) = connection.execute(sql("due"), {"lanes": to_json(lanes)}).fetchone()
    return _times.decode(text)


def _lease(connection: sqlite3.Connection, lanes: list[SqlLane], want: Want, now: int) -> int:
    """Lease up to the limit, type by type within its room; how many."""
    room = dict(want.room)
    taken = 0
    while lanes and taken < want.limit:
        chosen: list[int] = []
        passed_over = False
        for _, _, pk, type in _pick(connection, lanes, want.limit - taken):
            if room.get(type, 1) <= 0:
                passed_over = True
                continue
            chosen.append(pk)
            if type in room:
                room[type] -= 1
        if chosen:
            lease = {
                "lease_id": want.lease_id,
                "expires_at": now + round(want.ttl * 1_000_000),
                "worker_id": want.worker_id,
                "now": now,
                "pks": to_json(chosen),
            }
            taken += connection.execute(sql("claim"), lease).rowcount
        if not passed_over:
            break
        # A type ran out of room and stood before others: look again without it.
        lanes = [lane for lane in lanes if room.get(lane[1], 1) > 0]
    return taken


def _pick(connection: sqlite3.Connection, lanes: list[SqlLane], limit: int) -> list[tuple[int, str, int, str]]:
    """The first tasks of these lanes by rank."""
    found: list[list[tuple[int, str, int, str]]] = []
    for start in range(0, len(lanes), MERGE_AT_ONCE):
        some = lanes[start : start + MERGE_AT_ONCE]
        statement = sql("pick", lanes=" UNION ALL ".join([sql("pick_lane")] * len(some)))
        parameters: list[object] = [name for lane in some for name in lane]
        (text,) = connection.execute(statement, [*parameters, limit]).fetchone()
        found.append(_picks.decode(text))
    return found[0] if len(found) == 1 else list(heapq.merge(*found))[:limit]

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
_keys = msgspec.json.Decoder(list[int])
_rows = msgspec.json.Decoder(list[list[Any]])


def claim(connection: sqlite3.Connection, want: Want, now: int) -> Claimed:
    """The claim verb. `now` in microseconds."""
    again = held(connection, want)
    if again.tasks or again.corrupt:
        return again
    stops = {queue: _controls(connection, queue) for queue in want.queues}
    next_due = _promote(connection, _runnable(connection, _DELAYED, want, stops), now)
    lanes = _runnable(connection, _READY, want, stops)
    fresh = _lease(connection, lanes, want, now)
    if fresh:
        _count(connection, fresh)
    claimed = _read(fresh, want)
    if next_due is None:
        return claimed
    return msgspec.structs.replace(claimed, next_due=from_micros(next_due))


def _count(connection: sqlite3.Connection, rows: list[list[Any]]) -> None:
    taken: Counts = Counter()
    for kind, n in Counter((row[1], row[2], row[5]) for row in rows).items():
        taken[*kind, "pending"] = -n
        taken[*kind, "running"] = n
    count(connection, taken)


def held(connection: sqlite3.Connection, want: Want) -> Claimed:
    """What the lease of this want holds already, from an earlier try of the same claim."""
    (pks,) = connection.execute(sql("held"), (want.lease_id,)).fetchone()
    return _read(_rows_of(connection, pks), want) if pks != "[]" else Claimed()


def _read(rows: list[list[Any]], want: Want) -> Claimed:
    """The answer for these rows; one that cannot be read is the caller's to fail."""
    tasks: list[Task] = []
    corrupt: list[Corrupt] = []
    for row in rows:
        try:
            tasks.append(to_task(row))
        except CorruptRecord as error:
            corrupt.append(Corrupt(id=row[0], lease_id=want.lease_id, attempt=row[13], message=str(error)))
    tasks.sort(key=_order)
    return Claimed(tasks=tasks, corrupt=corrupt)


def _rows_of(connection: sqlite3.Connection, pks: str) -> list[list[Any]]:
    """These rows (a JSON array of keys), all columns.

    As one JSON text: each row fetched would give up and take back Python's lock.
    """
    try:
        (text,) = connection.execute(sql("rows", columns=COLUMNS), {"pks": pks}).fetchone()
        return _rows.decode(text)
    except (sqlite3.OperationalError, sqlite3.DataError, msgspec.DecodeError):
        # Something JSON cannot hold, or more than fits into one text.
        each = f"SELECT {COLUMNS} FROM qo_tasks WHERE pk = ?"
        return [list(connection.execute(each, (pk,)).fetchone()) for pk in _keys.decode(pks)]


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


def _lease(connection: sqlite3.Connection, lanes: list[SqlLane], want: Want, now: int) -> list[list[Any]]:
    """Lease up to the limit, type by type within its room; the rows as they are then."""
    if lanes and not want.room and len(lanes) <= MERGE_AT_ONCE:
        return _lease_at_once(connection, lanes, want, now)
    room = dict(want.room)
    taken: list[int] = []
    while lanes and len(taken) < want.limit:
        chosen: list[int] = []
        passed_over = False
        for _, _, pk, type in _pick(connection, lanes, want.limit - len(taken)):
            if room.get(type, 1) <= 0:
                passed_over = True
                continue
            chosen.append(pk)
            if type in room:
                room[type] -= 1
        if chosen:
            connection.execute(
                sql("claim", tasks="SELECT value FROM json_each(?)"), (*_terms(want, now), to_json(chosen))
            )
            taken += chosen
        if not passed_over:
            break
        # A type ran out of room and stood before others: look again without it.
        lanes = [lane for lane in lanes if room.get(lane[1], 1) > 0]
    return _rows_of(connection, to_json(taken)) if taken else []


def _lease_at_once(connection: sqlite3.Connection, lanes: list[SqlLane], want: Want, now: int) -> list[list[Any]]:
    """The same in one statement, when no type has a limit of its own."""
    first = f"SELECT pk FROM ({_merged(lanes)} ORDER BY 1, 2 LIMIT ?)"
    names = [name for lane in lanes for name in lane]
    if not connection.execute(sql("claim", tasks=first), (*_terms(want, now), *names, want.limit)).rowcount:
        return []
    pks = connection.execute(sql("held"), (want.lease_id,)).fetchone()[0]
    return _rows_of(connection, pks)


def _terms(want: Want, now: int) -> tuple[object, ...]:
    return (now, now, want.lease_id, now + round(want.ttl * 1_000_000), want.worker_id)


def _merged(lanes: list[SqlLane]) -> str:
    """One SELECT a lane, which SQLite merges by rank as they are read."""
    return " UNION ALL ".join([sql("pick_lane")] * len(lanes))


def _pick(connection: sqlite3.Connection, lanes: list[SqlLane], limit: int) -> list[tuple[int, str, int, str]]:
    """The first tasks of these lanes by rank."""
    found: list[list[tuple[int, str, int, str]]] = []
    for start in range(0, len(lanes), MERGE_AT_ONCE):
        some = lanes[start : start + MERGE_AT_ONCE]
        statement = sql("pick", lanes=_merged(some))
        parameters: list[object] = [name for lane in some for name in lane]
        (text,) = connection.execute(statement, [*parameters, limit]).fetchone()
        found.append(_picks.decode(text))
    return found[0] if len(found) == 1 else list(heapq.merge(*found))[:limit]

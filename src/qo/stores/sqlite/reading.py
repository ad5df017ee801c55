"""The reading verbs, on connections of their own beside the writer."""

import sqlite3
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from qo.clock import from_micros, micros
from qo.errors import CorruptRecord
from qo.ordering import Priority, patience
from qo.records import Kind, Record
from qo.stores.paging import json_text, make_cursor, read_cursor
from qo.stores.protocol import Corrupt, Filter, Page, PriorityStats, Sort, Stats
from qo.stores.sqlite.rows import COLUMNS, read_error, read_rows, to_json
from qo.stores.sqlite.text import sql
from qo.task import ENDED, STATES, State, Task, Transition

NARROW = 20_000
"""Up to that many candidates are looked up by state and sorted; more are met soon enough by going through in order."""

_MINUTE = 60 * 1_000_000
_BY_STATE = {
    "pending": """SELECT pk FROM qo_tasks INDEXED BY qo_tasks_ready WHERE ready = 1 AND queue = {queue}
        UNION ALL SELECT pk FROM qo_tasks INDEXED BY qo_tasks_delayed
        WHERE ready = 0 AND state = 'pending' AND queue = {queue}""",
    "running": "SELECT pk FROM qo_tasks INDEXED BY qo_tasks_lease WHERE lease_id IS NOT NULL AND queue = {queue}",
}
_ENDED = """SELECT pk FROM qo_tasks INDEXED BY qo_tasks_ended
        WHERE completed_at IS NOT NULL AND queue = {queue} AND state = '{state}'"""

Where = tuple[str, list[Any]]


def get(connection: sqlite3.Connection, ids: Sequence[str]) -> list[Task | CorruptRecord | None]:
    """Tasks by id, in the order asked."""
    (text,) = connection.execute(sql("get", columns=COLUMNS), {"ids": to_json(ids)}).fetchone()
    found = {row[0]: task for row, task in read_rows(text)}
    return [found.get(id) for id in ids]


def conditions(filter: Filter) -> Where:
    """The filter as SQL and its parameters."""
    terms: list[str] = []
    values: list[Any] = []

    def term(text: str, *parameters: object) -> None:
        terms.append(text)
        values.extend(parameters)

    if filter.queue is not None:
        term("queue = ?", filter.queue)
    if filter.states:
        term("state IN (SELECT value FROM json_each(?))", to_json(filter.states))
    else:
        term("state <> 'archived'")
    if filter.types:
        term("type IN (SELECT value FROM json_each(?))", to_json(filter.types))
    if filter.priorities:
        term("priority IN (SELECT value FROM json_each(?))", to_json(filter.priorities))
    for name, value in filter.tags.items():
        term("EXISTS (SELECT 1 FROM json_each(tags) AS tag WHERE tag.key = ? AND tag.value = ?)", name, value)
    if filter.key is not None:
        term("key = ?", filter.key)
    if filter.worker_id is not None:
        term("worker_id = ?", filter.worker_id)
    if filter.created_from is not None:
        term("created_at >= ?", micros(filter.created_from))
    if filter.created_before is not None:
        term("created_at < ?", micros(filter.created_before))
    if filter.completed_before is not None:
        term("completed_at < ?", micros(filter.completed_before))
    if filter.text is not None:
        inside = f"%{_like(json_text(filter.text))}%"
        term(
            """(input LIKE ? ESCAPE '!' OR error ->> 'message' LIKE ? ESCAPE '!'
            OR EXISTS (SELECT 1 FROM qo_inputs WHERE task = pk AND input LIKE ? ESCAPE '!'))""",
            inside,
            f"%{_like(filter.text)}%",
            inside,
        )
    return " AND ".join(terms), values


def _like(text: str) -> str:
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def find(
    connection: sqlite3.Connection, filter: Filter, sort: Sort, limit: int, cursor: str | None, offset: int, total: bool
) -> Page:
    """A page of what matches."""
    where, values = conditions(filter)
    if sort == "ended":
        where += " AND completed_at IS NOT NULL"
    where = _narrowed(connection, filter, where)
    count = connection.execute(f"SELECT count(*) FROM qo_tasks WHERE {where}", values).fetchone()[0] if total else None
    if cursor is not None:
        moment, id = read_cursor(cursor, sort)
        if sort == "ended":
            where += " AND (completed_at, id) < (?, ?)"
            values += [micros(moment), id]
        else:
            where += f" AND id {'>' if sort == 'oldest' else '<'} ?"
            values.append(id)
    order = {"newest": "id DESC", "oldest": "id", "ended": "completed_at DESC, id DESC"}[sort]
    chosen = f"SELECT * FROM qo_tasks WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?"
    # The array keeps the order of the subquery, which json_group_array alone does not promise.
    statement = f"SELECT json_group_array(json_array({COLUMNS})) FROM ({chosen})"
    (text,) = connection.execute(statement, [*values, limit + 1, offset]).fetchone()
    found = read_rows(text)
    page = found[:limit]
    ended, last = (page[-1][0][12], page[-1][0][0]) if page else (None, "")
    return Page(
        tasks=[task for _, task in page if isinstance(task, Task)],
        corrupt=[row[0] for row, task in page if not isinstance(task, Task)],
        cursor=make_cursor(sort, last, ended) if len(found) > limit and page else None,
        total=count,
    )


def _narrowed(connection: sqlite3.Connection, filter: Filter, where: str) -> str:
    """Start from the few tasks of rare states instead of going through the whole table.

    SQLite would choose by guess; the counters tell how many there are.
    """
    if not filter.states:
        return where
    rows = connection.execute(
        "SELECT queue, sum(iif(state IN (SELECT value FROM json_each(?)), n, 0)) FROM qo_counts GROUP BY 1",
        (to_json(filter.states),),
    ).fetchall()
    queues = [(queue, n) for queue, n in rows if filter.queue in (None, queue)]
    if sum(n for _, n in queues) > NARROW or len(queues) > 20:
        return where
    if not queues:
        return f"{where} AND false"
    parts = [
        _BY_STATE.get(state, _ENDED).format(queue="'" + queue.replace("'", "''") + "'", state=state)
        for queue, _ in queues
        for state in filter.states
    ]
    return f"{where} AND pk IN ({' UNION ALL '.join(parts)})"


def history(connection: sqlite3.Connection, id: str) -> list[Transition]:
    """Every transition of a task, oldest first. The row that ends an attempt stands for two: its claim and its end."""
    rows = connection.execute(sql("history"), {"id": id}).fetchall()
    lines: list[Transition] = []
    for claimed_at, at, was, became, attempt, lease_id, worker_id, actor, error in rows:
        run = {"attempt": attempt, "lease_id": lease_id, "worker_id": worker_id}
        if claimed_at is not None:
            lines.append(Transition(at=from_micros(claimed_at), was="pending", became="running", **run))
        if became is not None:
            lines.append(
                Transition(at=from_micros(at), was=was, became=became, actor=actor, error=read_error(error), **run)
            )
    # Asked to cancel while it ran: that row was written before the one which tells of the claim.
    return sorted(lines, key=lambda line: (line.attempt, _PHASE.get((line.was, line.became), 3)))


_PHASE: dict[tuple[State | None, State | None], int] = {("pending", "running"): 0, ("running", "running"): 1}


def stats(connection: sqlite3.Connection, queue: str, now: int) -> Stats:
    """A queue in numbers: counters, and the two indexes of waiting tasks."""
    counts: dict[State, int] = dict.fromkeys(STATES, 0)
    by_type: dict[str, dict[State, int]] = {}
    for type, state, n in connection.execute(
        "SELECT type, state, sum(n) FROM qo_counts WHERE queue = ? GROUP BY 1, 2 HAVING sum(n) > 0", (queue,)
    ):
        counts[state] += n
        by_type.setdefault(type, {})[state] = n
    waiting = _waiting(connection, queue, now)
    ready = sum(stats.depth for stats in waiting.values())
    (ended,) = connection.execute(
        """SELECT count(*) FROM qo_tasks INDEXED BY qo_tasks_ended WHERE completed_at IS NOT NULL AND queue = ?
        AND state IN (SELECT value FROM json_each(?)) AND completed_at > ?""",
        (queue, to_json(ENDED), now - _MINUTE),
    ).fetchone()
    return Stats(
        **counts,
        ready=ready,
        delayed=counts["pending"] - ready,
        by_type=by_type,
        by_priority=waiting,
        ended_last_minute=ended,
    )


def _waiting(connection: sqlite3.Connection, queue: str, now: int) -> dict[Priority, PriorityStats]:
    """Depth and oldest of each priority; rank less patience is when a task was meant to run."""
    depth: dict[Priority, int] = {}
    oldest: dict[Priority, int] = {}
    for priority, n, rank in connection.execute(
        """SELECT priority, count(*), min(rank) FROM qo_tasks INDEXED BY qo_tasks_ready
        WHERE ready = 1 AND queue = ?1 GROUP BY 1
        UNION ALL SELECT priority, count(*), min(rank) FROM qo_tasks INDEXED BY qo_tasks_delayed
        WHERE ready = 0 AND state = 'pending' AND queue = ?1 AND available_at <= ?2 GROUP BY 1""",
        (queue, now),
    ):
        depth[priority] = depth.get(priority, 0) + n
        oldest[priority] = min(rank, oldest.get(priority, rank))
    return {
        priority: PriorityStats(depth=n, oldest=from_micros(oldest[priority] - patience(priority)))
        for priority, n in depth.items()
    }


def records(connection: sqlite3.Connection, kind: Kind) -> list[Record]:
    """All records of a kind, by key."""
    rows = connection.execute(
        "SELECT key, value, version, updated_at FROM qo_records WHERE kind = ? ORDER BY key", (kind,)
    ).fetchall()
    return [
        Record(kind=kind, key=key, value=msgspec.Raw(value), version=version, updated_at=from_micros(at))
        for key, value, version, at in cast("list[tuple[str, str, int, int]]", rows)
    ]


def expired(connection: sqlite3.Connection, limit: int, now: int) -> list[Task | Corrupt]:
    """Running tasks whose lease ran out, the longest ago first."""
    (text,) = connection.execute(sql("expired", columns=COLUMNS), {"now": now, "limit": limit}).fetchone()
    return [
        task if isinstance(task, Task) else Corrupt(id=row[0], lease_id=row[23], attempt=row[13], message=str(task))
        for row, task in read_rows(text)
    ]

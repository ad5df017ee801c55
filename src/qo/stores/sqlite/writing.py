"""The writing verbs inside the writer's transaction, except claim.

Functions of a connection, items and now (microseconds).
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from qo.changes import (
    Amended,
    Amendment,
)
from qo.clock import from_micros, micros
from qo.errors import CorruptRecord, QoError
from qo.records import Kind, Record
from qo.stores.protocol import ANY_VERSION, Submitted
from qo.stores.sqlite.counts import count
from qo.stores.sqlite.reading import get
from qo.stores.sqlite.rows import (
    LARGE,
    SUBMIT_WIDTH,
    error_text,
    raw_text,
    submit_row,
    to_json,
)
from qo.stores.sqlite.text import chunks, sql, sql_rows
from qo.task import Task

# Submit.


def submit(connection: sqlite3.Connection, tasks: Sequence[Task], now: int) -> list[Submitted | QoError]:
    """Insert what is new; answer with what was there for the rest."""
    fresh, answers = _sort_out(connection, tasks, now)
    if fresh:
        first = connection.execute("SELECT coalesce(max(pk), 0) FROM qo_tasks").fetchone()[0]
        for some in chunks(fresh):
            rows = [value for task in some for value in submit_row(task, now)]
            connection.execute(sql_rows("submit", SUBMIT_WIDTH, len(some)), rows)
        connection.execute(sql("submit_history"), {"first": first})
        _finish_submit(connection, fresh)
    return [answers.get(index) or Submitted(task, "created") for index, task in enumerate(tasks)]


def _sort_out(
    connection: sqlite3.Connection, tasks: Sequence[Task], now: int
) -> tuple[Sequence[Task], dict[int, Submitted | QoError]]:
    """Which tasks to insert, and by index the answers for those whose id exists or whose key is held.

    Ids come first: a repeated call finds its own key held by its own task.
    """
    known = _there(connection, [task.id for task in tasks])
    keyed = [(task.queue, task.key) for task in tasks if task.key is not None]
    if not keyed and not known and len({task.id for task in tasks}) == len(tasks):
        return tasks, {}
    rows = connection.execute(sql("key_holders"), {"pairs": to_json(keyed), "now": now}).fetchall()
    holders: dict[tuple[str, str], str] = {(queue, key): id for queue, key, id in rows}
    known |= _there(connection, list(holders.values()))
    fresh: list[Task] = []
    answers: dict[int, Submitted | QoError] = {}
    for index, task in enumerate(tasks):
        pair = (task.queue, task.key or "")
        if task.id in known:
            answers[index] = _answer(known[task.id], "id_exists")
        elif task.key is not None and pair in holders:
            answers[index] = _answer(known[holders[pair]], "key_held")
        else:
            known[task.id] = task
            fresh.append(task)
            if task.key_until is not None and micros(task.key_until) > now:
                holders[pair] = task.id
    return fresh, answers


def _there(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, Task | CorruptRecord]:
    """Those of the tasks that exist. Nearly always none, so the whole records are read only then."""
    some = "SELECT 1 FROM qo_tasks WHERE id IN (SELECT value FROM json_each(?)) LIMIT 1"
    if not ids or connection.execute(some, (to_json(ids),)).fetchone() is None:
        return {}
    return {id: task for id, task in zip(ids, get(connection, ids), strict=True) if task is not None}


def _answer(there: Task | CorruptRecord, outcome: Literal["id_exists", "key_held"]) -> Submitted | QoError:
    return Submitted(there, outcome) if isinstance(there, Task) else there


def _finish_submit(connection: sqlite3.Connection, tasks: Sequence[Task]) -> None:
    """What belongs to tasks that were just inserted: large inputs, keys and counters."""
    count(connection, Counter((task.queue, task.type, task.priority, task.state) for task in tasks))
    for task in tasks:
        if (text := raw_text(task.raw_input)) is not None and len(text) > LARGE:
            connection.execute("INSERT INTO qo_inputs SELECT pk, ? FROM qo_tasks WHERE id = ?", (text, task.id))
        if task.key is not None and task.key_until is not None:
            row = (task.queue, task.key, task.id, micros(task.key_until))
            connection.execute("INSERT OR REPLACE INTO qo_keys (queue, key, task_id, until) VALUES (?, ?, ?, ?)", row)


# Amend and purge.


def amend(connection: sqlite3.Connection, amendments: Sequence[Amendment], now: int) -> list[Amended | QoError]:
    """Each if its version still holds."""
    return [_amend_one(connection, amendment, now) for amendment in amendments]


def _amend_one(connection: sqlite3.Connection, amendment: Amendment, now: int) -> Amended:
    if amendment.delete:
        where = "id = ? AND version = ?"
        return "written" if _delete(connection, where, (amendment.id, amendment.version)) else "changed"
    available_at = micros(amendment.available_at)
    values = {
        **msgspec.structs.asdict(amendment),
        "at": micros(amendment.at),
        "ready": amendment.state == "pending" and available_at <= now,
        "available_at": available_at,
        "scheduled_at": micros(amendment.scheduled_at),
        "completed_at": None if amendment.completed_at is None else micros(amendment.completed_at),
        "error": error_text(amendment.error),
        "output": raw_text(amendment.raw_output),
    }
    del values["raw_output"], values["delete"]
    if not connection.execute(sql("amend"), values).rowcount:
        return "changed"
    connection.execute(sql("amend_history"), values)
    if amendment.state != amendment.was:
        kind = connection.execute("SELECT queue, type, priority FROM qo_tasks WHERE id = ?", (amendment.id,)).fetchone()
        count(connection, Counter({(*kind, amendment.was): -1, (*kind, amendment.state): 1}))
    return "written"


def purge(connection: sqlite3.Connection, where: str, parameters: Sequence[object], limit: int) -> int:
    """Delete ended tasks that match, the oldest end first."""
    chosen = (
        f"pk IN (SELECT pk FROM qo_tasks WHERE {where} AND completed_at IS NOT NULL ORDER BY completed_at, id LIMIT ?)"
    )
    return _delete(connection, chosen, (*parameters, limit))


def _delete(connection: sqlite3.Connection, where: str, parameters: Sequence[object]) -> int:
    """Remove tasks and all that belongs to them."""
    rows = connection.execute(f"SELECT pk FROM qo_tasks WHERE {where}", parameters).fetchall()
    if not rows:
        return 0
    pks = (to_json([pk for (pk,) in rows]),)
    these = "(SELECT value FROM json_each(?))"
    gone = connection.execute(
        f"SELECT queue, type, priority, state, -count(*) FROM qo_tasks WHERE pk IN {these} GROUP BY 1, 2, 3, 4", pks
    ).fetchall()
    count(connection, Counter({tuple(kind): n for *kind, n in gone}))
    connection.execute(
        f"""DELETE FROM qo_keys WHERE (queue, key, task_id) IN
        (SELECT queue, key, id FROM qo_tasks WHERE pk IN {these} AND key IS NOT NULL)""",
        pks,
    )
    connection.execute(f"DELETE FROM qo_history WHERE task IN {these}", pks)
    connection.execute(f"DELETE FROM qo_inputs WHERE task IN {these}", pks)
    connection.execute(f"DELETE FROM qo_tasks WHERE pk IN {these}", pks)
    return len(rows)


def drop_leases(connection: sqlite3.Connection, workers: Sequence[str], seen: int, now: int) -> None:
    """Let the leases of workers that are certainly gone run out now. Index: qo_tasks_lease.

    They were seen gone at `seen`: what was claimed later is that of a new worker with an old name.
    """
    connection.execute(
        """UPDATE qo_tasks SET lease_expires_at = ?
        WHERE lease_id IS NOT NULL AND lease_expires_at > ? AND started_at <= ?
        AND worker_id IN (SELECT value FROM json_each(?))""",
        (now, now, seen, to_json(workers)),
    )


# Small records.


def put_record(
    connection: sqlite3.Connection, kind: Kind, key: str, value: msgspec.Raw, version: int, now: int
) -> Record | None:
    """Write it if its version is still the one given; None when it is not."""
    row = connection.execute("SELECT version FROM qo_records WHERE kind = ? AND key = ?", (kind, key)).fetchone()
    known: int = row[0] if row else 0
    if version not in (ANY_VERSION, known):
        return None
    connection.execute(
        "INSERT OR REPLACE INTO qo_records (kind, key, value, version, updated_at) VALUES (?, ?, ?, ?, ?)",
        (kind, key, bytes(value).decode(), known + 1, now),
    )
    return Record(kind=kind, key=key, value=value, version=known + 1, updated_at=from_micros(now))


def delete_record(connection: sqlite3.Connection, kind: Kind, key: str) -> bool:
    """Remove it; False when it was not there."""
    return connection.execute("DELETE FROM qo_records WHERE kind = ? AND key = ?", (kind, key)).rowcount > 0

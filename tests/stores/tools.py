"""What the tests of the SQLite store share: opening, making tasks, looking into the file."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any

from qo import lifecycle
from qo.changes import Lease, Settlement
from qo.clock import SYSTEM, Clock
from qo.outcomes import Returned
from qo.stores.protocol import Want
from qo.stores.sqlite.connection import Synchronous
from qo.stores.sqlite.store import SqliteStore
from qo.task import Task
from qo.values import NULL, encode_value


@asynccontextmanager
async def opened(
    path: str | Path, *, synchronous: Synchronous = "NORMAL", clock: Clock = SYSTEM
) -> AsyncIterator[SqliteStore]:
    """A store on that file, closed at the end."""
    store = SqliteStore(path, synchronous=synchronous, clock=clock)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def task(type: str = "job", *, input: object = None, delay: float | None = None, **options: Any) -> Task:
    """A new task; `delay` seconds from now, negative for one that was due long ago."""
    now = SYSTEM.now()
    if delay is not None and delay < 0:
        now += timedelta(seconds=delay)
    elif delay is not None:
        options["run_after"] = now + timedelta(seconds=delay)
    options.setdefault("id", SYSTEM.new_id())
    return lifecycle.submit(type=type, now=now, input=encode_value(input), **options)


def want(limit: int = 1, *, ttl: float = 3600.0, worker: str = "w", **options: Any) -> Want:
    """What a worker asks for, under a new lease."""
    return Want(worker_id=worker, lease_id=SYSTEM.new_id(), limit=limit, ttl=ttl, **options)


def completed(task: Task, output: object = None) -> Settlement:
    return lifecycle.settle(task, Returned(NULL if output is None else encode_value(output)), SYSTEM.now(), 0.5)


def lease(task: Task, progress: object = ...) -> Lease:
    assert task.lease_id is not None
    raw = None if progress is ... else bytes(encode_value(progress))
    return Lease(id=task.id, lease_id=task.lease_id, attempt=task.attempt, raw_progress=raw)


def rows(path: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """What another program sees in the file."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement, values).fetchall()


async def on_writer(store: SqliteStore, work: Callable[[sqlite3.Connection], Any]) -> Any:
    """Run something on the connection that writes."""
    assert store._writer is not None
    return await store._writer.run(work)


def check_file(path: Path) -> None:
    """The file is sound, the counters tell the truth, and no task is half-written."""
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    counted = rows(path, "SELECT queue, type, priority, state, count(*) FROM qo_tasks GROUP BY 1, 2, 3, 4")
    assert sorted(rows(path, "SELECT queue, type, priority, state, n FROM qo_counts WHERE n <> 0")) == sorted(counted)
    broken = {
        "running without a lease": "state = 'running' AND (lease_id IS NULL OR lease_expires_at IS NULL)",
        "leased without running": "state <> 'running' AND (lease_id IS NOT NULL OR lease_expires_at IS NOT NULL)",
        "ended without a time": "state IN ('completed', 'failed', 'cancelled') AND completed_at IS NULL",
        "not pending but ready": "state <> 'pending' AND ready = 1",
        "a first line of history is missing": "NOT EXISTS (SELECT 1 FROM qo_history WHERE task = pk AND version = 1)",
        # The claim of what runs now is in the task itself.
        "history ends elsewhere": """iif(state = 'running' AND NOT cancel_requested, 'pending', state) <> (
            SELECT became FROM qo_history WHERE task = pk ORDER BY version DESC LIMIT 1)""",
        "an attempt without its line": """attempt <> (state = 'running') + (
            SELECT count(*) FROM qo_history WHERE task = pk AND claimed_at IS NOT NULL)""",
        "an input is nowhere": """input IS NULL AND id LIKE '%' AND type = 'large'
            AND NOT EXISTS (SELECT 1 FROM qo_inputs WHERE task = pk)""",
    }
    for what, where in broken.items():
        assert rows(path, f"SELECT id FROM qo_tasks WHERE {where}") == [], what
    for table, column in (("qo_history", "task"), ("qo_inputs", "task")):
        assert rows(path, f"SELECT * FROM {table} WHERE {column} NOT IN (SELECT pk FROM qo_tasks)") == []
    gaps = """SELECT task FROM (
        SELECT task, was, claimed_at, lag(became) OVER (PARTITION BY task ORDER BY version) AS before FROM qo_history)
        WHERE was IS NOT before AND NOT (was = 'running' AND before = 'pending')"""
    assert rows(path, gaps) == [], "a line of history does not continue the one before"

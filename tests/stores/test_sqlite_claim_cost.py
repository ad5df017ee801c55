"""What a claim costs, counted in steps of SQLite's machine: many lanes, many tasks, many that are due at once."""

import sqlite3
from datetime import timedelta
from pathlib import Path

from tests.stores.tools import check_file, completed, on_writer, opened, rows, task, want

from qo.clock import SYSTEM, micros
from qo.stores.protocol import Claimed, Want
from qo.stores.sqlite.claiming import PROMOTE_AT_ONCE
from qo.stores.sqlite.store import SqliteStore
from qo.task import Task

MINE = frozenset({"mine"})

# Copies of one stored task, made inside SQLite: :n of them, shifted as {changes} says.
COPIES = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :n)
INSERT INTO qo_tasks (id, queue, type, requires, state, ready, priority, rank, created_at, scheduled_at, available_at,
    updated_at, completed_at, max_retries, timeout, retry, tags, version, input)
SELECT lower(hex(randomblob(16))), queue, {type}, requires, {state}, {ready}, priority, {rank}, created_at,
    scheduled_at, {available_at}, updated_at, {completed_at}, max_retries, timeout, retry, tags, version, input
FROM n, qo_tasks WHERE id = :id
"""


def copies(connection: sqlite3.Connection, like: Task, n: int, **changes: str) -> None:
    parts = {"type": "type", "state": "state", "ready": "1", "rank": "rank + i", "available_at": "available_at"}
    connection.execute(COPIES.format(**{**parts, "completed_at": "NULL", **changes}), {"n": n, "id": like.id})


class Steps:
    """Counts the steps of the writer's machine, in tens."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return 0


async def cost(store: SqliteStore, wanted: Want) -> tuple[int, Claimed]:
    """Steps of one claim, and what it claimed."""
    steps = Steps()
    await on_writer(store, lambda connection: connection.set_progress_handler(steps, 10))
    claimed = await store.claim(wanted)
    await on_writer(store, lambda connection: connection.set_progress_handler(None, 0))
    return steps.count, claimed


async def with_mine(store: SqliteStore) -> Task:
    """100 tasks this worker can run, one lane; the first of them."""
    tasks = [task("mine") for _ in range(100)]
    await store.submit(tasks)
    return tasks[0]


async def test_cost_does_not_depend_on_what_else_is_there(tmp_path: Path) -> None:
    """With 140,000 tasks pending elsewhere, delayed, backing off or done, a claim takes as many steps as with 100."""
    later = micros(SYSTEM.now() + timedelta(hours=1))
    async with opened(tmp_path / "small.db") as small, opened(tmp_path / "large.db") as large:
        await with_mine(small)
        first = await with_mine(large)

        def fill(connection: sqlite3.Connection) -> None:
            # The older ranks would all come first, if the claim looked at them.
            copies(connection, first, 50_000, type="'other' || (i % 50)", rank="rank - i")
            copies(connection, first, 20_000, ready="0", available_at=f"{later} + i")
            copies(connection, first, 20_000, ready="0", available_at=f"{later} + i", rank="rank - 1000000000 - i")
            copies(connection, first, 50_000, state="'completed'", ready="0", completed_at="updated_at")

        await on_writer(large, fill)
        for limit in (1, 10, 50):
            few, claimed = await cost(small, want(limit, types=MINE))
            many, claimed_too = await cost(large, want(limit, types=MINE))
            assert len(claimed.tasks) == len(claimed_too.tasks) == limit
            assert claimed_too.next_due is not None
            # The rows themselves are the same; what remains is the delayed lane that the small file does not have.
            assert many <= 1.5 * few + 100, f"{limit} of many: {many}0 steps, of few: {few}0"
        # Nothing left: the worker that finds nothing must not go through the rest either.
        for store in (small, large):
            await store.claim(want(100, types=MINE))
        few, nothing = await cost(small, want(10, types=MINE))
        many, nothing_too = await cost(large, want(10, types=MINE))
        assert nothing.tasks == nothing_too.tasks == []
        assert many <= 1.5 * few + 100


async def test_a_thousand_lanes(tmp_path: Path) -> None:
    """A worker of any type with 1,000 live lanes gets the first by rank, at a few steps a lane."""
    async with opened(tmp_path / "qo.db") as store:
        tasks = [task(f"t{n % 250}", requires=["gpu"] if n // 250 % 2 else [], delay=-2000.0 + n) for n in range(2000)]
        tasks += [task(f"t{n % 250}", queue="q2", requires=[f"c{n // 250}"], delay=-5000.0 + n) for n in range(500)]
        await store.submit(tasks)
        everything = {"queues": ("default", "q2"), "capabilities": frozenset({"gpu", "c0", "c1"})}
        steps, claimed = await cost(store, want(50, **everything))
        in_order = sorted(tasks, key=lambda each: (each.rank, each.id))
        assert [each.id for each in claimed.tasks] == [each.id for each in in_order[:50]]
        steps, claimed = await cost(store, want(1, **everything))
        assert [each.id for each in claimed.tasks] == [in_order[50].id]
        assert steps * 10 / 1000 < 300, "steps a lane"
        got = [each.id for each in claimed.tasks]
        while more := (await store.claim(want(500, **everything))).tasks:
            got += [each.id for each in more]
        assert got == [each.id for each in in_order[50:]]


async def test_rooms_by_type(tmp_path: Path) -> None:
    """Full types are passed over, however many of their tasks stand before the others."""
    async with opened(tmp_path / "qo.db") as store:
        early = [task("narrow", delay=-3000.0 + n) for n in range(300)]
        middle = [task("closed", delay=-2000.0 + n) for n in range(10)]
        late = [task("wide", delay=-1000.0 + n) for n in range(300)]
        await store.submit([*early, *middle, *late])
        claimed = await store.claim(want(50, room={"narrow": 3, "closed": 0}))
        assert [each.id for each in claimed.tasks] == [each.id for each in [*early[:3], *late[:47]]]
        claimed = await store.claim(want(1000, room={"narrow": 5, "wide": 2, "closed": 1}))
        assert sorted(each.type for each in claimed.tasks) == ["closed"] + ["narrow"] * 5 + ["wide"] * 2
        assert (await store.claim(want(10, room={"narrow": 0, "wide": 0, "closed": 0}))).tasks == []


async def test_queue_named_twice_is_one_queue(tmp_path: Path) -> None:
    """A worker that names a queue twice gets as many tasks as one that names it once, each of them once."""
    async with opened(tmp_path / "qo.db") as store:
        await store.submit([task() for _ in range(10)])
        claimed = await store.claim(want(6, queues=("default", "default"), room={"job": 6}))
        assert len({each.id for each in claimed.tasks}) == len(claimed.tasks) == 6


async def test_promotion_is_bounded(tmp_path: Path) -> None:
    """One claim moves at most 1,000 due tasks; next_due lies in the past while more are due; all come in the end."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        (like,) = [task(delay=3600.0)]
        await store.submit([like])
        past = micros(SYSTEM.now()) - 10_000_000_000

        def fill(connection: sqlite3.Connection) -> None:
            copies(connection, like, 2500, ready="0", available_at=f"{past} + i")
            connection.execute("UPDATE qo_counts SET n = n + 2500")
            connection.execute(
                """INSERT INTO qo_history (task, version, at, became, attempt)
                SELECT pk, 1, 0, 'pending', 0 FROM qo_tasks WHERE id <> ?""",
                (like.id,),
            )

        await on_writer(store, fill)
        got: set[str] = set()
        for left in (1500, 500, 0):
            claimed = await store.claim(want(100))
            got |= {each.id for each in claimed.tasks}
            assert claimed.next_due is not None
            assert (claimed.next_due < store.now()) == (left > 0)
            assert rows(path, "SELECT count(*) FROM qo_tasks WHERE ready = 0 AND state = 'pending'") == [(left + 1,)]
        assert PROMOTE_AT_ONCE == 1000
        while claimed := (await store.claim(want(500))).tasks:
            got |= {each.id for each in claimed}
            await store.settle([completed(each) for each in claimed])
        assert len(got) == 2500
    check_file(path)


async def test_claim_too_long_for_one_text(tmp_path: Path) -> None:
    """Tasks that are together longer than SQLite allows a text to be are claimed all the same."""
    async with opened(tmp_path / "qo.db") as store:
        await store.submit([task(input="x" * 60_000) for _ in range(5)])
        await on_writer(store, lambda connection: connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 200_000))
        claimed = await store.claim(want(5))
        assert [len(each.input) for each in claimed.tasks] == [60_000] * 5

"""A store's life: pragmas, opening and closing, an application's own file, reading beside writing, a busy loop."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.stores.tools import check_file, completed, on_writer, opened, rows, task, want

from qo.errors import Unavailable
from qo.records import Controls, encode_record
from qo.stores.protocol import Filter, Submitted
from qo.stores.sqlite.connection import Synchronous
from qo.stores.sqlite.store import SqliteStore
from qo.task import Task


def files(folder: Path) -> list[str]:
    """Everything in it, by name."""
    return sorted(each.name for each in folder.rglob("*"))


async def uses(store: SqliteStore) -> list[Any]:
    """Every verb of the contract that needs the file."""
    calls = [
        store.submit([task()]),
        store.claim(want()),
        store.renew([], 1),
        store.settle([]),
        store.amend([]),
        store.expired(1),
        store.purge(Filter(), 1),
        store.wait(0),
        store.attach("w"),
        store.get([]),
        store.find(Filter()),
        store.history("x"),
        store.stats("default"),
        store.records("worker"),
        store.put_record("control", "default", encode_record(Controls())),
        store.delete_record("control", "default"),
    ]
    return await asyncio.gather(*calls, return_exceptions=True)


# Settings of the file.


@pytest.mark.parametrize(("synchronous", "number"), [("NORMAL", 1), ("FULL", 2)])
async def test_synchronous_is_really_set(tmp_path: Path, synchronous: Synchronous, number: int) -> None:
    """The connection that writes has the setting that was asked for, and the file is in WAL mode."""
    async with opened(tmp_path / "qo.db", synchronous=synchronous) as store:
        assert await on_writer(store, lambda c: c.execute("PRAGMA synchronous").fetchone()) == (number,)
        assert await on_writer(store, lambda c: c.execute("PRAGMA journal_mode").fetchone()) == ("wal",)


async def test_readers_cannot_write(tmp_path: Path) -> None:
    """The connections that read refuse to write."""
    async with opened(tmp_path / "qo.db") as store:
        with pytest.raises(Unavailable, match="readonly"):
            await store._read(lambda connection, now: connection.execute("DELETE FROM qo_tasks"))


# Opening and closing.


async def test_open_again_after_close(tmp_path: Path) -> None:
    """A closed store can be opened again and finds what it wrote; a file is left without a log."""
    path = tmp_path / "qo.db"
    store = SqliteStore(path)
    for count in range(1, 4):
        await store.open()
        await store.attach("w")
        await store.wait(0)
        assert isinstance((await store.submit([task()]))[0], Submitted)
        assert len((await store.find(Filter())).tasks) == count
        await store.close()
        assert {"qo.db-wal", "qo.db-shm"}.isdisjoint(files(tmp_path))
    check_file(path)


@pytest.mark.parametrize("state", ["never opened", "closed"])
async def test_unusable_unless_open(tmp_path: Path, state: str) -> None:
    """Before open and after close every verb is Unavailable, and nothing is created."""
    store = SqliteStore(tmp_path / "qo.db")
    if state == "closed":
        await store.open()
        await store.close()
    before = files(tmp_path)
    answers = await uses(store)
    assert [type(answer) for answer in answers] == [Unavailable] * len(answers)
    assert all("not open" in str(answer) for answer in answers)
    assert files(tmp_path) == before
    await store.close()


async def test_closing_twice_and_at_once(tmp_path: Path) -> None:
    """Closing is safe to repeat, and whoever closes returns only when the store is closed; calls under way end well."""
    before = threading.active_count()
    store = SqliteStore(tmp_path / "qo.db")
    await store.open()
    calls = asyncio.gather(*(store.submit([task()]) for _ in range(100)))
    reads = asyncio.gather(*(store.find(Filter()) for _ in range(5)))
    await asyncio.sleep(0)
    closing_calls = [asyncio.create_task(store.close()) for _ in range(3)]
    await asyncio.wait(closing_calls, return_when=asyncio.FIRST_COMPLETED)
    assert store._writer is not None and not store._writer._thread.is_alive()
    await asyncio.gather(*closing_calls)
    await store.close()
    assert len(await calls) == 100 and len(await reads) == 5
    assert rows(tmp_path / "qo.db", "SELECT count(*) FROM qo_tasks") == [(100,)]
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith("qo-sqlite") for name in names), before


async def test_cancelled_caller(tmp_path: Path) -> None:
    """A caller that is cancelled leaves its call to be finished and the others alone."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        calls = [asyncio.create_task(store.submit([task()])) for _ in range(3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers[1], asyncio.CancelledError)
    assert rows(path, "SELECT count(*) FROM qo_tasks") == [(3,)]


# An application's own file.


async def test_inside_an_application_s_file(tmp_path: Path) -> None:
    """A queue lives beside other tables, which stay as they are; a crowd of names and settings does not clash."""
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 42")
        connection.execute("PRAGMA application_id = 7")
        connection.execute("CREATE TABLE tasks (id INTEGER PRIMARY KEY, title TEXT)")
        connection.execute("CREATE TABLE meta (name TEXT)")
        connection.execute("INSERT INTO tasks (title) VALUES ('wash up')")
    with closing(sqlite3.connect(path, timeout=30)) as application:
        assert application.execute("SELECT count(*) FROM tasks").fetchone() == (1,)
        async with opened(path) as store:
            await store.submit([task()])
            application.execute("INSERT INTO tasks (title) VALUES ('dry up')")
            assert (await store.stats("default")).pending == 1  # its open transaction does not stop a read
            application.commit()
            (held,) = (await store.claim(want())).tasks
            assert await store.settle([completed(held)]) == ["written"]
            assert application.execute("SELECT count(*) FROM qo_tasks").fetchone() == (1,)
    assert rows(path, "SELECT title FROM tasks ORDER BY id") == [("wash up",), ("dry up",)]
    assert rows(path, "PRAGMA user_version") == [(42,)] and rows(path, "PRAGMA application_id") == [(7,)]
    ours = rows(path, "SELECT name FROM sqlite_master WHERE name NOT IN ('tasks', 'meta')")
    assert all(name.startswith(("qo_", "sqlite_autoindex_qo_")) for (name,) in ours)
    check_file(path)


async def test_application_with_foreign_keys_and_triggers_of_its_own(tmp_path: Path) -> None:
    """A trigger that an application puts on the queue's tables runs in the same transaction."""
    path = tmp_path / "app.db"
    async with opened(path) as store:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE log (id TEXT)")
            connection.execute(
                "CREATE TRIGGER app_log AFTER INSERT ON qo_tasks BEGIN INSERT INTO log VALUES (new.id); END"
            )
        tasks = [task(), task()]
        assert [isinstance(answer, Submitted) for answer in await store.submit(tasks)] == [True, True]
        assert rows(path, "SELECT id FROM log ORDER BY id") == [(each.id,) for each in tasks]


# Reading beside writing, and a busy loop.


async def test_long_read_blocks_no_write(tmp_path: Path) -> None:
    """While a read goes on for as long as it likes, tasks are submitted, claimed and settled."""
    async with opened(tmp_path / "qo.db") as store:
        started, finish = threading.Event(), threading.Event()

        def long_read(connection: sqlite3.Connection, now: int) -> int:
            cursor = connection.execute("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, "
                                        "(SELECT count(*) FROM qo_tasks) FROM n")  # fmt: skip
            first = cursor.fetchone()[1]
            started.set()
            assert finish.wait(60)
            return first

        read = asyncio.create_task(store._read(long_read))
        await asyncio.to_thread(started.wait, 60)
        for _ in range(20):
            await store.submit([task()])
            (held,) = (await store.claim(want())).tasks
            assert await store.settle([completed(held)]) == ["written"]
        assert not read.done()
        assert len((await store.find(Filter())).tasks) == 20  # the other reader is free
        finish.set()
        assert await read == 0


async def executed(store: SqliteStore, work: Any) -> int:
    """How many statements the writer runs for a piece of work."""
    statements: list[str] = []
    await on_writer(store, lambda c: c.set_trace_callback(statements.append))
    await work
    count = len([text for text in statements if not text.startswith("--")])
    await on_writer(store, lambda c: c.set_trace_callback(None))
    return count


async def test_statements_of_a_batch_are_few(tmp_path: Path) -> None:
    """A batch of 100 takes a fixed number of statements: each gives up Python's lock, which a busy loop keeps for
    milliseconds."""
    async with opened(tmp_path / "qo.db") as store:
        counts: dict[str, list[int]] = {"submit": [], "claim": [], "renew": [], "settle": []}
        for size in (10, 100):
            counts["submit"].append(await executed(store, store.submit([task() for _ in range(size)])))
            wanted = want(size)
            counts["claim"].append(await executed(store, store.claim(wanted)))
            held = (await store.claim(wanted)).tasks
            assert len(held) == size
            counts["settle"].append(await executed(store, store.settle([completed(each) for each in held])))
        # Pieces of 128, 32, 8, 2 and 1 rows; one statement or a few for each.
        assert counts["submit"][1] <= 16, counts
        assert counts["claim"][1] <= 20 and counts["claim"][1] == counts["claim"][0], counts
        assert counts["settle"][1] <= 40, counts


async def test_writer_works_while_the_loop_computes(tmp_path: Path) -> None:
    """A loop that never gives way does not stop the writer: what was asked for is committed all the same."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        tasks = [task() for _ in range(100)]
        call = asyncio.ensure_future(store.submit(tasks))
        await asyncio.sleep(0)
        with closing(sqlite3.connect(path)) as watcher:
            while not watcher.execute("SELECT count(*) FROM qo_tasks").fetchone()[0]:
                sum(range(1000))  # this thread holds the loop; only the writer can bring the end
        assert not call.done()
        assert all(isinstance(answer, Submitted) for answer in await call)


async def test_reads_see_what_was_answered(tmp_path: Path) -> None:
    """A read that starts after an answer sees what was answered, on every reader."""
    async with opened(tmp_path / "qo.db") as store, opened(tmp_path / "qo.db") as other:
        for _ in range(50):
            one = task()
            await store.submit([one])
            found = await asyncio.gather(*(each.get([one.id]) for each in (store, other) * 2))
            assert all(isinstance(each, Task) for (each,) in found)

"""What can be wrong with a file, a folder or a disk: a clear error, nothing lost, and work goes on afterwards."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.stores.processes import Child, children
from tests.stores.tools import check_file, on_writer, opened, rows, task

from qo.commit import GroupCommit
from qo.errors import ConfigError, Contention, QoError, SchemaMismatch, StoreError, Unavailable
from qo.stores.protocol import Filter, Submitted
from qo.stores.sqlite import connection as connection_module
from qo.stores.sqlite.store import SqliteStore


async def fails_to_open(path: Path, error: type[QoError], message: str) -> QoError:
    """Opening fails so, leaves no thread behind, and closing is safe."""
    store = SqliteStore(path)
    with pytest.raises(error, match=message) as caught:
        await asyncio.wait_for(store.open(), 30)
    with pytest.raises(Unavailable):
        await store.submit([task()])
    with pytest.raises(Unavailable):
        await store.get(["x"])
    await store.close()
    return caught.value


async def test_newer_schema_is_refused(tmp_path: Path) -> None:
    """A file that a newer qo wrote is left alone, and the message says what to do."""
    path = tmp_path / "qo.db"
    async with opened(path):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE qo_meta SET value = '99' WHERE name = 'schema'")
    await fails_to_open(path, SchemaMismatch, "schema 99, this qo knows up to 1: upgrade qo")


async def test_no_database_is_refused(tmp_path: Path) -> None:
    """A file that is something else is left as it was."""
    path = tmp_path / "notes.txt"
    text = b"these are my notes, not a database\n" * 200
    path.write_bytes(text)
    error = await fails_to_open(path, StoreError, "not a database")
    assert not isinstance(error, Unavailable)
    assert isinstance(error.__cause__, sqlite3.DatabaseError)
    assert path.read_bytes() == text


async def test_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    """A folder is no file."""
    (tmp_path / "qo.db").mkdir()
    await fails_to_open(tmp_path / "qo.db", Unavailable, "unable to open")


async def test_missing_folder_is_named(tmp_path: Path) -> None:
    """The message names the folder that is not there; nothing is created."""
    await fails_to_open(tmp_path / "missing" / "qo.db", Unavailable, f"no folder {tmp_path / 'missing'}")
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - iterdir in a coroutine is refused too


async def test_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too old a SQLite is a clear error, not a silent thread."""
    monkeypatch.setattr(connection_module, "OLDEST", (99, 0, 0))
    await fails_to_open(tmp_path / "qo.db", ConfigError, "too old, qo needs 99.0.0")


async def test_open_again_after_a_failure(tmp_path: Path) -> None:
    """The same store object can be opened when what was wrong is mended."""
    store = SqliteStore(tmp_path / "later" / "qo.db")
    with pytest.raises(Unavailable):
        await store.open()
    (tmp_path / "later").mkdir()
    await store.open()
    assert len(await store.submit([task()])) == 1
    await store.close()


def as_ordinary_user() -> list[str]:
    """What a command is to be prefixed with so that permissions hold for it: root may write anything."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("runs as root, and there is no setpriv to give that up")
    return [setpriv, "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]


@pytest.mark.parametrize("what", ["file", "folder"])
async def test_read_only_is_refused(tmp_path: Path, what: str) -> None:
    """A file or folder that may not be written is Unavailable, and says so."""
    folder = tmp_path / "place"
    folder.mkdir()
    path = folder / "qo.db"
    if what == "file":
        async with opened(path):
            pass
        path.chmod(0o444)
    else:
        folder.chmod(0o555)
    try:
        with children(Child("try_to_open", path, prefix=as_ordinary_user())) as (child,):
            assert child.line().startswith("Unavailable: the SQLite file cannot be used: ")
            assert child.end() == 0
    finally:
        folder.chmod(0o755)


async def test_full_disk(tmp_path: Path) -> None:
    """A disk that is full is told to the callers who met it; nothing acknowledged is lost, and it works again later."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        group = GroupCommit(store)
        first = [(await group.submit(task())).task.id for _ in range(5)]
        (pages,) = await on_writer(store, lambda c: c.execute("PRAGMA page_count").fetchone())
        await on_writer(store, lambda c: c.execute(f"PRAGMA max_page_count = {pages + 2}").fetchone())
        big = [task(input="x" * 50_000) for _ in range(8)]
        answers = await asyncio.gather(*(group.submit(each) for each in big), return_exceptions=True)
        assert all(isinstance(answer, Unavailable) and "full" in str(answer) for answer in answers)
        assert len((await store.find(Filter())).tasks) == 5
        await on_writer(store, lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone())
        for answer in await asyncio.gather(*(group.submit(each) for each in big)):
            assert answer.outcome == "created"
        await group.close()
    assert {id for (id,) in rows(path, "SELECT id FROM qo_tasks")} == {*first, *(each.id for each in big)}
    check_file(path)


async def test_one_job_too_many_for_the_disk(tmp_path: Path) -> None:
    """Calls that share a transaction do not share its failure: those that fit are written."""
    async with opened(tmp_path / "qo.db") as store:
        (pages,) = await on_writer(store, lambda c: c.execute("PRAGMA page_count").fetchone())
        await on_writer(store, lambda c: c.execute(f"PRAGMA max_page_count = {pages + 20}").fetchone())
        small, huge = task(), task(input="x" * 1_000_000)
        answers = await asyncio.gather(
            store.submit([small]), store.submit([huge]), store.submit([task()]), return_exceptions=True
        )
        assert [isinstance(answer, Unavailable) for answer in answers] == [False, True, False]
        assert await store.get([huge.id]) == [None]
    check_file(tmp_path / "qo.db")


async def test_foreign_lock_is_waited_for(tmp_path: Path) -> None:
    """A program that holds SQLite's write lock delays the callers; when it lets go they are served."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        foreign = sqlite3.connect(path, isolation_level=None)
        with closing(foreign):
            foreign.execute("BEGIN IMMEDIATE")
            callers = [asyncio.create_task(store.submit([task()])) for _ in range(3)]
            assert await store.find(Filter()) is not None  # reading goes on
            assert not any(caller.done() for caller in callers)
            foreign.execute("COMMIT")
        answers = [answer for caller in callers for answer in await caller]
        assert all(isinstance(answer, Submitted) for answer in answers)


async def test_foreign_lock_that_stays_is_contention_for_all(tmp_path: Path) -> None:
    """When it does not let go, all who wait hear of it after one busy timeout, not one by one; then it works."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        begun: list[str] = []

        def prepare(connection: sqlite3.Connection) -> None:
            connection.execute("PRAGMA busy_timeout = 20")
            connection.set_trace_callback(lambda text: begun.append(text) if text.startswith("BEGIN") else None)

        await on_writer(store, prepare)
        with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            answers = await asyncio.gather(*(store.submit([task()]) for _ in range(30)), return_exceptions=True)
            assert all(isinstance(answer, Contention) and "locked" in str(answer) for answer in answers)
            assert len(begun) <= 3
            foreign.execute("COMMIT")
        assert len(await store.submit([task()])) == 1
    check_file(path)


async def test_reading_errors_keep_their_cause(tmp_path: Path) -> None:
    """An error of a read is translated and names the driver's error as its cause."""
    async with opened(tmp_path / "qo.db") as store:
        await on_writer(store, lambda c: c.execute("DROP TABLE qo_history"))
        with pytest.raises(StoreError) as caught:
            await store.history("x")
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
        with pytest.raises(StoreError) as caught:
            await store.submit([task()])
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)

"""wait(): who is woken, by whom, and what is left of those who were killed."""

import asyncio
import os
from pathlib import Path

import pytest
from tests.stores.processes import Child, children
from tests.stores.tools import opened, task, want

from qo.errors import Unavailable
from qo.stores.sqlite.presence import Presence
from qo.stores.sqlite.store import SqliteStore

HOUR = 3600.0


def pipes(path: Path) -> set[str]:
    folder = Path(f"{path}-run")
    return {each.name for each in folder.iterdir() if each.suffix == ".wake"} if folder.is_dir() else set()


def left(path: Path) -> list[str]:
    """What stands in the folder beside the file."""
    return sorted(each.name for each in Path(f"{path}-run").iterdir())


async def woken(*waits: "asyncio.Task[None]") -> None:
    """All of them end; a lost wake-up would take an hour."""
    await asyncio.wait_for(asyncio.gather(*waits), 60)


def waiting(store: SqliteStore, count: int = 1) -> list["asyncio.Task[None]"]:
    return [asyncio.create_task(store.wait(HOUR)) for _ in range(count)]


async def settled_in(store: SqliteStore, count: int) -> None:
    """Until that many wait on the store's pipe."""
    while len(store._presence.waiting) < count:  # noqa: ASYNC110 - the store has no event for it
        await asyncio.sleep(0)


async def test_woken_by_another_process(tmp_path: Path) -> None:
    """A submit in another process ends the wait, again and again."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        with children(Child("submit_on_order", path)) as (child,):
            assert child.line() == "ready"
            for _ in range(3):
                assert (await store.claim(want())).tasks == []
                waits = waiting(store)
                await settled_in(store, 1)
                child.tell()
                await woken(*waits)
                (held,) = (await store.claim(want())).tasks
                assert held.id == child.line()


async def test_work_between_claim_and_wait_is_not_missed(tmp_path: Path) -> None:
    """A submit after an empty claim and before the wait ends that wait, also the very first one."""
    path = tmp_path / "qo.db"
    async with opened(path) as store, opened(path) as other:
        for _ in range(3):
            assert (await store.claim(want())).tasks == []
            await other.submit([task()])
            await woken(*waiting(store))
            assert len((await store.claim(want())).tasks) == 1
            while store._presence.heard():
                pass


async def test_all_waits_of_one_store_are_woken(tmp_path: Path) -> None:
    """Several waits on one store: one submit ends all of them."""
    path = tmp_path / "qo.db"
    async with opened(path) as store, opened(path) as other:
        waits = waiting(store, 5)
        await settled_in(store, 5)
        await other.submit([task()])
        await woken(*waits)


async def test_a_new_wait_does_not_take_the_wakeup_of_others(tmp_path: Path) -> None:
    """A wait that finds the pipe full hands the news on to those who waited before it."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        waits = waiting(store, 2)
        await settled_in(store, 2)
        store._presence.wake_all()
        # Runs before the loop looks at the pipe, and empties it.
        await store.wait(HOUR)
        await woken(*waits)


async def test_waits_end_one_by_one(tmp_path: Path) -> None:
    """A wait that times out or is cancelled does not deafen the others."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        stays, leaves = waiting(store, 2)
        await settled_in(store, 2)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        await store.wait(0)
        await store.submit([task()])
        await woken(stays)
        assert not store._presence.waiting


async def test_close_ends_waits_and_removes_the_pipe(tmp_path: Path) -> None:
    """Closing a store ends its waits at once and leaves nothing in the folder."""
    path = tmp_path / "qo.db"
    store = SqliteStore(path)
    await store.open()
    waits = waiting(store, 2)
    await settled_in(store, 2)
    await store.close()
    await woken(*waits)
    assert left(path) == []
    with pytest.raises(Unavailable):
        await store.wait(0)
    assert left(path) == []


async def test_pipes_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """The pipe of a process that was killed is removed by the next who writes; those of the living stay."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        await store.wait(0)
        mine = pipes(path)
        with children(*(Child("wait_for_ever", path) for _ in range(2))) as (dead, living):
            assert dead.line() == living.line() == "ready"
            assert len(pipes(path)) == 3
            dead.kill()
            await store.submit([task()])
            assert len(pipes(path)) == 2 and mine < pipes(path)
            living.kill()
            await store.submit([task()])
            assert pipes(path) == mine


async def test_full_pipe_does_not_block(tmp_path: Path) -> None:
    """Somebody who never reads its pipe holds up nobody."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        pipe = store._presence.listen()
        assert pipe is not None
        try:
            while True:
                os.write(pipe, b"!" * 4096)
        except BlockingIOError:
            pass
        await store.submit([task()])
        await store.wait(HOUR)


async def test_wakeup_never_fails_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of file handles, a submit that is written succeeds, and no living pipe is taken for a dead one."""
    path = tmp_path / "qo.db"
    async with opened(path) as store, opened(path) as other:
        await store.wait(0)
        before = pipes(path)
        really_open = os.open

        def no_more(path: str | Path, *arguments: int) -> int:
            if str(path).endswith(".wake"):
                raise OSError(24, "Too many open files")
            return really_open(path, *arguments)

        monkeypatch.setattr(os, "open", no_more)
        assert len(await other.submit([task()])) == 1
        monkeypatch.undo()
        assert pipes(path) == before
        waits = waiting(store)
        await settled_in(store, 1)
        await other.submit([task()])
        await woken(*waits)


def test_pipe_has_a_reader_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wakes everybody while a pipe is being made does not remove it as stale."""
    folder = tmp_path / "run"
    one, other = Presence(folder, "one"), Presence(folder, "other")
    really_mkfifo = os.mkfifo

    def mkfifo_and_wake(path: Path, mode: int) -> None:
        really_mkfifo(path, mode)
        other.wake_all()

    monkeypatch.setattr(os, "mkfifo", mkfifo_and_wake)
    assert one.listen() is not None
    other.wake_all()
    assert one.heard()
    one.close()
    assert list(folder.iterdir()) == []


async def test_without_pipes_waiting_is_sleeping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system that has no pipes wait only takes its time, and claims work."""

    def no_pipes(path: Path, mode: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "mkfifo", no_pipes)
    async with opened(tmp_path / "qo.db") as store:
        await store.submit([task()])
        assert len((await store.claim(want())).tasks) == 1
        await store.wait(0)

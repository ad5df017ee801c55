"""attach(): a worker whose process is gone is known at once; a living one is never taken for dead."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.stores.processes import Child, children
from tests.stores.tools import completed, opened, task, want

from qo import lifecycle
from qo.clock import SYSTEM
from qo.stores.sqlite.presence import Presence, boot_id
from qo.stores.sqlite.store import SqliteStore
from qo.task import Task

pytestmark = pytest.mark.skipif(not boot_id(), reason="this machine cannot tell its boots apart")


async def expired(store: SqliteStore) -> list[Task]:
    return [each for each in await store.expired(100) if isinstance(each, Task)]


def locks(path: Path) -> set[str]:
    return {each.name for each in Path(f"{path}-run").glob("*.lock")}


def leave_lock(path: Path, worker: str, text: str) -> None:
    """What a worker would have left that was killed."""
    Path(f"{path}-run").mkdir(exist_ok=True)
    Path(f"{path}-run", f"{worker}.lock").write_text(text)


async def test_killed_worker_s_leases_end_at_once(tmp_path: Path) -> None:
    """SIGKILL of an attached worker: its tasks are expired although the lease is an hour; others keep theirs."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        await store.submit([task() for _ in range(3)])
        with children(Child("attached", path, "dead"), Child("attached", path, "alive")) as (dead, alive):
            lost, kept = dead.line(), alive.line()
            assert await expired(store) == []
            dead.kill()
            (found,) = await expired(store)
            assert (found.id, found.worker_id) == (lost, "dead")
            assert await store.settle([lifecycle.expire(found, SYSTEM.now(), 0.5)]) == ["written"]
            assert await expired(store) == []
            assert locks(path) == {"alive.lock"}
            (other,) = await store.get([kept])
            assert isinstance(other, Task) and other.state == "running"


async def test_whoever_looks_first_tells_all(tmp_path: Path) -> None:
    """Several stores look for the dead at once: each sees the lost task, one of them collects it."""
    path = tmp_path / "qo.db"
    async with opened(path) as one, opened(path) as two:
        await one.submit([task()])
        with children(Child("attached", path, "dead")) as (child,):
            lost = child.line()
            child.kill()
        seen = await asyncio.gather(*(expired(store) for store in (one, two) * 3))
        seen.append(await expired(one))
        assert {each.id for found in seen for each in found} == {lost}
        answers = [await store.settle([lifecycle.expire(seen[-1][0], SYSTEM.now(), 0.5)]) for store in (one, two)]
        assert answers == [["written"], ["lost"]]


async def test_two_workers_in_one_process(tmp_path: Path) -> None:
    """Detaching one leaves the other attached; both are gone with their process."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        await store.submit([task(), task()])
        with children(Child("attached", path, "first", "second")) as (child,):
            ids = {child.line(), child.line()}
            assert await expired(store) == []
            child.tell("detach")
            assert child.line() == "detach"
            assert await expired(store) == []
            child.kill()
            # The first left in good order, so its lease runs its time; the second's ends now.
            (found,) = await expired(store)
            assert found.worker_id == "second" and found.id in ids


async def test_detach_and_close_are_no_deaths(tmp_path: Path) -> None:
    """A worker that detached, or closed its store, is not taken for dead: its leases run their time."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        await store.submit([task(), task()])
        with children(Child("attached", path, "first", "second")) as (child,):
            _ = child.line(), child.line()
            for order in ("detach", "close"):
                child.tell(order)
                assert child.line() == order
                assert await expired(store) == []
            child.kill()
        assert await expired(store) == []
        assert locks(path) == set()


async def test_own_workers_are_alive(tmp_path: Path) -> None:
    """A store does not take its own workers, nor those of a second store in this process, for dead."""
    path = tmp_path / "qo.db"
    async with opened(path) as store, opened(path) as other:
        await store.submit([task(), task()])
        await store.attach("mine")
        await store.attach("mine")
        await other.attach("theirs")
        for each, worker in ((store, "mine"), (other, "theirs")):
            assert len((await each.claim(want(worker=worker))).tasks) == 1
        assert await expired(store) == [] and await expired(other) == []


def test_never_seen_free_while_attaching(tmp_path: Path) -> None:
    """Between the first moment of attach and its last, nobody who looks sees a worker that is gone."""
    folder = tmp_path / "run"
    watcher = Presence(folder, "watcher")
    with children(Child("attach_again_and_again", folder)) as (child,):
        assert child.line() == "ready"
        looks = 0
        child.tell()
        while not child.process.poll() and looks < 3000:
            assert watcher.gone() == []
            looks += 1
        assert child.process.poll() is None


@pytest.mark.parametrize("text", ["another-boot", "", "x" * 200])
async def test_lock_of_another_boot_proves_nothing(tmp_path: Path, text: str) -> None:
    """A free lock file that another run of the machine wrote, or nobody, is left alone: leases run their time."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        await store.submit([task()])
        assert len((await store.claim(want(worker="old"))).tasks) == 1
        leave_lock(path, "old", text)
        assert await expired(store) == []


async def test_new_worker_with_an_old_name_keeps_its_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts under the name of one just seen dead does not lose what it claims."""
    path = tmp_path / "qo.db"
    async with opened(path) as store, opened(path) as fresh:
        await store.submit([task()])
        with children(Child("attached", path, "w")) as (child,):
            lost = child.line()
            child.kill()
        await store.submit([task()])
        really_gone = Presence.gone

        def gone(presence: Presence) -> list[str]:
            found = really_gone(presence)
            fresh._presence.attach("w")  # the name is taken again while its old bearer is being buried
            return found

        write = store._write
        held: list[Task] = []

        async def write_later(work: object) -> object:
            if not held:
                held.extend((await fresh.claim(want(worker="w"))).tasks)
            return await write(work)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(Presence, "gone", gone)
        monkeypatch.setattr(store, "_write", write_later)
        found = await expired(store)
        monkeypatch.undo()
        assert [each.id for each in found] == [lost]
        assert len(held) == 1 and await store.settle([completed(held[0])]) == ["written"]
        assert locks(path) == {"w.lock"}
        assert await expired(fresh) == found


def namespaces_work() -> bool:
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-Urpf", "true"], capture_output=True).returncode == 0


@pytest.mark.skipif(not namespaces_work(), reason="no pid namespaces here")
async def test_across_pid_namespaces(tmp_path: Path) -> None:
    """A worker in a container of its own, where pids mean nothing to us, is alive until it is killed."""
    path = tmp_path / "qo.db"
    async with opened(path) as store:
        await store.submit([task()])
        prefix = ["unshare", "-Urpf", "--kill-child"]
        with children(Child("attached", path, "boxed", prefix=prefix)) as (child,):
            lost = child.line()
            assert await expired(store) == []
            child.kill()
            # unshare is dead; the kernel kills the worker behind it a moment later, so its end is waited for.
            child.lines()
            (found,) = await expired(store)
            assert found.id == lost

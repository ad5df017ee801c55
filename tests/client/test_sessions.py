"""One opened store for each event loop and process, opened once, opened again when need be."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.client.conftest import MakeQueue

from qo import Queue, Unavailable, UsageError
from qo.settings import Settings
from qo.stores.memory import MemoryStore, SharedMemory


class Watched(MemoryStore):
    """Counts what happens to it."""

    def __init__(self, log: list[str], shared: SharedMemory, gate: Callable[[], None] = lambda: None) -> None:
        super().__init__(shared)
        self.log, self.gate = log, gate

    async def open(self) -> None:
        self.log.append("open")
        await asyncio.sleep(0)
        self.gate()

    async def close(self) -> None:
        self.log.append("close")


async def test_concurrent_first_uses_open_once() -> None:
    """However many calls come first, the store is opened once, and closed once."""
    log: list[str] = []
    shared = SharedMemory()
    q = Queue(store=lambda: Watched(log, shared), settings=Settings())
    assert log == []
    await asyncio.gather(*(q.submit("x") for _ in range(20)), q.stats())
    assert log == ["open"]
    await q.close()
    await q.close()
    assert log == ["open", "close"]
    assert (await q.stats()).pending == 20
    await q.close()
    assert log == ["open", "close"] * 2


async def test_a_failed_open_is_tried_again() -> None:
    """A store that was away when it was first asked for is opened by the next call."""
    log: list[str] = []
    failing = True
    shared = SharedMemory()

    def gate() -> None:
        if failing:
            raise Unavailable("away")

    q = Queue(store=lambda: Watched(log, shared, gate), settings=Settings())
    with pytest.raises(Unavailable):
        await q.submit("x")
    failing = False
    assert (await q.submit("x")).created
    assert log == ["open", "close", "open"]
    await q.close()


async def test_a_cancelled_first_use_does_not_spoil_the_second() -> None:
    """Who waits behind a caller that gave up opens the store itself."""
    log: list[str] = []
    shared = SharedMemory()
    q = Queue(store=lambda: Watched(log, shared), settings=Settings())
    first, second = asyncio.create_task(q.submit("x")), asyncio.create_task(q.submit("x"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).created
    assert first.cancelled()
    assert log == ["open", "close", "open"]
    await q.close()


def test_several_loops_in_threads(make: MakeQueue) -> None:
    """Each thread's loop has its own store; together they lose nothing."""
    q = make()

    @q.task
    async def step(n: int) -> None: ...

    async def some(base: int) -> None:
        await asyncio.gather(*(step.submit(base + n) for n in range(50)))
        await q.close()

    threads = [threading.Thread(target=asyncio.run, args=(some(100 * n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tasks = asyncio.run(_all_of(q))
    assert {task.input["n"] for task in tasks} == {100 * n + m for n in range(4) for m in range(50)}


async def _all_of(q: Queue):
    async with q:
        return (await q.find(limit=1000)).tasks


def test_a_loop_that_ended_is_let_go() -> None:
    """asyncio.run again and again without close: the stores of the dead loops are closed by the next use."""
    log: list[str] = []
    shared = SharedMemory()
    q = Queue(store=lambda: Watched(log, shared), settings=Settings())

    async def use() -> None:
        await q.submit("x")

    for _ in range(3):
        asyncio.run(use())
    assert log == ["open", "close", "open", "close", "open"]
    asyncio.run(q.close())
    assert log.count("close") == 3


async def test_idle_means_idle(q: Queue) -> None:
    """Between calls no asyncio task is alive."""
    await q.submit("x")
    await q.stats()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_store_object_is_shared_and_closed_last() -> None:
    """A store that was handed in is opened by its first user and closed with its last; another loop may not have it."""
    log: list[str] = []
    store = Watched(log, SharedMemory())
    q = Queue(store=store, settings=Settings())
    await q.submit("x")
    mine = q.open_store()
    await mine.open()
    await q.close()
    assert log == ["open"]
    with pytest.raises(UsageError, match="serves one event loop"):
        await asyncio.to_thread(asyncio.run, _stats_of(q))
    assert (await mine.stats("default")).pending == 1
    await mine.close()
    await mine.close()
    assert log == ["open", "close"]


async def _stats_of(q: Queue):
    return await q.stats()


FORK = """
    import asyncio, os, sys
    from qo import Queue

    q = Queue(f"sqlite:///{sys.argv[1]}/qo.db")

    @q.task
    async def note(who: str) -> None: ...

    async def use(who):
        await note.submit(who)

    asyncio.run(use("before"))
    note.submit_sync("sync before")
    child = os.fork()
    if child == 0:
        try:
            note.submit_sync("sync in the child")
            asyncio.run(use("in the child"))
            os._exit(0 if q.sync.stats().pending >= 4 else 3)
        except BaseException as error:
            print("child:", repr(error), file=sys.stderr)
            os._exit(4)
    note.submit_sync("sync in the parent")
    asyncio.run(use("in the parent"))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    note.submit_sync("after")
    print(*sorted(task.input["who"] for task in q.sync.find().tasks), sep=",")
    q.sync.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_both_go_on(tmp_path: Path) -> None:
    """A child of a process that used the queue opens its own; the parent's goes on, blocking and async calls alike."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(FORK), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip().split(",") == sorted(
        ["before", "sync before", "sync in the child", "in the child", "sync in the parent", "in the parent", "after"]
    )
    assert ran.stderr == ""


async def test_closing_while_it_opens() -> None:
    """A close that comes while the store is being opened leaves nothing open behind."""
    log: list[str] = []
    shared = SharedMemory()
    q = Queue(store=lambda: Watched(log, shared), settings=Settings())
    opening = asyncio.create_task(q.session())
    await asyncio.sleep(0)
    await q.close()
    await opening
    assert log == ["open", "close"]


def test_main_module_without_its_guard(tmp_path: Path) -> None:
    """Imported again by a child process it does nothing twice, and the task says what to write."""
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent(
            """
            import qo

            q = qo.Queue("sqlite:///tasks.db")

            @q.task(isolation="process", max_retries=0)
            def heavy() -> int:
                return 1

            task = heavy.submit_sync()
            q.start()
            try:
                task.result_sync(30)
            except qo.TaskFailed as error:
                print("said:", error)
            q.stop()
            print("tasks:", q.sync.stats().failed)
            """
        )
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert 'if __name__ == "__main__":' in done.stdout, done
    assert "tasks: 1" in done.stdout, done

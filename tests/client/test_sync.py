"""Blocking calls: from threads, beside running loops, interrupted, and the same as the async ones."""

import asyncio
import inspect
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.client.conftest import MakeQueue
from tests.client.tools import turns

from qo import InvalidInput, LeaseLost, Queue, ResultTimeout, TaskFailed, UsageError
from qo.calls import TaskHandle
from qo.pull import ClaimedTask
from qo.sync import PORTAL, SyncClaimedTask, SyncQueue


@pytest.fixture
def blocking(make: MakeQueue) -> Iterator[Queue]:
    """A queue for tests without a loop."""
    q = make()
    yield q
    q.sync.close()


@pytest.mark.parametrize(("twin", "original"), [(SyncQueue, Queue), (SyncClaimedTask, ClaimedTask)])
def test_every_async_method_has_a_blocking_twin(twin: type, original: type) -> None:
    """Nothing public that awaits is missing from the blocking side."""
    asynchronous = {
        name
        for name, value in inspect.getmembers(original)
        if inspect.iscoroutinefunction(value) and not name.startswith("_")
    }
    assert asynchronous - {"session", "read_controls"} <= set(dir(twin))


def test_a_life_without_a_loop(blocking: Queue) -> None:
    """Submit, look, run by hand, result: all blocking, as in a script or a sync view."""
    q = blocking

    @q.task
    def add(a: int, b: int) -> int: ...

    handle = add.submit_sync(1, 2)
    assert add.options(priority="high").submit_sync(3, b=4).task.priority == "high"
    assert q.sync.submit("add", {"a": 5, "b": 6}).created
    assert len(q.sync.submit_many([add.call(7, 8), add.call(9, 10)])) == 2
    assert q.sync.stats().pending == 5
    with q.sync.claim("add", limit=5) as claimed:
        for one in claimed:
            one.heartbeat({"half": True})
            one.complete(one.input["a"] + one.input["b"])
            assert one.task.state == "completed" and not one.cancel_requested
    assert q.sync.result(handle) == q.sync.result(handle.id, timeout=5) == 3
    assert [line.became for line in q.sync.history(handle.id)] == ["pending", "running", "completed"]
    with pytest.raises(InvalidInput):
        add.submit_sync("x", 2)  # pyright: ignore[reportArgumentType]
    waiting = add.submit_sync(1, 1)
    with pytest.raises(ResultTimeout):
        q.sync.result(waiting, timeout=0.001)
    with q.sync.claim() as (one,):
        one.fail("no")
    with pytest.raises(TaskFailed, match="permanent: no"):
        q.sync.result(waiting)


def test_what_a_block_leaves_is_given_back(blocking: Queue) -> None:
    """The blocking claim gives back as the async one does, and its leases are kept by the background thread."""
    handle = blocking.sync.submit("x")
    with pytest.raises(ZeroDivisionError), blocking.sync.claim():
        raise ZeroDivisionError
    assert blocking.sync.get(handle.id).state == "pending"
    with blocking.sync.claim() as (one,):
        blocking.sync.cancel(handle.id)
        one.release()
        with pytest.raises((UsageError, LeaseLost)):
            one.complete()
    assert blocking.sync.get(handle.id).state == "cancelled"


def test_many_threads_share_one_loop(blocking: Queue) -> None:
    """Blocking calls from many threads at once all arrive."""

    @blocking.task
    def step(n: int) -> None: ...

    with ThreadPoolExecutor(16) as threads:
        handles = list(threads.map(step.submit_sync, range(200)))
    assert len({handle.id for handle in handles}) == 200
    assert blocking.sync.stats().pending == 200
    assert sum(thread.name == "qo-sync" for thread in threading.enumerate()) == 1


async def test_beside_a_running_loop(make: MakeQueue) -> None:
    """From a thread of a program whose loop runs, as a sync view of an async server; closing closes both."""
    async with make() as q:

        @q.task
        def step(n: int) -> None: ...

        await step.submit(1)
        handle = await asyncio.to_thread(step.submit_sync, 2)
        assert isinstance(handle, TaskHandle) and (await handle.refresh()).state == "pending"
        assert (await q.stats()).pending == 2
        # Even in the thread of the loop itself it works, as in a notebook: it only blocks.
        assert q.sync.stats().pending == 2


async def test_inside_its_own_loop_it_refuses(make: MakeQueue) -> None:
    """A blocking call on qo's own loop would wait for itself for ever."""
    q = make()

    async def mistake() -> None:
        q.sync.stats()

    with pytest.raises(UsageError, match="would wait for itself"):
        await asyncio.to_thread(PORTAL.run, mistake())
    await q.close()


async def test_a_queue_used_both_ways_closes_both(make: MakeQueue) -> None:
    """close() on a loop also closes what blocking calls opened."""
    q = make()
    await asyncio.to_thread(q.sync.submit, "x")
    await q.submit("x")
    await q.close()
    await turns()
    assert q._sessions._slots == {}  # pyright: ignore[reportPrivateUsage]


SCRIPT = """
    import os, signal, sys
    from qo import Queue
    from qo.clock import SystemClock

    class Interrupting(SystemClock):
        async def sleep(self, seconds):
            if not hasattr(self, "done"):
                self.done = True
                os.kill(os.getpid(), signal.SIGINT)
            await super().sleep(seconds)

    q = Queue(f"sqlite:///{sys.argv[1]}/qo.db", clock=Interrupting())

    @q.task
    def send(to: str) -> None: ...

    handle = send.submit_sync("a")
    print(handle.state)
    if len(sys.argv) > 2:
        try:
            q.sync.result(handle)
        except KeyboardInterrupt:
            print("interrupted", q.sync.stats().pending)
"""


def run_script(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-X", "dev", "-c", textwrap.dedent(SCRIPT), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ran.returncode, ran.stdout, ran.stderr


def test_a_script_ends_without_a_word(tmp_path: Path) -> None:
    """A script that submits and ends, without closing anything, leaves no warning and no hanging thread."""
    assert run_script(str(tmp_path)) == (0, "pending\n", "")


def test_ctrl_c_interrupts_a_wait(tmp_path: Path) -> None:
    """KeyboardInterrupt ends a blocking wait, and the queue can still be used."""
    assert run_script(str(tmp_path), "wait") == (0, "pending\ninterrupted 1\n", "")


def test_handle_waits_without_a_loop(blocking: Queue) -> None:
    """What submit_sync returns can be asked for its result right there."""

    @blocking.task
    def double(number: int) -> int:
        return 2 * number

    task = double.submit_sync(4)
    blocking.sync.run_once()
    assert task.result_sync(timeout="5s") == 8
    assert task.type == "double"

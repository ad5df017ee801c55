"""Cancelling a task that runs: its handler hears of it, and it ends as cancelled whatever the handler did."""

import asyncio
import threading
from typing import Any

from tests.worker.worker_tools import PATIENCE, Wrapped, check_history, make_queue, patched, until, until_state, working

import qo
from qo.changes import Settlement
from qo.stores.protocol import Store


async def test_async_sees_cancelled_error(q: qo.Queue) -> None:
    """An async handler is cancelled where it waits."""
    started, seen = asyncio.Event(), asyncio.Event()

    @q.task
    async def job() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert qo.current().cancelled
            seen.set()
            raise

    handle = await job.submit()
    async with working(q) as worker:
        await started.wait()
        await q.cancel(handle.id)
        task = await until_state(q, handle.id, "cancelled")
        await until(lambda: worker.counters["cancelled"] == 1)
    assert seen.is_set() and task.error is not None and task.error.reason == "cancelled"
    check_history([line for line in await q.history(handle.id) if line.was != line.became], task)


async def test_thread_sees_cancelled(q: qo.Queue) -> None:
    """A thread sees ctx.cancelled, and ctx.check() raises in it."""
    started = threading.Event()

    @q.task
    def job() -> None:
        context = qo.current()
        assert not context.cancelled
        context.check()
        started.set()
        while True:
            context.check()

    handle = await job.submit()
    async with working(q):
        await until(started.is_set)
        await q.cancel(handle.id)
        task = await until_state(q, handle.id, "cancelled")
    assert task.error is not None and task.error.reason == "cancelled"


async def test_result_of_a_cancelled_task_is_kept(q: qo.Queue) -> None:
    """A handler that returns although it was cancelled: the task is cancelled, its output is kept."""
    started = threading.Event()

    @q.task
    def job() -> str:
        started.set()
        while not qo.current().cancelled:
            pass
        return "half"

    handle = await job.submit()
    async with working(q):
        await until(started.is_set)
        await q.cancel(handle.id)
        task = await until_state(q, handle.id, "cancelled")
    assert task.output == "half"


async def test_thread_that_ignores_it_ends_at_its_timeout(q: qo.Queue) -> None:
    """A thread that never looks is settled as cancelled when its time and grace are up."""
    started, release = threading.Event(), threading.Event()

    @q.task(timeout=0.3)
    def job() -> None:
        started.set()
        release.wait(PATIENCE)

    handle = await job.submit()
    with patched(__import__("qo.worker.runner", fromlist=["GRACE"]), "GRACE", 0.2):
        async with working(q):
            await until(started.is_set)
            await q.cancel(handle.id)
            task = await until_state(q, handle.id, "cancelled")
            release.set()
    assert task.error is not None and task.error.reason == "cancelled"


class _CancelsFirst(Wrapped):
    """Somebody cancels each task just before its outcome is written."""

    def __init__(self, store: Store, queue: list[qo.Queue]) -> None:
        super().__init__(store)
        self._queue = queue

    async def settle(self, settlements: list[Settlement]) -> Any:
        for one in settlements:
            if not one.cancel_requested:
                await self._queue[0].cancel(one.id)
        return await self.real.settle(settlements)


async def test_cancel_against_finishing(tmp_path: Any) -> None:
    """Who cancels before the outcome is written wins, for returns, failures and retries; who comes later is refused."""
    real = make_queue("memory", tmp_path)
    queues = [real]
    q = make_queue("memory", tmp_path, store=lambda: _CancelsFirst(real.open_store(), queues))

    @q.task
    async def job(how: str) -> str:
        if how == "raise":
            raise ValueError("broken")
        if how == "snooze":
            raise qo.Snooze(60)
        return "done"

    handles = [await job.submit(how=how) for how in ("return", "raise", "snooze")]
    async with working(q):
        tasks = [await until_state(real, one.id, "cancelled") for one in handles]
    assert tasks[0].output == "done"
    assert tasks[1].error is not None and tasks[1].error.type == "ValueError"
    assert tasks[2].error is not None and tasks[2].error.reason == "cancelled"
    await q.close()
    await real.close()


async def test_progress_is_seen_while_it_runs(q: qo.Queue) -> None:
    """What a handler says of its progress is in the store while it still runs, the last word too."""
    release = asyncio.Event()

    @q.task
    async def job() -> None:
        for step in range(100):
            qo.current().progress({"done": step})
        await release.wait()

    handle = await job.submit()

    async def shown() -> bool:
        task = await q.get(handle.id)
        return task.state == "running" and task.progress == {"done": 99}

    async with working(q):
        await until(shown)
        release.set()
        task = await until_state(q, handle.id, "completed")
    assert task.progress == {"done": 99}


async def test_progress_from_a_thread(q: qo.Queue) -> None:
    """Threads show progress too."""
    release = threading.Event()

    @q.task
    def job() -> None:
        qo.current().progress(0.5)
        release.wait(PATIENCE)

    handle = await job.submit()

    async def shown() -> bool:
        return (await q.get(handle.id)).progress == 0.5

    async with working(q):
        await until(shown)
        release.set()
        await until_state(q, handle.id, "completed")

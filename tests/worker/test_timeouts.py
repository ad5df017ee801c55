"""No attempt takes longer than its timeout, whatever its handler does."""

import asyncio
import contextlib
import threading

import pytest
from tests.worker.worker_tools import NOW, PATIENCE, patched, until, until_state, working

import qo
from qo.worker import runner as runner_module
from qo.worker.runner import Runner


async def test_async_is_cancelled_at_its_await(q: qo.Queue) -> None:
    """An async handler past its timeout sees CancelledError where it waits, and fails as timeout."""
    seen: list[str] = []

    @q.task(timeout=0.05, max_retries=0)
    async def job() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    handle = await job.submit()
    async with working(q):
        task = await until_state(q, handle.id, "failed")
    assert seen == ["cancelled"] and task.error is not None and task.error.reason == "timeout"


async def test_what_a_handler_returns_when_it_is_cancelled_counts(q: qo.Queue) -> None:
    """A handler that swallows its cancellation and returns soon after has done its work."""

    @q.task(timeout=0.05, max_retries=0)
    async def job() -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "all the same"

    handle = await job.submit()
    async with working(q):
        task = await until_state(q, handle.id, "completed", "failed")
    assert (task.state, task.output) == ("completed", "all the same")


async def test_async_that_never_ends(q: qo.Queue) -> None:
    """One that swallows its cancellation and runs on is settled as timeout after the grace, and keeps its place."""
    release, other = asyncio.Event(), asyncio.Event()

    @q.task(timeout=0.05, max_retries=0)
    async def job() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "far too late"

    @q.task
    async def after() -> None:
        other.set()

    with patched(runner_module, "GRACE", 0.05):
        handle = await job.submit()
        async with working(q, concurrency=1) as worker:
            task = await until_state(q, handle.id, "failed")
            second = await after.submit()
            assert task.error is not None and task.error.reason == "timeout"
            assert not other.is_set() and (await q.get(second.id)).state == "pending"
            release.set()
            await until_state(q, second.id, "completed")
        assert (await q.get(handle.id)).state == "failed" and worker.counters["completed"] == 1


async def test_thread_keeps_its_place(q: qo.Queue) -> None:
    """A thread past its timeout is settled as timeout; its place is free when it ends, and its result is ignored."""
    release = threading.Event()

    @q.task(timeout=0.05, max_retries=0)
    def job() -> str:
        release.wait(PATIENCE)
        return "far too late"

    @q.task
    async def after() -> None: ...

    handle = await job.submit()
    async with working(q, concurrency=1):
        task = await until_state(q, handle.id, "failed")
        second = await after.submit()
        assert task.error is not None and task.error.reason == "timeout"
        assert (await q.get(second.id)).state == "pending"
        release.set()
        await until_state(q, second.id, "completed")
        task = await q.get(handle.id)
        assert (task.state, task.output) == ("failed", None)


async def test_thread_sees_that_its_time_is_up(q: qo.Queue) -> None:
    """ctx.check() ends a thread past its timeout."""
    ended = threading.Event()

    @q.task(timeout=0.05, max_retries=0)
    def job() -> None:
        try:
            while True:
                qo.current().check()
        finally:
            ended.set()

    handle = await job.submit()
    async with working(q):
        task = await until_state(q, handle.id, "failed")
        await until(ended.is_set)
    assert task.error is not None and task.error.reason == "timeout"


async def test_timeout_grows_on_retries(q: qo.Queue) -> None:
    """Preset b gives every retry half as much time again."""

    @q.task(timeout=0.04, max_retries=2, retry="b")
    async def job() -> None:
        await asyncio.Event().wait()

    handle = await job.submit()
    async with working(q):
        await until_state(q, handle.id, "failed")
    errors = [line.error.message for line in await q.history(handle.id) if line.error]
    assert errors == ["no result after 0.04 s", "no result after 0.06 s", "no result after 0.09 s"]


@pytest.mark.parametrize("q", ["memory"], indirect=True)
async def test_many_timeouts_share_one_timer(q: qo.Queue) -> None:
    """However many deadlines there are, one timer waits at a time, and each is kept."""
    ended: list[float] = []
    pending: list[int] = []

    @q.task(max_retries=0)
    async def job(x: float) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(x)

    calls = [job.options(timeout=0.1 + i / 200).call(x=float(i)) for i in reversed(range(40))]
    handles = await q.submit_many(calls)
    loop = asyncio.get_running_loop()
    ring = Runner._ring

    def counted(self: Runner) -> None:
        scheduled = [handle for handle in loop._scheduled if not handle.cancelled()]  # pyright: ignore
        pending.append(sum("_ring" in repr(handle) for handle in scheduled))
        ring(self)

    with patched(Runner, "_ring", counted):
        async with working(q, concurrency=40):
            for handle in handles:
                await until_state(q, handle.id, "failed")
    assert sorted(ended) == [float(x) for x in range(40)]
    assert max(pending) == 0  # while it rings no other is waiting


async def test_retry_after_a_timeout_runs_again(q: qo.Queue) -> None:
    """A timeout is a failure like any other: the task is tried again."""
    tries: list[int] = []

    @q.task(timeout=0.05, max_retries=1, retry=NOW)
    async def job() -> int:
        tries.append(qo.current().task.attempt)
        if len(tries) == 1:
            await asyncio.Event().wait()
        return len(tries)

    handle = await job.submit()
    async with working(q):
        task = await until_state(q, handle.id, "completed")
    assert (task.output, task.failures, tries) == (2, 1, [1, 2])

"""run_once, burst, stop: how a worker begins and ends, and that nothing is left of it."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.worker.worker_tools import (
    NOW,
    PATIENCE,
    Recorder,
    Wrapped,
    burst,
    make_queue,
    settings,
    until,
    until_state,
    working,
)

import qo
from qo.stores.memory import MemoryStore
from qo.stores.protocol import Want


async def test_run_once(q: qo.Queue) -> None:
    """One batch, run to its end and settled when it returns."""

    @q.task
    async def job(x: int) -> int:
        await asyncio.sleep(0)
        return x

    await q.submit_many([job.call(x=x) for x in range(7)])
    worker = qo.Worker(q, concurrency=5)
    assert [await worker.run_once(), await worker.run_once(1), await worker.run_once(), await worker.run_once()] == [
        5,
        1,
        1,
        0,
    ]
    assert (await q.stats()).completed == 7 and await q.workers() == []


async def test_run_once_recovers_first(q: qo.Queue) -> None:
    """What a lost worker left is found before the claim."""
    store = q.open_store()
    await store.open()

    @q.task
    async def job() -> None: ...

    await job.submit()
    await store.claim(Want(worker_id="gone", lease_id=q.clock.new_id(), limit=1, ttl=0.0))
    assert await qo.Worker(q).run_once() == 1
    await store.close()


async def test_burst(q: qo.Queue) -> None:
    """Retries without delay are part of a burst, delayed tasks are not."""

    @q.task(max_retries=2, retry=NOW)
    async def flaky(x: int) -> int:
        if qo.current().task.attempt < 3:
            raise ValueError("not yet")
        return x

    handles = await q.submit_many([flaky.call(x=x) for x in range(10)])
    later = await flaky.options(delay=3600).submit(x=99)
    await burst(q, concurrency=3)
    assert {(await q.get(one.id)).state for one in handles} == {"completed"}
    assert (await q.get(later.id)).state == "pending"


async def test_burst_of_nothing(q: qo.Queue) -> None:
    """Nothing to do ends at once."""

    @q.task
    async def job() -> None: ...

    assert (await burst(q)).counters["claimed"] == 0


async def test_stop_before_run(tmp_path: Path) -> None:
    """A worker that was stopped before it began claims nothing."""
    calls: list[str] = []
    real = make_queue("memory", tmp_path)
    q = make_queue("memory", tmp_path, store=lambda: Recorder(real.open_store(), calls, []))

    @q.task
    async def job() -> None: ...

    handle = await job.submit()
    worker = qo.Worker(q)
    worker.stop()
    async with asyncio.timeout(PATIENCE):
        await worker.run(signals=False)
        await worker.run(burst=True, signals=False)
    assert calls == [] and (await q.get(handle.id)).state == "pending"
    await q.close()
    await real.close()


async def test_stop_from_another_thread(q: qo.Queue) -> None:
    """stop() may come from anywhere; what runs may end."""
    started, release = asyncio.Event(), asyncio.Event()

    @q.task
    async def job() -> str:
        started.set()
        await release.wait()
        return "ended"

    handle = await job.submit()
    worker = qo.Worker(q)
    running = asyncio.create_task(worker.run(signals=False))
    await started.wait()
    thread = threading.Thread(target=worker.stop)
    thread.start()
    thread.join()

    async def draining() -> bool:
        return [one.state for one in await q.workers()] == ["draining"]

    await until(draining)
    other = await q.submit("job", {})
    release.set()
    await running
    assert (await q.get(handle.id)).output == "ended" and (await q.get(other.id)).state == "pending"
    assert await q.workers() == []
    worker.stop()  # once more does no harm


async def test_draining_stays_shown(tmp_path: Path) -> None:
    """While it drains, further heartbeats say so too."""
    q = make_queue("memory", tmp_path, heartbeat=0.05)
    started, release = asyncio.Event(), asyncio.Event()

    @q.task
    async def job() -> None:
        started.set()
        await release.wait()

    await job.submit()
    async with working(q) as worker:
        await started.wait()
        worker.stop()

        async def drained() -> Any:
            (info,) = await q.workers()
            return info if info.state == "draining" else None

        first = await until(drained)

        async def beats() -> bool:
            (info,) = await q.workers()
            assert info.state == "draining"
            return info.heartbeat_at > first.heartbeat_at + timedelta(seconds=0.1)

        await until(beats)
        release.set()
    await q.close()


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_does_not_end_is_given_back(tmp_path: Path, kind: str) -> None:
    """Past the deadline a task is given back: its attempt counts, no failure or loss does."""
    q = make_queue("sqlite", tmp_path, shutdown_deadline=0.05)
    started, release = threading.Event(), threading.Event()

    async def in_coroutine() -> None:
        started.set()
        await asyncio.Event().wait()

    def in_thread() -> None:
        started.set()
        release.wait(PATIENCE)

    job = q.task(name="job")(in_coroutine if kind == "async" else in_thread)
    handle = await job.submit()
    async with working(q):
        await until(started.is_set)
    task = await q.get(handle.id)
    assert (task.state, task.attempt, task.failures, task.losses, task.error) == ("pending", 1, 0, 0, None)
    assert task.available_at <= datetime.now(UTC)
    release.set()
    await q.close()


async def test_stubborn_handler_does_not_keep_the_worker(tmp_path: Path) -> None:
    """A handler that swallows every cancellation is left behind and its task given back."""
    q = make_queue("memory", tmp_path, shutdown_deadline=0.05)
    started, release = asyncio.Event(), asyncio.Event()

    @q.task
    async def job() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    handle = await job.submit()
    async with asyncio.timeout(PATIENCE):
        async with working(q):
            await started.wait()
    assert (await q.get(handle.id)).state == "pending"
    release.set()
    await until(lambda: len(asyncio.all_tasks()) == 1)
    await q.close()


async def test_cancelled_run_gives_back(q: qo.Queue) -> None:
    """Who cancels the asyncio task of run() gets a clean end: tasks given back, record removed, nothing left."""
    started = asyncio.Event()

    @q.task
    async def job() -> None:
        started.set()
        await asyncio.Event().wait()

    handle = await job.submit()
    running = asyncio.create_task(qo.Worker(q).run(signals=False))
    await started.wait()
    running.cancel()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(asyncio.CancelledError):
            await running
    task = await q.get(handle.id)
    assert (task.state, task.failures) == ("pending", 0) and await q.workers() == []


def test_end_of_the_program_does_not_hang(tmp_path: Path) -> None:
    """asyncio.run() ends although a worker and its handlers still run in the background."""
    started = threading.Event()

    async def main() -> None:
        q = make_queue("memory", tmp_path)

        @q.task
        async def job() -> None:
            started.set()
            await asyncio.Event().wait()

        await job.submit()
        main.worker = asyncio.create_task(qo.Worker(q).run(signals=False))  # type: ignore[attr-defined]
        await until(started.is_set)

    thread = threading.Thread(target=asyncio.run, args=(main(),), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert started.is_set() and not thread.is_alive()


async def test_store_that_cannot_be_opened(tmp_path: Path) -> None:
    """The error of the store is what run() raises, and no thread is left."""
    q = qo.Queue(f"sqlite:///{tmp_path}/nowhere/q.db", settings=make_queue("memory", tmp_path).settings)

    @q.task
    async def job() -> None: ...

    for run in (qo.Worker(q).run(signals=False), qo.Worker(q).run_once()):
        with pytest.raises(qo.Unavailable, match="no folder"):
            await run
    assert not [one for one in threading.enumerate() if one.name.startswith("qo-lease")]


async def test_several_workers_on_one_queue(q: qo.Queue) -> None:
    """Three workers share a queue; every task runs once."""
    ran: list[int] = []

    @q.task
    async def job(x: int) -> None:
        await asyncio.sleep(0)
        ran.append(x)

    handles = await q.submit_many([job.call(x=x) for x in range(300)])
    async with working(q), working(q), working(q):
        for handle in handles:
            await until_state(q, handle.id, "completed")
    assert sorted(ran) == list(range(300))


async def test_process_handler_that_no_child_could_find(q: qo.Queue) -> None:
    """A handler for processes that children cannot import is refused when the worker starts."""

    @q.task(isolation="process")
    def inner() -> None: ...

    with pytest.raises(qo.ConfigError, match="no child process finds it"):
        await qo.Worker(q).run(signals=False)


async def test_store_object_handed_in() -> None:
    """A queue on a store object, which only one loop may use, keeps its leases all the same."""
    renewals: list[int] = []

    class Counting(Wrapped):
        async def renew(self, leases: Any, ttl: float) -> Any:
            renewals.append(len(leases))
            return await self.real.renew(leases, ttl)

    store: Any = Counting(MemoryStore())
    q = qo.Queue(store=store, settings=settings(lease=1.0, renew=0.1))
    release = asyncio.Event()

    @q.task
    async def job() -> None:
        qo.current().progress("on the way")
        await release.wait()

    handle = await job.submit()
    async with working(q):
        await until(lambda: len(renewals) >= 3)
        assert (await q.get(handle.id)).progress == "on the way"
        release.set()
        task = await until_state(q, handle.id, "completed")
    assert task.losses == 0
    await q.close()


async def test_options_of_the_handler_hold_for_tasks_submitted_by_name(q: qo.Queue) -> None:
    """Who does not know the handler leaves its retries, timeout and backoff to the worker; what was said holds."""
    stranger = qo.Queue(store=q.open_store, settings=q.settings)

    @q.task(max_retries=0, timeout=None)
    async def broken() -> None:
        raise ValueError("no")

    once = await stranger.submit("broken")
    twice = await stranger.submit("broken", max_retries=1, retry=NOW)
    await qo.Worker(q).run(burst=True, signals=False)
    assert (await q.get(once.id)).attempt == 1
    assert (await q.get(twice.id)).attempt == 2
    await stranger.close()

"""Leases: renewed while a handler runs, given up when they are lost, and never kept for longer than makes sense."""

import asyncio
import threading
from datetime import datetime
from typing import Any

from tests.worker.worker_tools import PATIENCE, until, until_state, working

import qo
from qo import lifecycle
from qo.changes import Lease, Settlement
from qo.clock import ManualClock
from qo.handlers import Handler
from qo.outcomes import GivenBack
from qo.worker.leases import LeaseKeeper
from qo.worker.run import GRACE, Run


async def steal(q: qo.Queue, id: str) -> None:
    """Give the task back behind its worker's back, so that its lease is no more."""
    store = q.open_store()
    await store.open()
    task = await q.get(id)
    assert task.lease_id is not None
    settlement: Settlement = lifecycle.settle(task, GivenBack(), store.now(), 0.5)
    assert await store.settle([settlement]) == ["written"]
    await store.close()


async def test_lost_lease_ends_the_run(q: qo.Queue) -> None:
    """A handler whose lease was lost is cancelled, and nothing of it is written."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    @q.task
    async def job() -> str:
        if qo.current().task.attempt > 1:
            return "second"
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "first"

    handle = await job.submit()
    async with working(q, concurrency=1) as worker:
        await started.wait()
        await q.pause()
        await steal(q, handle.id)
        await until(cancelled.is_set)
        await until(lambda: worker.counters["lost"] == 1)
        assert (await q.get(handle.id)).state == "pending"
        await q.resume()
        task = await until_state(q, handle.id, "completed")
    assert (task.output, task.attempt, task.failures) == ("second", 2, 0)


async def test_lost_lease_in_a_thread(q: qo.Queue) -> None:
    """A thread sees it too, and what it returns afterwards is not written."""
    started, ended = threading.Event(), threading.Event()

    @q.task
    def job() -> str:
        if qo.current().task.attempt > 1:
            return "second"
        started.set()
        while not qo.current().cancelled:
            pass
        ended.set()
        return "first"

    handle = await job.submit()
    async with working(q, concurrency=2) as worker:
        await until(started.is_set)
        await steal(q, handle.id)
        await until(ended.is_set)
        await until(lambda: worker.counters["lost"] == 1)
        task = await until_state(q, handle.id, "completed")
    assert (task.output, task.attempt) == ("second", 2)


async def test_outcome_after_a_lost_lease_is_not_written(q: qo.Queue) -> None:
    """A handler that ended before its worker knew: the store refuses the outcome, and the worker counts it as lost."""
    started, release = asyncio.Event(), asyncio.Event()

    @q.task
    async def job() -> str:
        if qo.current().task.attempt == 1:
            started.set()
            await release.wait()
            return "first"
        return "second"

    handle = await job.submit()
    async with working(q, concurrency=1) as worker:
        await started.wait()
        await q.pause()
        # Not given back but expired, so that the settled lease is not ours.
        store = q.open_store()
        await store.open()
        task = await q.get(handle.id)
        await store.renew([_lease(task)], 0.0)
        assert await q.expire() == 1
        release.set()
        await until(lambda: worker.counters["lost"] == 1)
        await q.resume()
        task = await until_state(q, handle.id, "completed")
        await store.close()
    assert (task.output, task.losses) == ("second", 1)


def _lease(task: Any) -> Any:
    fields = {"id": task.id, "lease_id": task.lease_id, "attempt": task.attempt, "worker_id": task.worker_id}
    return Lease(**{name: value for name, value in fields.items() if name in Lease.__struct_fields__})


async def test_what_is_due() -> None:
    """Renewed when a quarter has passed or there is news; never past timeout and grace, unless only the store lags."""
    clock = ManualClock()

    async def job() -> None: ...

    task = lifecycle.submit(id=clock.new_id(), type="job", now=clock.now(), timeout=10.0)
    run = Run(task, Handler(job), clock.monotonic())
    held = {(task.id, 1): run}
    nothing: Any = None
    keeper = LeaseKeeper(
        nothing, nothing, held, ttl=20.0, every=5.0, clock=clock, on_answer=nothing, on_failure=nothing
    )
    assert keeper._due() == []
    run.take_progress(b"1")
    assert keeper._due() == [run]
    run.shown = run.progress
    assert keeper._due() == []
    clock.advance(5)
    assert keeper._due() == [run]
    clock.advance(5 + GRACE - 0.1)
    assert keeper._due() == [run]
    clock.advance(0.2)
    assert keeper._due() == []
    run.reported = True
    assert keeper._due() == [run]
    run.stop = "lost"
    assert keeper._due() == []


async def test_many_leases_in_one_call(q: qo.Queue) -> None:
    """All leases of a worker are renewed, and none is lost while their handlers wait."""
    release = asyncio.Event()
    started: list[int] = []

    @q.task
    async def job(x: int) -> int:
        started.append(x)
        await release.wait()
        return x

    async def expiry(id: str) -> datetime:
        expires_at = (await q.get(id)).lease_expires_at
        assert expires_at is not None
        return expires_at

    handles = await q.submit_many([job.call(x=x) for x in range(50)])
    async with working(q, concurrency=50):
        await until(lambda: len(started) == 50)
        before = {one.id: await expiry(one.id) for one in handles}

        async def all_renewed() -> bool:
            return all([await expiry(one.id) > before[one.id] for one in handles])

        async with asyncio.timeout(PATIENCE):
            await until(all_renewed)
        release.set()
        for handle in handles:
            assert (await until_state(q, handle.id, "completed")).losses == 0

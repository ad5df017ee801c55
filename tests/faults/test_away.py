"""The store goes away and comes back, or loses replies: nothing is lost and nothing that still runs is run twice."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.faults.faulty import Faults, FaultyStore, faulty_queue
from tests.worker.worker_tools import PATIENCE, check_history, make_queue, settings, until, until_state, working

import qo
from qo import lifecycle
from qo.clock import ManualClock
from qo.stores.memory import MemoryStore, SharedMemory
from qo.stores.protocol import Want
from qo.worker.upkeep import Upkeep

Place = tuple[qo.Queue, qo.Queue, Faults]


@pytest.fixture(params=["memory", "sqlite"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    faulty, real, faults = faulty_queue(request.param, tmp_path, poll_min=0.01, heartbeat=0.1)
    yield faulty, real, faults
    faults.now.clear()
    await faulty.close()
    await real.close()


@pytest.mark.parametrize("fault", ["away", "lost_request"])
async def test_outcomes_wait_for_the_store(place: Place, fault: Any) -> None:
    """Handlers that end while the store is away are written when it is back; none runs twice."""
    q, real, faults = place
    release = asyncio.Event()
    ran: list[str] = []

    @q.task
    async def job(x: int) -> int:
        ran.append(qo.current().task.id)
        await release.wait()
        return x

    @q.task
    def sync_job(x: int) -> int:
        ran.append(qo.current().task.id)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(PATIENCE)
        return x

    loop = asyncio.get_running_loop()
    handles = [await real.submit(type, {"x": x}) for x in range(4) for type in ("job", "sync_job")]
    async with working(q, concurrency=10):
        await until(lambda: len(ran) == 8)
        faults.now["*"] = fault
        release.set()
        await until(lambda: faults.hits["settle"] > 1 and faults.hits["records"] > 1)
        assert {(await real.get(one.id)).state for one in handles} == {"running"}
        faults.now.clear()
        for handle in handles:
            task = await until_state(real, handle.id, "completed")
            assert (task.attempt, task.losses, task.failures) == (1, 0, 0)
            check_history(await real.history(handle.id), task)
    assert len(ran) == 8


@pytest.mark.parametrize("verb", ["claim", "settle", "renew", "put_record"])
async def test_lost_replies_cost_nothing(place: Place, verb: str) -> None:
    """Each verb's reply is lost again and again, after the store did what was asked: every task still runs once."""
    q, real, faults = place
    ran: list[int] = []

    @q.task
    async def job(x: int) -> int:
        ran.append(x)
        if verb == "renew":
            await until(lambda: faults.hits["renew"] > 2)
        return x

    handles = [await real.submit("job", {"x": x}) for x in range(20)]
    for _ in range(3):
        faults.once[verb] = "lost_reply"
    if verb == "renew":
        faults.now["renew"] = "lost_reply"
    async with working(q, concurrency=20):
        for handle in handles:
            task = await until_state(real, handle.id, "completed")
            assert (task.attempt, task.losses) == (1, 0)
            check_history(await real.history(handle.id), task)
            if verb in ("claim", "settle"):
                faults.once[verb] = "lost_reply"
    assert sorted(ran) == list(range(20)) and faults.hits[verb]


async def test_claim_whose_reply_is_lost_at_the_end(place: Place) -> None:
    """A worker that stops while it does not know what it claimed finds out, so that nothing waits for its lease."""
    q, real, faults = place

    @q.task
    async def job() -> None: ...

    handle = await real.submit("job", {})
    faults.now["claim"] = "lost_reply"
    async with working(q) as worker:
        await until(lambda: faults.hits["claim"] > 0)
        worker.stop()
        faults.now.clear()
    assert (await real.get(handle.id)).state == "completed"


async def test_large_batches_that_are_half_written(tmp_path: Path) -> None:
    """When the store goes away between two parts of many outcomes, those left are written later, unchanged."""
    q, real, faults = faulty_queue("memory", tmp_path, poll_min=0.01)
    release = asyncio.Event()

    @q.task
    async def job(x: int) -> str:
        await release.wait()
        return "y" * 900_000

    handles = [await real.submit("job", {"x": x}) for x in range(12)]
    calls: list[int] = []
    of = faults.of

    def second_fails(verb: str) -> Any:
        if verb == "settle":
            calls.append(1)
            if len(calls) in (2, 3, 5):
                return "away"
        return of(verb)

    faults.of = second_fails  # type: ignore[method-assign]
    async with working(q, concurrency=20) as worker:
        await until(lambda: worker.counters["claimed"] == 12)
        release.set()
        for handle in handles:
            task = await until_state(real, handle.id, "completed", "failed")
            assert task.state == "completed", task.error
    assert len(calls) > 3
    await q.close()
    await real.close()


async def test_worker_that_ends_while_the_store_is_away(tmp_path: Path) -> None:
    """It waits one lease time for the store, then ends; what it could not write runs out."""
    q, real, faults = faulty_queue("memory", tmp_path, lease=0.5, renew=0.1, shutdown_deadline=0.1)
    started = asyncio.Event()

    @q.task
    async def job() -> None:
        started.set()

    faults.now["settle"] = "away"
    handle = await real.submit("job", {})
    async with asyncio.timeout(PATIENCE):
        async with working(q, upkeep=False):
            await started.wait()
    faults.now.clear()
    await until(real.expire)
    assert (await real.get(handle.id)).losses == 1
    await q.close()
    await real.close()


async def test_upkeep_waits_after_a_gap() -> None:
    """After an outage leases that ran out meanwhile are left alone for one lease time, then they expire."""
    clock, shared, faults = ManualClock(), SharedMemory(), Faults()
    store: Any = FaultyStore(MemoryStore(shared, clock), faults)
    task = await _claimed(store, clock, ttl=10.0)
    upkeep = Upkeep(store, "default", settings(lease=20.0), clock)
    await upkeep.round()
    faults.now["*"] = "away"
    await upkeep.round()
    clock.advance(60)
    await upkeep.round()
    faults.now.clear()
    await upkeep.round()
    assert (await store.get([task.id]))[0].state == "running"
    clock.advance(19)
    await upkeep.round()
    assert (await store.get([task.id]))[0].state == "running"
    clock.advance(2)
    await upkeep.round()
    assert (await store.get([task.id]))[0].state == "pending"


async def test_upkeep_waits_after_a_sleep() -> None:
    """A machine that was suspended knows nothing of an outage, only that much time went by; it waits too."""
    clock, shared = ManualClock(), SharedMemory()
    store = MemoryStore(shared, clock)
    upkeep = Upkeep(store, "default", settings(lease=20.0), clock)
    await upkeep.round()
    task = await _claimed(store, clock, ttl=20.0)
    clock.advance(600)
    await upkeep.round()
    (found,) = await store.get([task.id])
    assert isinstance(found, qo.Task) and found.state == "running"
    for _ in range(2):
        clock.advance(10.5)
        await upkeep.round()
    (found,) = await store.get([task.id])
    assert isinstance(found, qo.Task) and found.state == "pending"


async def test_upkeep_expires_at_once_without_a_gap() -> None:
    """A fresh worker does not wait: what ran out is expired in its first round."""
    clock, shared = ManualClock(), SharedMemory()
    store = MemoryStore(shared, clock)
    task = await _claimed(store, clock, ttl=20.0)
    clock.advance(21)
    await Upkeep(store, "default", settings(lease=20.0), clock).round()
    (found,) = await store.get([task.id])
    assert isinstance(found, qo.Task) and (found.state, found.losses) == ("pending", 1)


async def _claimed(store: Any, clock: ManualClock, ttl: float) -> Any:
    await store.submit([lifecycle.submit(id=clock.new_id(), type="job", now=clock.now())])
    claimed = await store.claim(Want(worker_id="other", lease_id=clock.new_id(), limit=1, ttl=ttl))
    return claimed.tasks[0]


async def test_retention_keeps_to_its_queue(tmp_path: Path) -> None:
    """A worker purges old tasks of its own queue, never those of others in the same store."""
    q = make_queue("memory", tmp_path, keep_completed=0.0)
    other = qo.Queue(store=q.open_store, name="other", settings=q.settings)

    @q.task
    async def job() -> None: ...

    @other.task(name="job")
    async def job2() -> None: ...

    kept = await job2.submit()
    await qo.Worker(other).run_once()
    await job.submit()

    async def purged() -> bool:
        return (await q.stats()).completed == 0 and (await q.stats()).pending == 0

    async with working(q):
        await until(purged)
    assert (await other.get(kept.id)).state == "completed"
    await q.close()
    await other.close()


async def test_blocked_loop_keeps_its_lease(tmp_path: Path) -> None:
    """A handler that blocks the event loop for longer than its lease keeps it, while another worker looks for loot."""
    q = make_queue("sqlite", tmp_path, lease=1.0, renew=0.25)
    ran: list[int] = []

    @q.task
    async def job() -> str:
        ran.append(qo.current().task.attempt)
        blocking.wait(2.5)  # the whole loop of this worker stands still
        return "done"

    blocking = threading.Event()
    handle = await job.submit()
    worker = qo.Worker(q, upkeep=False)
    thread = threading.Thread(target=lambda: asyncio.run(worker.run(burst=True, signals=False)))
    thread.start()
    async with working(q):  # its own loop, here, looks every 0.1 s
        task = await until_state(q, handle.id, "completed")
    thread.join()
    assert (task.output, task.attempt, task.losses, ran) == ("done", 1, 0, [1])
    await q.close()

"""Concurrency, rates, pause and capabilities: what may run, how much of it at once, and how soon after another."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.worker.worker_tools import Recorder, burst, make_queue, until, until_state, working

import qo
from qo.clock import ManualClock
from qo.worker.limits import Rates, Slots, TokenBucket


class Gauge:
    """How many are inside at once, and the most there ever were."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    def __enter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        self.now -= 1


async def test_concurrency_overall(q: qo.Queue) -> None:
    """As many run at once as the worker may run, never more."""
    gauge = Gauge()

    @q.task
    async def job() -> None:
        with gauge:
            await asyncio.sleep(0.002)

    await q.submit_many([job.call() for _ in range(60)])
    await burst(q, concurrency=4)
    assert gauge.most == 4


async def test_concurrency_by_type(q: qo.Queue) -> None:
    """A type with a limit of its own keeps to it, and does not hold up others behind it."""
    limited, free, done = Gauge(), Gauge(), []
    release = asyncio.Event()

    @q.task(concurrency=2)
    async def slow() -> None:
        with limited:
            await release.wait()

    @q.task
    async def quick() -> None:
        with free:
            await asyncio.sleep(0)
        done.append(1)

    slows = await q.submit_many([slow.call() for _ in range(20)])  # all of them before the quick ones
    await q.submit_many([quick.call() for _ in range(20)])
    async with working(q, concurrency=5):
        await until(lambda: len(done) == 20)
        assert limited.now == 2
        release.set()
        for handle in slows:
            await until_state(q, handle.id, "completed")
    assert limited.most == 2 and free.most <= 5


async def test_place_freed_while_the_store_is_busy(tmp_path: Path) -> None:
    """A place of a limited type that gets free during a claim is used at once, not after the longest poll."""
    q = make_queue("sqlite", tmp_path, poll_max=60.0)

    @q.task(concurrency=1)
    async def job() -> None: ...

    handles = await q.submit_many([job.call() for _ in range(50)])
    async with working(q, concurrency=10) as worker:
        async with asyncio.timeout(20):
            await until(lambda: worker.counters["completed"] == len(handles))
    await q.close()


async def test_rate_by_type_counted(tmp_path: Path) -> None:
    """With a clock that stands still a type starts its burst and not one more; with time come the next."""
    clock = ManualClock()
    q = make_queue("memory", tmp_path, clock=clock)
    started: list[int] = []

    @q.task(rate_limit=5)
    async def job(x: int) -> None:
        started.append(x)

    @q.task
    async def other() -> None: ...

    await q.submit_many([job.call(x=x) for x in range(20)])
    last = await other.submit()
    async with working(q):
        await until_state(q, last.id, "completed")
        await until(lambda: len(started) == 5)
        for expected in (10, 15, 20):
            clock.advance(1.0)
            await until(lambda expected=expected: len(started) == expected)
    assert started == list(range(20))


async def test_overall_rate_of_an_administrator(tmp_path: Path) -> None:
    """An overall limit set in the store holds for all types of a worker."""
    clock = ManualClock()
    q = make_queue("memory", tmp_path, clock=clock)
    started: list[int] = []

    @q.task
    async def job(x: int) -> None:
        started.append(x)

    await q.set_rate_limit(3)
    async with working(q) as worker:
        await until(lambda: worker._wake is not None)
        await until(lambda: q.workers())
        await q.submit_many([job.call(x=x) for x in range(9)])
        await until(lambda: len(started) == 3)
        clock.advance(1.0)
        await until(lambda: len(started) == 6)
        clock.advance(1.0)
        await until(lambda: len(started) == 9)


def test_administrators_win() -> None:
    """A limit in the store replaces that of the code; 0 lifts it."""
    clock = ManualClock()
    rates = Rates({"a": 5.0, "b": 5.0}, clock)
    assert rates.room() == {"a": 5, "b": 5}
    rates.set(0.0, {"a": 2.0, "b": 0.0, "c": 1.0})
    assert rates.room() == {"a": 2, "c": 1}
    rates.set(0.0, {})
    assert rates.room() == {"a": 5, "b": 5}


def test_buckets_keep_their_tokens() -> None:
    """Reading the same controls again gives no new tokens."""
    clock = ManualClock()
    rates = Rates({}, clock)
    rates.set(2.0, {"a": 1.0})
    assert rates.limit(10) == 2
    rates.take("a")
    rates.set(2.0, {"a": 1.0})
    assert rates.limit(10) == 1 and rates.room() == {"a": 0} and rates.wait() == pytest.approx(1.0)
    clock.advance(0.5)
    assert rates.limit(10) == 2 and rates.wait() == pytest.approx(0.5)


def test_slow_rates() -> None:
    """Less than one a second starts one, then waits."""
    clock = ManualClock()
    bucket = TokenBucket(0.1, clock)
    assert bucket.available() == 1
    bucket.take()
    assert bucket.available() == 0 and bucket.wait() == pytest.approx(10.0)
    clock.advance(10.0)
    assert bucket.available() == 1


def test_slots() -> None:
    """Places are counted overall and by type."""
    slots = Slots(3, {"a": 1})
    slots.take("a")
    slots.take("b")
    assert (slots.free, slots.used, slots.room()) == (1, 2, {"a": 0})
    slots.give_back("a")
    assert (slots.free, slots.room()) == (2, {"a": 1})


async def test_burst_waits_for_the_rate(q: qo.Queue) -> None:
    """A burst does not leave tasks behind because their type is limited for the moment."""

    @q.task(rate_limit=50)
    async def job() -> None: ...

    await q.submit_many([job.call() for _ in range(60)])
    worker = await burst(q, concurrency=100)
    assert worker.counters["completed"] == 60


async def test_pause_and_resume(q: qo.Queue) -> None:
    """A paused queue starts nothing new; resumed, it goes on at once."""
    ran: list[str] = []

    @q.task
    async def job(name: str) -> None:
        ran.append(name)

    @q.task
    async def other(name: str) -> None:
        ran.append(name)

    await q.pause()
    handle = await job.submit(name="paused")
    await burst(q)
    assert ran == []
    async with working(q):
        await q.resume()
        await until_state(q, handle.id, "completed")
        await q.pause("job")
        waiting = await job.submit(name="type paused")
        await until_state(q, (await other.submit(name="other")).id, "completed")
        assert (await q.get(waiting.id)).state == "pending"
        await q.resume("job")
        await until_state(q, waiting.id, "completed")
    assert ran == ["paused", "other", "type paused"]


async def test_capabilities(q: qo.Queue) -> None:
    """A task that requires something runs only where it is to be had, and holds up nobody."""

    @q.task
    async def job(x: int) -> None: ...

    gpu = await job.options(requires=["gpu"]).submit(x=1)
    plain = await job.submit(x=2)
    await burst(q)
    assert ((await q.get(gpu.id)).state, (await q.get(plain.id)).state) == ("pending", "completed")
    await burst(q, capabilities=["cpu", "gpu"])
    assert (await q.get(gpu.id)).state == "completed"


async def test_idle_worker_does_not_poll(tmp_path: Path) -> None:
    """Where wake-ups are pushed an idle worker claims a few times, not in a loop; new work is claimed at once."""
    calls: list[str] = []
    real = make_queue("memory", tmp_path, poll_max=60.0)
    q = make_queue("memory", tmp_path, store=lambda: Recorder(real.open_store(), calls, []), poll_max=60.0)

    @q.task
    async def job() -> None: ...

    async with working(q):
        for _ in range(5):
            await until_state(real, (await q.submit("job", {})).id, "completed")
        await until(lambda: q.workers())
    assert len(calls) <= 15
    await q.close()
    await real.close()


async def test_broken_wake_ups_are_no_busy_loop(tmp_path: Path) -> None:
    """A store whose `wait` fails is polled with pauses."""
    calls: list[str] = []
    real = make_queue("memory", tmp_path)

    class Deaf(Recorder):
        async def wait(self, timeout: float) -> None:
            raise qo.Unavailable("the connection for wake-ups is gone")

    q = make_queue("memory", tmp_path, store=lambda: Deaf(real.open_store(), calls, []), poll_max=0.05, poll_min=0.05)

    @q.task
    async def job() -> None: ...

    async with working(q):
        await until(lambda: len(calls) > 2)
        before = len(calls)
        await asyncio.sleep(0.2)  # not to wait for anything: to see how much happens meanwhile
        assert len(calls) - before < 20
        await until_state(real, (await q.submit("job", {})).id, "completed")
    await q.close()
    await real.close()


async def test_nothing_to_run(tmp_path: Any) -> None:
    """A worker without handlers says so at once."""
    q = make_queue("memory", tmp_path)
    with pytest.raises(qo.ConfigError, match="nothing to run"):
        await qo.Worker(q).run(signals=False)
    with pytest.raises(qo.ConfigError, match="at least 1"):
        qo.Worker(q, concurrency=0)
    await q.close()

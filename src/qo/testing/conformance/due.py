"""Delayed, snoozed and backing-off tasks: not claimed early, never in the way, announced by `next_due`."""

from datetime import timedelta

from qo import lifecycle
from qo.outcomes import Snoozed
from qo.task import Task
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, SLACK, good, ids, raised


async def backing_off(bench: Bench, *, age: float = HOUR, after: float = HOUR) -> Task:
    """A task with an old rank that failed and waits for its retry."""
    task = await bench.running(age=age)
    assert await bench.settle(task, raised(after=after)) == "written"
    return await bench.get(task.id)


@scenario
async def delayed_is_not_claimed(bench: Bench) -> None:
    """A task scheduled for later is not claimed before."""
    task = await bench.submit(delay=HOUR, priority="high")
    assert await bench.claim(5) == []
    assert (await bench.get(task.id)).state == "pending"


@scenario
async def delayed_is_not_in_the_way(bench: Bench) -> None:
    """Delayed tasks do not keep others from being claimed, however many there are."""
    good(await bench.store.submit([bench.task(age=HOUR, delay=60, priority="high") for _ in range(40)]))
    ready = [await bench.submit(priority="low") for _ in range(3)]
    assert ids(await bench.claim(2)) == ids(ready[:2])
    assert ids(await bench.claim(5)) == [ready[2].id]


@scenario
async def backing_off_is_not_claimed(bench: Bench) -> None:
    """A task that waits for its retry is not claimed before, whatever its rank."""
    await backing_off(bench)
    assert await bench.claim(5) == []


@scenario
async def backing_off_is_not_in_the_way(bench: Bench) -> None:
    """Tasks that wait for their retry with old ranks do not hide the ready ones behind them."""
    good(await bench.store.submit([bench.task(age=HOUR) for _ in range(20)]))
    for task in await bench.claim(20):
        assert await bench.settle(task, raised(after=HOUR)) == "written"
    ready = await bench.submit(priority="low")
    assert ids(await bench.claim(1)) == [ready.id]
    assert await bench.claim(5) == []


@scenario
async def backoff_from_the_policy_is_kept(bench: Bench) -> None:
    """A failure without a wish of its own waits as long as its policy says."""
    task = await bench.running()
    now = bench.now()
    assert await bench.settle(task, raised(), at=now) == "written"
    stored = await bench.get(task.id)
    assert stored.available_at == now + timedelta(seconds=5)
    assert (stored.state, stored.failures, stored.rank) == ("pending", 1, task.rank)


@scenario
async def snoozed_is_not_claimed(bench: Bench) -> None:
    """A snoozed task is not claimed before the time it asked for."""
    task = await bench.running()
    until = bench.ago(-HOUR)
    assert await bench.settle(task, Snoozed(until)) == "written"
    assert await bench.claim(5) == []
    stored = await bench.get(task.id)
    assert (stored.available_at, stored.scheduled_at, stored.failures) == (until, until, 0)


@scenario
async def becomes_ready_when_due(bench: Bench) -> None:
    """A delayed task is claimed once its time has come, not before."""
    task = await bench.submit(delay=0.2)
    await bench.until(task.available_at)
    held = await bench.claim_one()
    assert held.id == task.id
    assert held.started_at is not None and held.started_at >= task.available_at


@scenario
async def due_tasks_stand_by_rank(bench: Bench) -> None:
    """Tasks that have become due are claimed in the order of rank, among those that were ready before."""
    late = await bench.submit(delay=0.1, priority="medium")
    later = await bench.submit(delay=0.2, priority="high")
    ready = await bench.submit(priority="low")
    early = await bench.submit(age=60, priority="high")
    await bench.until(later.available_at)
    assert ids(await bench.claim(5)) == ids([early, later, late, ready])


@scenario
async def a_retry_that_is_due_keeps_its_rank(bench: Bench) -> None:
    """A retry whose backoff is over is claimed before newer tasks."""
    task = await backing_off(bench, after=0.1)
    await bench.submit()
    await bench.until(task.available_at)
    assert (await bench.claim_one()).id == task.id


@scenario
async def says_when_the_next_is_due(bench: Bench) -> None:
    """A claim says when the next delayed task may run."""
    await bench.submit(delay=3 * HOUR)
    soon = await bench.submit(delay=HOUR)
    await bench.submit("other", delay=2 * HOUR)
    claimed = await bench.ask(bench.want(5))
    assert claimed.tasks == []
    assert claimed.next_due is not None
    assert soon.available_at - SLACK <= claimed.next_due <= soon.available_at


@scenario
async def says_it_beside_ready_tasks(bench: Bench) -> None:
    """`next_due` is there for retries too, and when tasks were claimed."""
    task = await backing_off(bench, after=2 * HOUR)
    ready = await bench.submit()
    claimed = await bench.ask(bench.want(5))
    assert ids(claimed.tasks) == [ready.id]
    assert claimed.next_due is not None
    assert task.available_at - SLACK <= claimed.next_due <= task.available_at


@scenario
async def only_what_this_worker_can_run(bench: Bench) -> None:
    """`next_due` speaks of the lanes of this worker: its queues, types and capabilities, nothing paused."""
    await bench.submit("theirs", delay=HOUR)
    await bench.submit("mine", delay=HOUR, requires=["gpu"])
    await bench.submit("mine", delay=HOUR, queue="other")
    assert (await bench.ask(bench.want(types=["mine"]))).next_due is None
    mine = await bench.submit("mine", delay=3 * HOUR)
    due = (await bench.ask(bench.want(types=["mine"]))).next_due
    assert due is not None and mine.available_at - SLACK <= due <= mine.available_at
    await bench.control(paused_types=frozenset({"mine"}))
    assert (await bench.ask(bench.want(types=["mine"]))).next_due is None


@scenario
async def what_is_no_longer_delayed_is_not_due(bench: Bench) -> None:
    """A delayed task that was cancelled, or made ready by a replay, is not announced any more."""
    first, second = await bench.submit(delay=HOUR), await bench.submit(delay=HOUR)
    assert await bench.cancel(first.id) == "written"
    assert await bench.amend(lifecycle.replay(second, bench.now())) == "written"
    claimed = await bench.ask(bench.want(5))
    assert (ids(claimed.tasks), claimed.next_due) == ([second.id], None)

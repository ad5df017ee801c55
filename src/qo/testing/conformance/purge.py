"""Purge: many ended tasks go at once, never a live one, with all that belongs to them."""

from qo.outcomes import Returned
from qo.stores.protocol import Filter
from qo.task import STATES
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, good, ids, raised

ALL = 1000


async def left(bench: Bench) -> set[str]:
    """The states of what is still there."""
    return {task.state for task in (await bench.store.find(Filter(states=STATES))).tasks}


@scenario
async def ended_tasks(bench: Bench) -> None:
    """Without states, everything that ended goes; pending, running and archived tasks stay."""
    for state in STATES:
        await bench.make(state, f"type {state}")
    await bench.settle(await bench.running(), raised(after=HOUR))
    assert await bench.store.purge(Filter(), ALL) == 3
    assert await left(bench) == {"pending", "running", "archived"}
    assert await bench.store.purge(Filter(), ALL) == 0


@scenario
async def never_live_tasks(bench: Bench) -> None:
    """Live tasks are not purged even when their states are named."""
    await bench.submit("a", delay=HOUR)
    await bench.submit("b")
    await bench.running("c")
    await bench.running("d", ttl=0)
    assert await bench.store.purge(Filter(states=("pending", "running")), ALL) == 0
    assert await bench.store.purge(Filter(states=STATES), ALL) == 0
    stats = await bench.store.stats("default")
    assert (stats.pending, stats.running) == (2, 2)


@scenario
async def archived_when_asked(bench: Bench) -> None:
    """Archived tasks go when their state is named."""
    for state in STATES:
        await bench.make(state, f"type {state}")
    assert await bench.store.purge(Filter(states=("archived", "failed")), ALL) == 2
    assert await left(bench) == {"pending", "running", "completed", "cancelled"}


@scenario
async def by_age(bench: Bench) -> None:
    """completed_before leaves what ended later."""
    good(await bench.store.submit([bench.task() for _ in range(3)]))
    tasks = await bench.claim(3)
    for task, ago in zip(tasks, (3000, 2000, 1000), strict=True):
        await bench.settle(task, Returned(), at=bench.ago(ago))
    assert await bench.store.purge(Filter(completed_before=bench.ago(1500)), ALL) == 2
    assert ids(await bench.store.find(Filter())) == [tasks[2].id]


@scenario
async def by_filter(bench: Bench) -> None:
    """Queue, type and tags restrict a purge as they restrict a list."""
    keep = [
        await bench.make("completed", queue="other"),
        await bench.make("completed", "b"),
        await bench.make("completed", tags={"a": "2"}),
    ]
    await bench.make("completed", tags={"a": "1"})
    assert await bench.store.purge(Filter(queue="default", types=("job",), tags={"a": "1"}), ALL) == 1
    assert sorted(ids(await bench.store.find(Filter()))) == sorted(ids(keep))


@scenario
async def at_most_the_limit(bench: Bench) -> None:
    """No more than the limit go in one call, and the answer says how many went."""
    good(await bench.store.submit([bench.task() for _ in range(7)]))
    for task in await bench.claim(7):
        await bench.settle(task, Returned())
    gone = [await bench.store.purge(Filter(), 3) for _ in range(4)]
    assert gone == [3, 3, 1, 0]
    assert (await bench.store.stats("default")).completed == 0


@scenario
async def with_all_that_belongs_to_them(bench: Bench) -> None:
    """A purged task is gone with its history, and its key is free."""
    task = await bench.make("completed", key="k")
    assert await bench.store.purge(Filter(), ALL) == 1
    assert await bench.gone(task.id)
    assert await bench.history(task.id) == []
    assert (await bench.send(bench.task(key="k"))).outcome == "created"


@scenario
async def keeps_the_key_of_another(bench: Bench) -> None:
    """Purging a task that held a key before does not free the key of the one that holds it now."""
    await bench.make("completed", key="k", age=HOUR, key_window=60)
    new = await bench.submit(key="k")
    assert await bench.store.purge(Filter(), ALL) == 1
    answer = await bench.send(bench.task(key="k"))
    assert (answer.outcome, answer.task.id) == ("key_held", new.id)

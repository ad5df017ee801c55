"""Reading: get, history and stats say what was written, at once and for every store. Lists are in `find`."""

from qo import lifecycle
from qo.outcomes import Returned
from qo.task import STATES, State
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, by_type, counts, failed_for_good, good, ids, raised, read, same


@scenario
async def get_answers_in_order(bench: Bench) -> None:
    """`get` answers for each id in its place: None where there is no task, twice for an id asked twice."""
    first, second = await bench.submit(), await bench.submit(queue="other")
    got = await read(bench.store, [second.id, bench.ids.new_id(), first.id, second.id])
    assert [task.id if task else None for task in got] == [second.id, None, first.id, second.id]
    assert await read(bench.store, []) == []


@scenario
async def get_many(bench: Bench) -> None:
    """Hundreds of tasks can be read at once."""
    tasks = [bench.task(input=number) for number in range(300)]
    good(await bench.store.submit(tasks))
    assert [task.input if task else None for task in await read(bench.store, ids(tasks))] == list(range(300))


@scenario
async def own_writes_are_seen(bench: Bench) -> None:
    """What a verb wrote is seen by every read that starts after it returned, here and in other stores."""
    other = await bench.open_another()
    task = await bench.submit()
    assert (await bench.get(task.id, store=other)).state == "pending"
    held = await bench.claim_one(store=other)
    assert same(await bench.get(task.id), held)
    await bench.settle(held, Returned())
    assert (await bench.get(task.id, store=other)).state == "completed"
    assert (await other.stats("default")).completed == 1
    assert len(await other.history(task.id)) == 3


@scenario
async def versions_only_grow(bench: Bench) -> None:
    """Every transition leaves a larger version."""
    task = await bench.submit()
    versions = [task.version]
    held = await bench.claim_one()
    versions.append(held.version)
    await bench.settle(held, failed_for_good())
    versions.append((await bench.get(task.id)).version)
    await bench.amend(lifecycle.archive(await bench.get(task.id), bench.now()))
    versions.append((await bench.get(task.id)).version)
    assert versions == sorted(set(versions)), versions


@scenario
async def history_of_nobody(bench: Bench) -> None:
    """A task that is not there has no history."""
    await bench.submit()
    assert await bench.history(bench.ids.new_id()) == []


@scenario
async def history_is_a_chain(bench: Bench) -> None:
    """History has every transition, oldest first; each starts where the one before ended."""
    task = await bench.running(ttl=0)
    await bench.expire(task)
    await bench.settle(await bench.claim_one(), raised(after=0))
    held = await bench.claim_one()
    await bench.cancel(held.id)
    await bench.settle(await bench.get(held.id), Returned())
    await bench.amend(lifecycle.replay(await bench.get(held.id), bench.now()))
    await bench.settle(await bench.claim_one(), Returned())
    await bench.amend(lifecycle.archive(await bench.get(held.id), bench.now()))
    path = "pending running pending running pending running running cancelled pending running completed archived"
    lines = await bench.history(task.id)
    assert [line.became for line in lines] == path.split()
    assert [line.was for line in lines] == [None, *path.split()[:-1]]
    assert [line.attempt for line in lines] == [0, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4]


@scenario
async def stats_of_nothing(bench: Bench) -> None:
    """An empty queue has zeros everywhere."""
    stats = await bench.store.stats("default")
    assert (counts(stats), by_type(stats)) == ({}, {})
    assert (stats.ready, stats.delayed, stats.ended_last_minute) == (0, 0, 0)
    assert [each for each in stats.by_priority.values() if each.depth] == []


@scenario
async def stats_by_state_and_type(bench: Bench) -> None:
    """Stats count every task of the queue by state and by type."""
    for number, state in enumerate(STATES):
        for _ in range(number + 1):
            await bench.make(state, f"of {state}", delay=HOUR if state == "pending" else None)
    stats = await bench.store.stats("default")
    expected: dict[State, int] = {state: number + 1 for number, state in enumerate(STATES)}
    assert counts(stats) == expected
    assert by_type(stats) == {f"of {state}": {state: number} for state, number in expected.items()}
    assert counts(await bench.store.stats("other")) == {}


@scenario
async def stats_follow_every_verb(bench: Bench) -> None:
    """Stats are right after each step of a task's life."""

    async def is_(state: State) -> None:
        stats = await bench.store.stats("default")
        assert (counts(stats), by_type(stats)) == ({state: 1}, {"job": {state: 1}})

    task = await bench.submit()
    await is_("pending")
    held = await bench.claim_one(ttl=0)
    await is_("running")
    await bench.expire(held)
    await is_("pending")
    held = await bench.claim_one()
    await bench.renew(held)
    await bench.settle(held, raised(after=0))
    await is_("pending")
    await bench.cancel(task.id)
    await is_("cancelled")
    await bench.amend(lifecycle.replay(await bench.get(task.id), bench.now()))
    await is_("pending")
    held = await bench.claim_one()
    await bench.cancel(task.id)
    await is_("running")
    await bench.settle(await bench.get(task.id), Returned())
    await is_("cancelled")
    await bench.amend(lifecycle.archive(await bench.get(task.id), bench.now()))
    await is_("archived")
    await bench.amend(lifecycle.unarchive(await bench.get(task.id), bench.now()))
    await is_("cancelled")
    await bench.send(task)
    await is_("cancelled")
    await bench.amend(lifecycle.delete(await bench.get(task.id), bench.now()))
    assert counts(await bench.store.stats("default")) == {}


@scenario
async def stats_ready_and_delayed(bench: Bench) -> None:
    """Pending tasks are ready, or delayed: scheduled for later or waiting for a retry."""
    await bench.settle(await bench.running(), raised(after=HOUR))
    await bench.submit(delay=HOUR)
    for _ in range(3):
        await bench.submit()
    stats = await bench.store.stats("default")
    assert (stats.pending, stats.ready, stats.delayed) == (5, 3, 2)


@scenario
async def stats_by_priority(bench: Bench) -> None:
    """For each priority: how many are ready, and since when the one that has waited longest is."""
    await bench.submit(priority="high", delay=HOUR)
    oldest = await bench.submit(priority="high", age=500)
    await bench.submit(priority="high", age=100)
    seven = await bench.submit(priority=7, age=50)
    await bench.running("other", priority="low")
    stats = await bench.store.stats("default")
    found = {priority: (each.depth, each.oldest) for priority, each in stats.by_priority.items() if each.depth}
    assert found == {"high": (2, oldest.scheduled_at), 7: (1, seven.scheduled_at)}


@scenario
async def stats_of_the_last_minute(bench: Bench) -> None:
    """`ended_last_minute` counts what completed, failed or was cancelled in the last minute."""
    await bench.settle(await bench.running(), Returned())
    await bench.settle(await bench.running(), failed_for_good())
    await bench.settle(await bench.running(), raised())
    await bench.cancel((await bench.submit()).id)
    await bench.settle(await bench.running(), Returned(), at=bench.ago(600))
    assert (await bench.store.stats("default")).ended_last_minute == 3

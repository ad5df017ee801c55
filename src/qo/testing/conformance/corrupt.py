"""A record that cannot be read is handed to one worker, which ends it; nothing else suffers."""

from qo.stores.protocol import Filter
from qo.testing.conformance.bench import Bench, Skipped
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import give_up, good, ids


@scenario
async def is_claimed_and_given_up(bench: Bench) -> None:
    """A claim names the unreadable record under its lease, beside the tasks; its holder settles it as failed."""
    good(await bench.store.submit([bench.task() for _ in range(3)]))
    tasks = (await bench.store.find(Filter(), sort="oldest")).tasks
    if not await bench.harness.corrupt(bench.store, tasks[1].id):
        raise Skipped("this harness cannot damage a record")
    want = bench.want(5)
    claimed = await bench.ask(want)
    assert ids(claimed.tasks) == [tasks[0].id, tasks[2].id]
    (bad,) = claimed.corrupt
    assert (bad.id, bad.lease_id, bad.attempt) == (tasks[1].id, want.lease_id, 1)
    settlement = give_up(bad, bench.now())
    assert await bench.write(settlement) == "written"
    assert await bench.write(settlement) == "written"
    again = await bench.ask(bench.want(5))
    assert (again.tasks, again.corrupt) == ([], [])


@scenario
async def does_not_spoil_the_lists(bench: Bench) -> None:
    """Lists, stats and upkeep go on with the tasks that can be read."""
    good(await bench.store.submit([bench.task() for _ in range(3)]))
    tasks = (await bench.store.find(Filter(), sort="oldest")).tasks
    if not await bench.harness.corrupt(bench.store, tasks[1].id):
        raise Skipped("this harness cannot damage a record")
    assert {tasks[0].id, tasks[2].id} <= set(ids(await bench.store.find(Filter())))
    await bench.store.stats("default")
    await bench.claim(5, ttl=0)
    assert {tasks[0].id, tasks[2].id} <= set(ids(await bench.store.expired(10)))

"""The order of claiming: by rank, ties by id, on every store; across lanes where the store claims strict order.

Times are those of the record, so ageing is checked with tasks made earlier instead of waiting.
"""

from qo import lifecycle
from qo.outcomes import GivenBack, Snoozed
from qo.stores.protocol import Store
from qo.task import Task
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import failed_for_good, good, ids, raised

MINUTE = 60.0


async def one_by_one(bench: Bench, count: int, store: Store | None = None) -> list[str]:
    """The ids in the order in which single claims get them."""
    return [(await bench.claim_one(store=store)).id for _ in range(count)]


async def first_of(bench: Bench, *tasks: Task) -> Task:
    """Submit these, and see which is claimed first."""
    good(await bench.store.submit(tasks))
    chosen = (await bench.claim_one()).id
    for _ in tasks[1:]:
        await bench.claim_one()
    return next(task for task in tasks if task.id == chosen)


@scenario
async def first_in_first_out(bench: Bench) -> None:
    """Tasks of one priority go by age, in whatever order they were stored."""
    tasks = [bench.task(age=age) for age in (10, 50, 30, 20, 40)]
    good(await bench.store.submit(tasks))
    assert await one_by_one(bench, 5) == [tasks[n].id for n in (1, 4, 2, 3, 0)]


@scenario
async def ties_by_id(bench: Bench) -> None:
    """Tasks of one rank go by id, in whatever order they were stored."""
    now = bench.now()
    tasks = [lifecycle.submit(id=bench.ids.new_id(), type="job", now=now) for _ in range(12)]
    good(await bench.store.submit(tasks[::-1]))
    assert ids(await bench.claim(5)) == ids(tasks[:5])
    assert await one_by_one(bench, 7) == ids(tasks[5:])


@scenario
async def higher_levels_first(bench: Bench) -> None:
    """Fresh tasks: high before medium before low."""
    tasks = [bench.task(priority=priority) for priority in ("low", "medium", "high", "low", "medium", "high")]
    good(await bench.store.submit(tasks))
    assert await one_by_one(bench, 6) == [tasks[n].id for n in (2, 5, 1, 4, 0, 3)]


@scenario
async def ints_between_high_and_low(bench: Bench) -> None:
    """An int is a priority between high and low, larger first."""
    priorities = (-1, 7, "low", 0, "high", -(2**31) + 1, 1, 2**31 - 1, "medium")
    now = bench.now()
    tasks = [lifecycle.submit(id=bench.ids.new_id(), type="job", now=now, priority=priority) for priority in priorities]
    good(await bench.store.submit(tasks))
    got = [(await bench.claim_one()).priority for _ in tasks]
    assert got == ["high", 2**31 - 1, 7, 1, "medium", "medium", -1, -(2**31) + 1, "low"]


@scenario
async def smallest_rank_first(bench: Bench) -> None:
    """One batch comes in the order of rank, whatever levels and ages are in it."""
    options = [("low", 40), ("high", 5), ("medium", 18), ("medium", 0), ("low", 12), ("high", 0), (3, 9), ("low", 0)]
    tasks = [bench.task(priority=priority, age=minutes * MINUTE) for priority, minutes in options]
    good(await bench.store.submit(tasks))
    expected = ids(sorted(tasks, key=lambda task: (task.rank, task.id)))
    assert ids(await bench.claim(5)) == expected[:5]
    assert ids(await bench.claim(5)) == expected[5:]


@scenario
async def low_overtakes_high_after_30_minutes(bench: Bench) -> None:
    """A low task waits behind newer high ones for 30 minutes, not longer."""
    for minutes, first in ((29, "high"), (31, "low")):
        old, new = bench.task(priority="low", age=minutes * MINUTE), bench.task(priority="high")
        assert (await first_of(bench, old, new)).priority == first


@scenario
async def low_overtakes_medium_after_10_minutes(bench: Bench) -> None:
    """A low task waits behind newer medium ones for 10 minutes, not longer."""
    for minutes, first in ((9, "medium"), (11, "low")):
        old, new = bench.task(priority="low", age=minutes * MINUTE), bench.task(priority="medium")
        assert (await first_of(bench, old, new)).priority == first


@scenario
async def medium_overtakes_high_after_20_minutes(bench: Bench) -> None:
    """A medium task waits behind newer high ones for 20 minutes, not longer."""
    for minutes, first in ((19, "high"), (21, "medium")):
        old, new = bench.task(priority="medium", age=minutes * MINUTE), bench.task(priority="high")
        assert (await first_of(bench, old, new)).priority == first


@scenario
async def across_lanes(bench: Bench) -> None:
    """Types, queues and required capabilities do not matter for the order."""
    bench.need("strict_order")
    tasks = [
        bench.task(type, queue=queue, requires=requires, age=age, priority=priority)
        for type, queue, requires, age, priority in (
            ("a", "default", [], 10, "medium"),
            ("b", "default", [], 20, "medium"),
            ("a", "other", [], 30, "medium"),
            ("a", "default", ["gpu"], 40, "medium"),
            ("b", "other", ["gpu"], 0, "high"),
            ("c", "default", [], 5, "medium"),
            ("c", "default", [], 0, "low"),
            ("a", "default", [], 45, "medium"),
        )
    ]
    good(await bench.store.submit(tasks))
    expected = ids(sorted(tasks, key=lambda task: (task.rank, task.id)))
    queues, capabilities = ["default", "other"], ["gpu"]
    got = ids(await bench.claim(3, queues=queues, capabilities=capabilities))
    got += [(await bench.claim_one(queues=queues, capabilities=capabilities)).id for _ in range(2)]
    got += ids(await bench.claim(9, queues=queues, capabilities=capabilities))
    assert got == expected


@scenario
async def within_each_lane(bench: Bench) -> None:
    """Whatever the order between lanes, inside one lane it is by rank, and a batch is sorted by rank."""
    tasks = [bench.task(f"type-{n % 3}", age=(n * 7) % 20, priority=("high", "low")[n % 2]) for n in range(24)]
    good(await bench.store.submit(tasks))
    got: list[Task] = []
    while batch := await bench.claim(5):
        assert [task.rank for task in batch] == sorted(task.rank for task in batch)
        got += batch
    for type in ("type-0", "type-1", "type-2"):
        lane = sorted((task for task in tasks if task.type == type), key=lambda task: (task.rank, task.id))
        assert ids(task for task in got if task.type == type) == ids(lane)


@scenario
async def a_retry_keeps_its_place(bench: Bench) -> None:
    """A task that failed and is available again stands where it stood, before newer ones."""
    old = await bench.running(age=60)
    await bench.submit(age=30)
    assert await bench.settle(old, raised(after=0)) == "written"
    again = await bench.claim_one()
    assert (again.id, again.rank) == (old.id, old.rank)


@scenario
async def a_lost_task_keeps_its_place(bench: Bench) -> None:
    """A task whose lease ran out stands where it stood, before newer ones."""
    old = await bench.running(age=60, ttl=0)
    await bench.submit(age=30)
    assert await bench.expire(old) == "written"
    again = await bench.claim_one()
    assert (again.id, again.rank) == (old.id, old.rank)


@scenario
async def what_is_given_back_keeps_its_place(bench: Bench) -> None:
    """A task that was given back stands where it stood, before newer ones."""
    old = await bench.running(age=60)
    await bench.submit(age=30)
    assert await bench.settle(old, GivenBack()) == "written"
    assert (await bench.claim_one()).id == old.id


@scenario
async def a_replay_goes_to_the_end(bench: Bench) -> None:
    """A replayed task ranks as if submitted now, behind those that wait already."""
    old = await bench.running(age=600)
    waiting = await bench.submit(age=30)
    await bench.settle(old, failed_for_good())
    await bench.amend(lifecycle.replay(await bench.get(old.id), bench.now()))
    assert await one_by_one(bench, 2) == [waiting.id, old.id]


@scenario
async def a_snoozed_task_goes_to_the_end(bench: Bench) -> None:
    """A snoozed task ranks by the time it asked for."""
    old = await bench.running(age=600)
    waiting = await bench.submit(age=30)
    assert await bench.settle(old, Snoozed(bench.now())) == "written"
    assert await one_by_one(bench, 2) == [waiting.id, old.id]

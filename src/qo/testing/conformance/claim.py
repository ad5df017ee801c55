"""Claim: who may take what, how much, and what a claimed task looks like. The order is in `order`, delays in `due`."""

from datetime import timedelta

from qo.outcomes import GivenBack, Returned
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, good, ids, same


@scenario
async def puts_it_under_a_lease(bench: Bench) -> None:
    """A claimed task is running under the lease of the want, and stored so."""
    task = await bench.submit(input="x")
    want = bench.want(worker="host:1@a+b.c-d_e", ttl=500)
    (held,) = (await bench.ask(want)).tasks
    assert (held.id, held.state, held.attempt) == (task.id, "running", 1)
    assert (held.lease_id, held.worker_id) == (want.lease_id, "host:1@a+b.c-d_e")
    assert (held.rank, held.input, held.failures, held.losses) == (task.rank, "x", 0, 0)
    assert bench.near(held.started_at, bench.now())
    assert bench.near(held.updated_at, bench.now())
    assert bench.near(held.lease_expires_at, bench.now() + timedelta(seconds=500))
    assert held.version > task.version
    assert same(await bench.get(task.id), held)


@scenario
async def writes_history(bench: Bench) -> None:
    """A claim is a line of history with attempt, lease and worker."""
    held = await bench.running()
    line = (await bench.history(held.id))[-1]
    assert (line.was, line.became, line.attempt) == ("pending", "running", 1)
    assert (line.lease_id, line.worker_id, line.actor, line.error) == (held.lease_id, held.worker_id, None, None)
    assert bench.near(line.at, bench.now())


@scenario
async def nothing_there(bench: Bench) -> None:
    """An empty queue is answered by nothing, not by contended, and nothing is due."""
    claimed = await bench.store.claim(bench.want(5))
    assert (claimed.tasks, claimed.corrupt, claimed.contended, claimed.next_due) == ([], [], False, None)


@scenario
async def at_most_the_limit(bench: Bench) -> None:
    """A claim takes up to its limit, the rest stays for the next one, nothing is given twice."""
    good(await bench.store.submit([bench.task() for _ in range(7)]))
    sizes: list[int] = []
    seen: set[str] = set()
    for limit in (3, 3, 3, 3):
        tasks = await bench.claim(limit)
        sizes.append(len(tasks))
        seen.update(ids(tasks))
    assert sizes == [3, 3, 1, 0]
    assert len(seen) == 7


@scenario
async def many_at_once(bench: Bench) -> None:
    """One claim can take a hundred tasks from several lanes, each under the same lease."""
    good(await bench.store.submit([bench.task(f"type-{number % 5}") for number in range(120)]))
    tasks = await bench.claim(100)
    assert len(set(ids(tasks))) == 100
    assert len({task.lease_id for task in tasks}) == 1
    assert len(await bench.claim(100)) == 20


@scenario
async def one_store_after_another(bench: Bench) -> None:
    """What one store claimed, another does not get."""
    other = await bench.open_another()
    good(await bench.store.submit([bench.task() for _ in range(4)]))
    first, second = await bench.claim(2), await bench.claim(5, store=other)
    assert (len(first), len(second)) == (2, 2)
    assert not set(ids(first)) & set(ids(second))


@scenario
async def attempts_grow(bench: Bench) -> None:
    """Every claim of a task is a new attempt under a new lease."""
    await bench.submit()
    leases: set[str | None] = set()
    for attempt in (1, 2, 3):
        task = await bench.claim_one()
        assert task.attempt == attempt
        leases.add(task.lease_id)
        await bench.settle(task, GivenBack())
    assert len(leases) == 3


@scenario
async def only_pending_tasks(bench: Bench) -> None:
    """Running, ended and archived tasks are never claimed."""
    for state in ("running", "completed", "failed", "cancelled", "archived"):
        await bench.make(state)
    assert await bench.claim(10) == []


@scenario
async def only_types_asked_for(bench: Bench) -> None:
    """A worker gets tasks of its types only, however many others stand in front."""
    good(await bench.store.submit([bench.task("other", age=HOUR, priority="high") for _ in range(30)]))
    mine = [await bench.submit("mine"), await bench.submit("mine too")]
    assert await bench.claim(5, types=["nobody's"]) == []
    assert await bench.claim(5, types=[]) == []
    assert sorted(ids(await bench.claim(5, types=["mine", "mine too", "nobody's"]))) == ids(mine)


@scenario
async def any_type(bench: Bench) -> None:
    """A worker that asks for any type gets all of them."""
    tasks = [await bench.submit(name) for name in ("a", "b", "c d")]
    assert sorted(ids(await bench.claim(5))) == sorted(ids(tasks))


@scenario
async def only_what_it_is_capable_of(bench: Bench) -> None:
    """A worker gets a task only when it has all the capabilities the task requires."""
    plain = await bench.submit(requires=[])
    gpu = await bench.submit(requires=["gpu"])
    both = await bench.submit(requires=["gpu", "arm64"])
    assert ids(await bench.claim(5)) == [plain.id]
    assert await bench.claim(5, capabilities=["arm64"]) == []
    assert ids(await bench.claim(5, capabilities=["gpu", "ssd"])) == [gpu.id]
    assert ids(await bench.claim(5, capabilities=["arm64", "gpu", "ssd"])) == [both.id]


@scenario
async def incapable_is_not_blocked(bench: Bench) -> None:
    """Tasks this worker cannot run do not keep it from those behind them, nor use up its limit."""
    good(await bench.store.submit([bench.task(age=HOUR, requires=["gpu"]) for _ in range(30)]))
    mine = await bench.submit()
    assert ids(await bench.claim(1)) == [mine.id]
    assert len(await bench.claim(50, capabilities=["gpu"])) == 30


@scenario
async def only_queues_asked_for(bench: Bench) -> None:
    """A worker gets tasks of its queues only, `default` unless said."""
    tasks = {queue: await bench.submit(queue=queue) for queue in ("default", "mail", "mail2")}
    assert ids(await bench.claim(5, queues=["mail"])) == [tasks["mail"].id]
    assert ids(await bench.claim(5)) == [tasks["default"].id]
    assert await bench.claim(5, queues=["default", "mail", "nowhere"]) == []
    assert ids(await bench.claim(5, queues=["nowhere", "mail2"])) == [tasks["mail2"].id]


@scenario
async def room_by_type(bench: Bench) -> None:
    """No more of a type are claimed than there is room for; other types fill the limit."""
    good(await bench.store.submit([bench.task("a", age=HOUR) for _ in range(6)]))
    good(await bench.store.submit([bench.task("b") for _ in range(6)]))
    types = [task.type for task in await bench.claim(5, room={"a": 2})]
    assert sorted(types) == ["a", "a", "b", "b", "b"]
    types = [task.type for task in await bench.claim(10, room={"a": 3, "b": 1, "c": 9})]
    assert sorted(types) == ["a", "a", "a", "b"]


@scenario
async def no_room(bench: Bench) -> None:
    """A type without room is left alone and does not block the others."""
    good(await bench.store.submit([bench.task("full", age=HOUR) for _ in range(5)]))
    free = await bench.submit("free")
    assert ids(await bench.claim(3, room={"full": 0})) == [free.id]
    assert await bench.claim(3, room={"full": 0}) == []


@scenario
async def room_is_shared_by_the_lanes_of_a_type(bench: Bench) -> None:
    """Room counts all tasks of a type, whatever they require and whatever queue they stand in."""
    for requires in ([], ["gpu"]):
        for queue in ("default", "other"):
            good(await bench.store.submit([bench.task(requires=requires, queue=queue) for _ in range(3)]))
    claim = await bench.claim(10, room={"job": 4}, capabilities=["gpu"], queues=["default", "other"])
    assert len(claim) == 4


@scenario
async def repeated_with_the_same_lease(bench: Bench) -> None:
    """A repeat with the same lease id answers with what that lease holds and takes no more."""
    good(await bench.store.submit([bench.task(priority="high" if n % 2 else "low") for n in range(6)]))
    want = bench.want(3)
    first = (await bench.ask(want)).tasks
    again = (await bench.ask(want)).tasks
    assert ids(again) == ids(first)
    assert all(same(one, other) for one, other in zip(first, again, strict=True))
    assert len(await bench.claim(10)) == 3
    assert all([len(await bench.history(task.id)) == 2 for task in first])


@scenario
async def repeated_by_another_store(bench: Bench) -> None:
    """The repeat may come over another connection."""
    good(await bench.store.submit([bench.task() for _ in range(4)]))
    other, want = await bench.open_another(), bench.want(2)
    first = (await bench.ask(want)).tasks
    assert ids((await bench.ask(want, store=other)).tasks) == ids(first)


@scenario
async def repeated_after_some_ended(bench: Bench) -> None:
    """A late repeat answers with what the lease still holds."""
    good(await bench.store.submit([bench.task() for _ in range(5)]))
    want = bench.want(3)
    first = (await bench.ask(want)).tasks
    await bench.settle(first[0], Returned())
    assert ids((await bench.ask(want)).tasks) == ids(first[1:])


@scenario
async def paused_queue(bench: Bench) -> None:
    """Nothing of a paused queue is claimed until it is resumed; other queues go on."""
    mine, other = await bench.submit(), await bench.submit(queue="other")
    await bench.control(paused=True)
    assert ids(await bench.claim(5, queues=["default", "other"])) == [other.id]
    assert await bench.claim(5) == []
    await bench.control(paused=False)
    assert ids(await bench.claim(5)) == [mine.id]


@scenario
async def paused_type(bench: Bench) -> None:
    """Nothing of a paused type is claimed in that queue; the types behind it are."""
    stopped = await bench.submit("stopped", age=HOUR)
    elsewhere = await bench.submit("stopped", queue="other")
    free = await bench.submit("free")
    await bench.control(paused_types=frozenset({"stopped"}))
    assert ids(await bench.claim(5)) == [free.id]
    assert ids(await bench.claim(5, queues=["other"])) == [elsewhere.id]
    await bench.control()
    assert ids(await bench.claim(5)) == [stopped.id]


@scenario
async def pause_reaches_every_store(bench: Bench) -> None:
    """A pause holds for the next claim of every other store, without delay."""
    other = await bench.open_another()
    good(await bench.store.submit([bench.task() for _ in range(3)]))
    assert len(await bench.claim(store=other)) == 1
    await bench.control(paused=True)
    assert await bench.claim(store=other) == []
    assert await bench.store.delete_record("control", "default")
    assert len(await bench.claim(5, store=other)) == 2


@scenario
async def pause_leaves_running_tasks_alone(bench: Bench) -> None:
    """While paused, what runs is renewed and settled as ever, and a repeated claim still answers."""
    await bench.submit()
    want = bench.want()
    (held,) = (await bench.ask(want)).tasks
    await bench.control(paused=True)
    assert ids((await bench.ask(want)).tasks) == [held.id]
    assert await bench.renew(held) == "held"
    assert await bench.settle(held, Returned()) == "written"

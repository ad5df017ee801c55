"""Wait: a hint that there may be work. Where wake-ups are pushed, nobody waits out the time while there is some.

That a wait ended early is shown by its timeout: an hour, in a scenario that counts as hung long before.
"""

import asyncio
from collections.abc import Awaitable, Callable

from qo import lifecycle
from qo.clock import SYSTEM
from qo.outcomes import GivenBack
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, ids, lost


async def wakes(bench: Bench, make_work: Callable[[], Awaitable[object]]) -> list[str]:
    """What another store gets that found nothing, waits, and is woken by the work made here."""
    bench.need("push_wakeup")
    other = await bench.open_another()
    assert await bench.claim(store=other) == []

    async def claimer() -> list[str]:
        while True:
            # A hint may be wrong, so the loop is the one a worker has.
            await other.wait(HOUR)
            if tasks := await bench.claim(store=other):
                return ids(tasks)

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(claimer())
        await SYSTEM.sleep(0.05)
        assert not waiting.done()
        await make_work()
    return waiting.result()


@scenario
async def ends_in_time(bench: Bench) -> None:
    """Without work a wait ends when its time is over."""
    await bench.store.wait(0)
    if bench.harness.clock is None:
        await bench.store.wait(0.05)
    assert await bench.claim() == []


@scenario
async def woken_by_a_submit(bench: Bench) -> None:
    """A task submitted by another store ends the wait."""
    task = bench.task()
    assert await wakes(bench, lambda: bench.send(task)) == [task.id]


@scenario
async def woken_by_what_is_given_back(bench: Bench) -> None:
    """A task that another worker gives back ends the wait."""
    task = await bench.running()
    assert await wakes(bench, lambda: bench.settle(task, GivenBack())) == [task.id]


@scenario
async def woken_by_a_replay(bench: Bench) -> None:
    """A task that is replayed ends the wait."""
    task = await bench.make("failed")
    assert await wakes(bench, lambda: bench.amend(lifecycle.replay(task, bench.now()))) == [task.id]


@scenario
async def woken_by_an_expiry(bench: Bench) -> None:
    """A lost task that is ready again ends the wait."""
    task = await bench.running(ttl=0)
    assert await wakes(bench, lambda: bench.expire(task)) == [task.id]


@scenario
async def woken_by_a_resume(bench: Bench) -> None:
    """A queue that is resumed ends the wait."""
    await bench.control(paused=True)
    task = await bench.submit()
    assert await wakes(bench, lambda: bench.control(paused=False)) == [task.id]


@scenario
async def no_wakeup_is_missed(bench: Bench) -> None:
    """Once a store has waited, work that comes after its last claim and before its next wait ends that wait."""
    bench.need("push_wakeup")
    other = await bench.open_another()
    await other.wait(0)
    assert await bench.claim(store=other) == []
    task = await bench.submit()
    got: list[str] = []
    while not got:
        await other.wait(HOUR)
        got = ids(await bench.claim(store=other))
    assert got == [task.id]


@scenario
async def can_be_given_up(bench: Bench) -> None:
    """A wait that is cancelled leaves the store as it was."""
    waiting = asyncio.ensure_future(bench.store.wait(HOUR))
    await SYSTEM.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    task = await bench.submit()
    assert ids(await bench.claim()) == [task.id]


@scenario
async def several_can_wait(bench: Bench) -> None:
    """Several stores that wait are all woken by the same work."""
    bench.need("push_wakeup")
    others = [await bench.open_another() for _ in range(3)]
    for other in others:
        assert await bench.claim(store=other) == []
    async with asyncio.TaskGroup() as group:
        for other in others:
            group.create_task(other.wait(HOUR))
        await SYSTEM.sleep(0.05)
        await bench.submit()


@scenario
async def presence(bench: Bench) -> None:
    """Attaching and detaching a worker leaves the leases it holds alone."""
    await bench.store.attach("me")
    await bench.submit()
    task = await bench.claim_one(worker="me")
    assert await lost(bench.store, 10) == []
    assert await bench.renew(task) == "held"
    assert await bench.settle(task, GivenBack()) == "written"
    await bench.store.detach("me")


@scenario
async def closing_twice(bench: Bench) -> None:
    """A store can be closed twice, and what it wrote is there for the next one."""
    other = await bench.open_another()
    task = await bench.submit(store=other)
    await other.close()
    await other.close()
    assert (await bench.get(task.id)).state == "pending"

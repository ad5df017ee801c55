"""Expire: a lease that ran out is collected once, only if it still has run out, and its holder is told."""

from datetime import timedelta

from qo import lifecycle
from qo.outcomes import Returned
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, good, ids, lost, raised, same


@scenario
async def candidates(bench: Bench) -> None:
    """Only running tasks whose lease ran out are candidates."""
    await bench.submit(delay=HOUR)
    for state in ("completed", "failed", "cancelled", "archived"):
        await bench.make(state)
    await bench.running(ttl=HOUR)
    assert await lost(bench.store, 10) == []
    silent = [await bench.running(ttl=0), await bench.running("other", ttl=0, queue="other")]
    found = await lost(bench.store, 10)
    assert sorted(ids(found)) == sorted(ids(silent))
    for task in found:
        assert same(task, await bench.get(task.id))


@scenario
async def at_most_the_limit(bench: Bench) -> None:
    """No more candidates than asked for; the others come when these are done."""
    good(await bench.store.submit([bench.task() for _ in range(5)]))
    await bench.claim(5, ttl=0)
    seen: set[str] = set()
    for expected in (2, 2, 1, 0):
        found = await lost(bench.store, 2)
        assert len(found) == expected
        for task in found:
            assert await bench.expire(task) == "written"
        seen.update(ids(found))
    assert len(seen) == 5


@scenario
async def first_loss(bench: Bench) -> None:
    """The first loss puts the task back at once, counted as a loss and not as a failure."""
    task = await bench.running(ttl=0, max_retries=0)
    assert await bench.expire(task) == "written"
    back = await bench.get(task.id)
    assert (back.state, back.losses, back.failures, back.attempt) == ("pending", 1, 0, 1)
    assert (back.lease_id, back.lease_expires_at, back.rank) == (None, None, task.rank)
    assert back.error is not None and back.error.reason == "lost"
    assert back.version > task.version
    assert (await bench.claim_one()).attempt == 2


@scenario
async def later_losses_back_off(bench: Bench) -> None:
    """From the second loss on the task waits before it runs again."""
    await bench.submit()
    await bench.expire(await bench.claim_one(ttl=0))
    second = await bench.claim_one(ttl=0)
    assert second.losses == 1
    before = bench.now()
    assert await bench.expire(second) == "written"
    back = await bench.get(second.id)
    assert (back.state, back.losses, back.failures) == ("pending", 2, 0)
    assert back.available_at >= before + timedelta(seconds=5)
    assert await bench.claim(5) == []


@scenario
async def too_many_losses(bench: Bench) -> None:
    """A task that was lost too often is failed, as lost."""
    task = await bench.running(ttl=0)
    assert await bench.expire(task, max_losses=0) == "written"
    dead = await bench.get(task.id)
    assert (dead.state, dead.losses, dead.failures) == ("failed", 1, 0)
    assert dead.error is not None and (dead.error.reason, dead.error.retriable) == ("lost", False)
    assert dead.completed_at is not None
    assert await bench.claim(5) == []


@scenario
async def cancelled_while_lost(bench: Bench) -> None:
    """A task whose cancellation was asked for ends as cancelled when its worker is lost."""
    task = await bench.running(ttl=0)
    await bench.cancel(task.id)
    (found,) = await lost(bench.store, 10)
    assert found.cancel_requested
    assert await bench.expire(found) == "written"
    ended = await bench.get(task.id)
    assert (ended.state, ended.losses) == ("cancelled", 1)
    assert ended.completed_at is not None
    assert await bench.claim(5) == []


@scenario
async def cancellation_not_known(bench: Bench) -> None:
    """An expiry decided before the cancellation was asked for is refused: the cancellation is not lost."""
    task = await bench.running(ttl=0)
    await bench.cancel(task.id)
    before = await bench.get(task.id)
    assert await bench.expire(task) == "cancel_asked"
    assert same(await bench.get(task.id), before)


@scenario
async def not_run_out(bench: Bench) -> None:
    """A lease that has not run out is not expired, whatever upkeep believes."""
    task = await bench.running(ttl=HOUR)
    assert await bench.expire(task) == "lost"
    assert same(await bench.get(task.id), task)
    assert await bench.settle(task, Returned()) == "written"


@scenario
async def renewed_meanwhile(bench: Bench) -> None:
    """A lease that was renewed after upkeep saw it run out is not expired."""
    task = await bench.running(ttl=0)
    (found,) = await lost(bench.store, 10)
    assert await bench.renew(task, HOUR) == "held"
    before = await bench.get(task.id)
    assert await bench.expire(found) == "lost"
    assert same(await bench.get(task.id), before)
    assert await bench.settle(task, Returned()) == "written"


@scenario
async def settled_meanwhile(bench: Bench) -> None:
    """A task whose holder settled after upkeep saw its lease run out stays settled."""
    task = await bench.running(ttl=0)
    (found,) = await lost(bench.store, 10)
    assert await bench.settle(task, Returned()) == "written"
    before = await bench.get(task.id)
    assert await bench.expire(found) == "lost"
    assert same(await bench.get(task.id), before)
    assert len(await bench.history(task.id)) == 3


@scenario
async def only_once(bench: Bench) -> None:
    """Of two who expire one lease, the second is answered by lost and counts nothing."""
    task = await bench.running(ttl=0)
    assert await bench.expire(task) == "written"
    before = await bench.get(task.id)
    assert await bench.expire(task) == "lost"
    assert same(await bench.get(task.id), before)
    new = await bench.claim_one(ttl=0)
    assert await bench.expire(task) == "lost"
    assert same(await bench.get(task.id), new)


@scenario
async def old_holder_is_told(bench: Bench) -> None:
    """After the expiry the old holder's settlement is answered by lost, never by written, and changes nothing."""
    task = await bench.running(ttl=0)
    assert await bench.expire(task) == "written"
    before = await bench.get(task.id)
    assert await bench.settle(task, Returned()) == "lost"
    assert await bench.renew(task) == "lost"
    assert same(await bench.get(task.id), before)
    assert len(await bench.history(task.id)) == 3


@scenario
async def old_holder_of_a_dead_task(bench: Bench) -> None:
    """When the expiry ended the task, as failed or cancelled, its old holder is told lost as well."""
    failed = await bench.running(ttl=0)
    await bench.expire(failed, max_losses=0)
    assert await bench.settle(failed, Returned()) == "lost"
    assert (await bench.get(failed.id)).state == "failed"
    cancelled = await bench.running(ttl=0)
    await bench.cancel(cancelled.id)
    cancelled = await bench.get(cancelled.id)
    await bench.expire(cancelled)
    assert await bench.settle(cancelled, Returned()) == "lost"
    assert (await bench.get(cancelled.id)).output is None


@scenario
async def remembers_who_settled_before(bench: Bench) -> None:
    """An expiry leaves the last settled lease alone, so that attempt's repeat is still recognised."""
    first = await bench.running()
    settlement = lifecycle.settle(first, raised(after=0), bench.now(), 0.5)
    assert await bench.write(settlement) == "written"
    second = await bench.claim_one(ttl=0)
    assert await bench.expire(second) == "written"
    assert (await bench.get(first.id)).settled_lease == first.lease_id
    assert await bench.write(settlement) == "written"
    assert await bench.settle(second, Returned()) == "lost"


@scenario
async def writes_history(bench: Bench) -> None:
    """An expiry is one line of history, with the lease and worker that were lost and the reason."""
    task = await bench.running(ttl=0)
    await bench.expire(task)
    line = (await bench.history(task.id))[-1]
    assert (line.was, line.became, line.attempt) == ("running", "pending", 1)
    assert (line.lease_id, line.worker_id) == (task.lease_id, task.worker_id)
    assert line.error is not None and line.error.reason == "lost"


@scenario
async def while_paused(bench: Bench) -> None:
    """Recovery goes on while the queue is paused."""
    task = await bench.running(ttl=0)
    await bench.control(paused=True)
    assert ids(await lost(bench.store, 10)) == [task.id]
    assert await bench.expire(task) == "written"
    assert (await bench.get(task.id)).state == "pending"


@scenario
async def by_another_store(bench: Bench) -> None:
    """Any store on the place can do the upkeep."""
    other = await bench.open_another()
    good(await bench.store.submit([bench.task() for _ in range(3)]))
    await bench.claim(3, ttl=0)
    found = await lost(other, 10)
    batch = [lifecycle.expire(task, other.now(), 0.5) for task in found]
    assert good(await other.settle(batch)) == ["written"] * 3
    assert len(await bench.claim(5)) == 3

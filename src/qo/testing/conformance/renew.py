"""Renew: a lease lives on only for its holder, and the answer tells the holder what it must know."""

from datetime import timedelta

from qo import lifecycle
from qo.changes import Lease
from qo.outcomes import GivenBack, Returned
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, good, ids, lost, same


@scenario
async def holds_on(bench: Bench) -> None:
    """The holder's lease runs out `ttl` seconds from now instead."""
    task = await bench.running(ttl=100)
    assert await bench.renew(task, 2 * HOUR) == "held"
    stored = await bench.get(task.id)
    assert bench.near(stored.lease_expires_at, bench.now() + timedelta(hours=2))
    assert (stored.state, stored.lease_id, stored.attempt) == ("running", task.lease_id, 1)


@scenario
async def keeps_the_lease_from_expiring(bench: Bench) -> None:
    """A lease that was renewed is no candidate for expiry, even if it had run out before."""
    task = await bench.running(ttl=0)
    assert await bench.renew(task, HOUR) == "held"
    assert await lost(bench.store, 10) == []
    assert await bench.expire(task) == "lost"


@scenario
async def can_end_a_lease(bench: Bench) -> None:
    """Renewed for 0 s, a lease has run out."""
    task = await bench.running()
    assert await bench.renew(task, 0) == "held"
    assert ids(await lost(bench.store, 10)) == [task.id]


@scenario
async def ran_out_but_was_not_collected(bench: Bench) -> None:
    """A lease that ran out and was not collected is still held."""
    task = await bench.running(ttl=0)
    assert await bench.renew(task, HOUR) == "held"
    assert await bench.settle(task, Returned()) == "written"


@scenario
async def adds_no_history(bench: Bench) -> None:
    """Renewing is no transition."""
    task = await bench.running()
    assert await bench.renew(task) == "held"
    assert len(await bench.history(task.id)) == 2


@scenario
async def is_no_change_to_others(bench: Bench) -> None:
    """Renewing leaves version and updated_at alone: who decided to cancel need not decide anew."""
    task = await bench.running()
    assert await bench.renew(task, progress=1) == "held"
    stored = await bench.get(task.id)
    assert (stored.version, stored.updated_at) == (task.version, task.updated_at)
    assert await bench.amend(lifecycle.cancel(task, bench.now())) == "written"


@scenario
async def carries_progress(bench: Bench) -> None:
    """Progress given with a renewal is stored; a renewal without leaves it alone."""
    task = await bench.running()
    assert await bench.renew(task, progress={"done": 3, "of": 7}) == "held"
    assert (await bench.get(task.id)).progress == {"done": 3, "of": 7}
    assert await bench.renew(task) == "held"
    assert (await bench.get(task.id)).progress == {"done": 3, "of": 7}
    assert await bench.renew(task, progress=None) == "held"
    assert (await bench.get(task.id)).progress is None


@scenario
async def progress_stays_after_the_end(bench: Bench) -> None:
    """Settling leaves the last progress with the task."""
    task = await bench.running()
    await bench.renew(task, progress="half")
    await bench.settle(task, Returned())
    assert (await bench.get(task.id)).progress == "half"


@scenario
async def tells_of_a_cancellation(bench: Bench) -> None:
    """When cancellation was asked for, the holder is told, and still holds the lease."""
    task = await bench.running(ttl=0)
    assert await bench.cancel(task.id) == "written"
    assert await bench.renew(task, HOUR, progress=1) == "cancel_asked"
    assert await lost(bench.store, 10) == []
    assert (await bench.get(task.id)).progress == 1


@scenario
async def wrong_lease(bench: Bench) -> None:
    """Another lease id is answered by lost and changes nothing."""
    task = await bench.running(ttl=0)
    before = await bench.get(task.id)
    lease = Lease(id=task.id, lease_id=bench.ids.new_id(), attempt=task.attempt, raw_progress=b"1")
    assert await bench.store.renew([lease], HOUR) == ["lost"]
    assert same(await bench.get(task.id), before)
    assert ids(await lost(bench.store, 10)) == [task.id]


@scenario
async def wrong_attempt(bench: Bench) -> None:
    """Another attempt is answered by lost and changes nothing."""
    task = await bench.running(ttl=0)
    before = await bench.get(task.id)
    assert task.lease_id is not None
    for attempt in (0, 2):
        lease = Lease(id=task.id, lease_id=task.lease_id, attempt=attempt, raw_progress=b"1")
        assert await bench.store.renew([lease], HOUR) == ["lost"]
    assert same(await bench.get(task.id), before)


@scenario
async def ended(bench: Bench) -> None:
    """Once the attempt is settled, its lease is lost."""
    for outcome in (Returned(), GivenBack()):
        task = await bench.running()
        await bench.settle(task, outcome)
        before = await bench.get(task.id)
        assert await bench.renew(task, progress=1) == "lost"
        assert same(await bench.get(task.id), before)
        await bench.claim(1)


@scenario
async def unknown_task(bench: Bench) -> None:
    """A task that is not there, or no more, is answered by lost."""
    lease = Lease(id=bench.ids.new_id(), lease_id=bench.ids.new_id(), attempt=1)
    assert await bench.store.renew([lease], HOUR) == ["lost"]
    task = await bench.running()
    await bench.settle(task, Returned())
    await bench.amend(lifecycle.delete(await bench.get(task.id), bench.now()))
    assert await bench.renew(task) == "lost"


@scenario
async def lost_to_another(bench: Bench) -> None:
    """A lease that was expired is lost, before and after another worker claims the task, which notices nothing."""
    old = await bench.running(ttl=0)
    assert await bench.expire(old) == "written"
    assert await bench.renew(old, progress="old") == "lost"
    new = await bench.claim_one()
    assert await bench.renew(old, progress="old") == "lost"
    assert same(await bench.get(new.id), new)
    assert await bench.renew(new) == "held"


@scenario
async def many_at_once(bench: Bench) -> None:
    """Each lease of a batch is answered in its place; one lost lease does not spoil the others."""
    good(await bench.store.submit([bench.task() for _ in range(5)]))
    tasks = await bench.claim(5, ttl=0)
    await bench.settle(tasks[1], Returned())
    await bench.cancel(tasks[3].id)
    leases = [Lease(id=task.id, lease_id=task.lease_id or "", attempt=task.attempt) for task in tasks]
    answers = good(await bench.store.renew([*leases, leases[0]], HOUR))
    assert answers == ["held", "lost", "held", "cancel_asked", "held", "held"]
    assert await lost(bench.store, 10) == []
    assert await bench.store.renew([], HOUR) == []


@scenario
async def seen_by_others(bench: Bench) -> None:
    """A renewal over one store counts for the upkeep of another."""
    other = await bench.open_another()
    task = await bench.running(ttl=0)
    assert await bench.renew(task, HOUR) == "held"
    assert await lost(other, 10) == []
    assert await bench.expire(task, store=other) == "lost"

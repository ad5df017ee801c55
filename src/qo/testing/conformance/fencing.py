"""Fencing: only the holder of the lease ends an attempt, once, and a repeat after a lost reply is recognised."""

from msgspec.structs import replace

from qo import lifecycle
from qo.outcomes import GivenBack, Returned, Snoozed
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, failed_for_good, lost, raised
from qo.values import encode_value


@scenario
async def wrong_lease(bench: Bench) -> None:
    """A settlement under another lease is answered by lost and changes nothing."""
    task = await bench.running()
    stale = replace(lifecycle.settle(task, Returned(), bench.now(), 0), lease_id=bench.ids.new_id())
    assert await bench.write(stale) == "lost"
    assert await bench.unchanged(task)
    assert len(await bench.history(task.id)) == 2
    assert await bench.settle(task, Returned()) == "written"


@scenario
async def wrong_attempt(bench: Bench) -> None:
    """A settlement of another attempt is answered by lost and changes nothing."""
    task = await bench.running()
    for attempt in (0, 2):
        stale = replace(lifecycle.settle(task, Returned(), bench.now(), 0), attempt=attempt)
        assert await bench.write(stale) == "lost"
    assert await bench.unchanged(task)


@scenario
async def unknown_task(bench: Bench) -> None:
    """A settlement of a task that is not there is answered by lost and makes none."""
    task = await bench.running()
    ghost = replace(lifecycle.settle(task, Returned(), bench.now(), 0), id=bench.ids.new_id())
    assert await bench.write(ghost) == "lost"
    assert await bench.gone(ghost.id)
    assert await bench.history(ghost.id) == []


@scenario
async def ran_out_but_was_not_collected(bench: Bench) -> None:
    """A lease that ran out and was not collected can still be settled."""
    task = await bench.running(ttl=0)
    assert await bench.settle(task, Returned()) == "written"
    assert (await bench.get(task.id)).state == "completed"
    assert await lost(bench.store, 10) == []


@scenario
async def repeated(bench: Bench) -> None:
    """A repeat after a lost reply is answered by written and changes nothing."""
    for outcome in (Returned(encode_value(1)), raised(after=HOUR), failed_for_good(), Snoozed(bench.ago(-HOUR))):
        task = await bench.running()
        settlement = lifecycle.settle(task, outcome, bench.now(), 0.5)
        assert await bench.write(settlement) == "written"
        before = await bench.get(task.id)
        assert await bench.write(settlement) == "written"
        assert await bench.write(settlement, store=await bench.open_another()) == "written"
        assert await bench.unchanged(before)
        assert len(await bench.history(task.id)) == 3


@scenario
async def repeated_otherwise(bench: Bench) -> None:
    """The first outcome of an attempt stands: another one under the same lease is a repeat and changes nothing."""
    task = await bench.running()
    assert await bench.settle(task, Returned(encode_value("first"))) == "written"
    before = await bench.get(task.id)
    assert await bench.settle(task, failed_for_good()) == "written"
    assert await bench.unchanged(before)


@scenario
async def repeated_after_the_next_claim(bench: Bench) -> None:
    """A repeat that comes when the next attempt runs is answered by written and does not touch that attempt."""
    task = await bench.running()
    settlement = lifecycle.settle(task, raised(after=0), bench.now(), 0.5)
    assert await bench.write(settlement) == "written"
    again = await bench.claim_one()
    assert await bench.write(settlement) == "written"
    assert await bench.unchanged(again)
    assert await bench.settle(again, Returned()) == "written"


@scenario
async def repeated_after_a_cancellation(bench: Bench) -> None:
    """A repeat is recognised even when the task was cancelled meanwhile, and does not undo that."""
    task = await bench.running()
    settlement = lifecycle.settle(task, GivenBack(), bench.now(), 0.5)
    assert await bench.write(settlement) == "written"
    assert await bench.cancel(task.id) == "written"
    assert await bench.write(settlement) == "written"
    assert (await bench.get(task.id)).state == "cancelled"


@scenario
async def stale_after_two_attempts(bench: Bench) -> None:
    """The worker of an attempt that was lost is told so, also after the next attempt has ended."""
    old = await bench.running(ttl=0)
    await bench.expire(old)
    assert await bench.settle(old, Returned()) == "lost"
    new = await bench.claim_one()
    assert await bench.settle(old, Returned(encode_value("old"))) == "lost"
    assert await bench.unchanged(new)
    assert await bench.settle(new, Returned(encode_value("new"))) == "written"
    assert await bench.settle(old, Returned(encode_value("old"))) == "lost"
    assert (await bench.get(old.id)).output == "new"

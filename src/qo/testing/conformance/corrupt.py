"""A record that cannot be read is handed to one worker, which ends it; nothing else suffers."""

from qo.changes import Lease
from qo.errors import CorruptRecord
from qo.outcomes import Returned
from qo.stores.protocol import Corrupt, Filter
from qo.task import Task
from qo.testing.conformance.bench import Bench, Skipped
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, give_up, good, ids


async def damaged(bench: Bench) -> tuple[Task, Task, Task]:
    """Three pending tasks; the record of the second cannot be read any more."""
    good(await bench.store.submit([bench.task() for _ in range(3)]))
    first, second, third = (await bench.store.find(Filter(), sort="oldest")).tasks
    if not await bench.harness.corrupt(bench.store, second.id):
        raise Skipped("this harness cannot damage a record")
    return first, second, third


@scenario
async def is_claimed_and_given_up(bench: Bench) -> None:
    """A claim names the unreadable record under its lease, beside the tasks; its holder settles it as failed."""
    first, second, third = await damaged(bench)
    want = bench.want(5)
    claimed = await bench.ask(want)
    assert ids(claimed.tasks) == [first.id, third.id]
    (bad,) = claimed.corrupt
    assert (bad.id, bad.lease_id, bad.attempt) == (second.id, want.lease_id, 1)
    settlement = give_up(bad, bench.now())
    assert await bench.write(settlement) == "written"
    assert await bench.write(settlement) == "written"
    again = await bench.ask(bench.want(5))
    assert (again.tasks, again.corrupt) == ([], [])


@scenario
async def is_fenced_like_any_other(bench: Bench) -> None:
    """The lease of an unreadable record can be renewed by its holder, and is not expired while it lives."""
    await damaged(bench)
    (bad,) = (await bench.ask(bench.want(5))).corrupt
    lease = Lease(id=bad.id, lease_id=bad.lease_id, attempt=bad.attempt)
    assert good(await bench.store.renew([lease], HOUR)) == ["held"]
    assert await bench.write(give_up(bad, bench.now(), expired=True)) == "lost"
    assert await bench.write(give_up(bad, bench.now())) == "written"


@scenario
async def does_not_spoil_a_batch(bench: Bench) -> None:
    """Settled in one batch with others, each is answered for itself."""
    await damaged(bench)
    claimed = await bench.ask(bench.want(5))
    settlements = [give_up(claimed.corrupt[0], bench.now())]
    for task in claimed.tasks:
        settlements.insert(0, bench.decide(task, Returned()))
    assert good(await bench.store.settle(settlements)) == ["written"] * 3
    for task in claimed.tasks:
        assert (await bench.get(task.id)).state == "completed"


@scenario
async def is_expired_with_the_others(bench: Bench) -> None:
    """Upkeep is told of unreadable records whose lease ran out, and gives them up."""
    first, second, third = await damaged(bench)
    await bench.ask(bench.want(5, ttl=0))
    found = await bench.store.expired(10)
    assert {task.id for task in found} == {first.id, second.id, third.id}
    (bad,) = [each for each in found if isinstance(each, Corrupt)]
    assert (bad.id, bad.attempt) == (second.id, 1)
    assert await bench.write(give_up(bad, bench.now(), expired=True)) == "written"
    assert second.id not in {task.id for task in await bench.store.expired(10)}


@scenario
async def is_named_where_it_is_read(bench: Bench) -> None:
    """Get answers with an error in its place, lists name its id, and both go on with what can be read."""
    first, second, third = await damaged(bench)
    got = await bench.store.get([first.id, second.id, third.id])
    assert isinstance(got[0], Task) and isinstance(got[1], CorruptRecord) and isinstance(got[2], Task)
    page = await bench.store.find(Filter())
    assert (ids(page), page.corrupt) == ([third.id, first.id], [second.id])
    await bench.store.stats("default")


@scenario
async def does_not_break_paging(bench: Bench) -> None:
    """Pages go on behind an unreadable record."""
    first, second, third = await damaged(bench)
    got: list[str] = []
    cursor: str | None = None
    for _ in range(10):
        page = await bench.store.find(Filter(), sort="oldest", limit=1, cursor=cursor)
        got += [*ids(page), *page.corrupt]
        cursor = page.cursor
        if cursor is None:
            break
    assert got == [first.id, second.id, third.id]

"""Find: every filter, every sort, and pages without gaps or repeats."""

from qo.errors import UsageError
from qo.outcomes import Returned
from qo.stores.protocol import Filter, Sort
from qo.task import STATES
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, failed_for_good, good, ids, raised, same


async def found(bench: Bench, **fields: object) -> set[str]:
    """The ids that match a filter of these fields."""
    page = await bench.store.find(Filter(**fields))  # pyright: ignore[reportArgumentType] - the fields of the caller
    assert page.cursor is None
    return set(ids(page))


async def pages(bench: Bench, filter: Filter, sort: Sort, limit: int) -> list[str]:
    """All ids, collected page by page."""
    got: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = await bench.store.find(filter, sort=sort, limit=limit, cursor=cursor)
        assert 0 < len(page.tasks) <= limit
        got += ids(page)
        cursor = page.cursor
        if cursor is None:
            return got
    raise AssertionError("the pages never end")


@scenario
async def everything(bench: Bench) -> None:
    """Without a filter, all tasks of all queues are found, except archived ones; records are whole."""
    tasks = [await bench.make(state, f"type {state}", input={"a": state}, queue="q") for state in STATES]
    tasks.append(await bench.submit())
    page = await bench.store.find(Filter())
    assert {task.id for task in page.tasks} == {task.id for task in tasks if task.state != "archived"}
    by_id = {task.id: task for task in tasks}
    assert all(same(task, by_id[task.id]) for task in page.tasks)


@scenario
async def nothing(bench: Bench) -> None:
    """Where nothing matches the page is empty and the last."""
    page = await bench.store.find(Filter(types=("none",)), total=True)
    assert (page.tasks, page.cursor, page.total) == ([], None, 0)


@scenario
async def by_state(bench: Bench) -> None:
    """States named are the states found, archived included."""
    tasks = {state: await bench.make(state, f"type {state}") for state in STATES}
    for state, task in tasks.items():
        assert await found(bench, states=(state,)) == {task.id}
    assert await found(bench, states=("archived", "failed")) == {tasks["archived"].id, tasks["failed"].id}


@scenario
async def by_name(bench: Bench) -> None:
    """Queue, type, priority and key are matched exactly; several types or priorities are alternatives."""
    a = await bench.submit("a", queue="q", priority="high", key="k")
    b = await bench.submit("b", queue="q", priority=5)
    c = await bench.submit("c", queue="r", priority="low", key="k2")
    assert await found(bench, queue="q") == {a.id, b.id}
    assert await found(bench, types=("a", "c", "x")) == {a.id, c.id}
    assert await found(bench, priorities=("high",)) == {a.id}
    assert await found(bench, priorities=(5, "low")) == {b.id, c.id}
    assert await found(bench, priorities=("medium",)) == set()
    assert await found(bench, key="k") == {a.id}
    assert await found(bench, queue="q", types=("a", "c"), priorities=("high", "low")) == {a.id}


@scenario
async def by_key_over_time(bench: Bench) -> None:
    """Every task that was submitted with a key is found by it, not only the one that holds it now."""
    old = await bench.submit(key="k", age=HOUR, key_window=60)
    new = await bench.submit(key="k")
    assert await found(bench, key="k") == {old.id, new.id}


@scenario
async def by_tags(bench: Bench) -> None:
    """All tags named must be there with that value; other tags do not matter."""
    both = await bench.submit(tags={"team": "a", "env": "x"})
    one = await bench.submit(tags={"team": "a"})
    other = await bench.submit(tags={"team": "ab", "env": "a"})
    await bench.submit()
    assert await found(bench, tags={"team": "a"}) == {both.id, one.id}
    assert await found(bench, tags={"env": "x", "team": "a"}) == {both.id}
    assert await found(bench, tags={"env": "a"}) == {other.id}
    assert await found(bench, tags={"env": ""}) == set()


@scenario
async def by_worker(bench: Bench) -> None:
    """A worker finds what it runs and what it ran last."""
    await bench.submit("other")
    for type in ("a", "b"):
        await bench.submit(type)
    done = await bench.claim_one(types=["a"], worker="me")
    await bench.settle(done, Returned())
    runs = await bench.claim_one(types=["b"], worker="me")
    await bench.claim_one(worker="me-too")
    assert await found(bench, worker_id="me") == {done.id, runs.id}
    assert await found(bench, worker_id="me", states=("running",)) == {runs.id}


@scenario
async def by_time(bench: Bench) -> None:
    """created_from includes its moment, created_before and completed_before do not; what has not ended has no end."""
    old, mid, new = [await bench.submit(age=age) for age in (300, 200, 100)]
    assert await found(bench, created_from=mid.created_at) == {mid.id, new.id}
    assert await found(bench, created_before=mid.created_at) == {old.id}
    assert await found(bench, created_from=old.created_at, created_before=new.created_at) == {old.id, mid.id}
    for task, ago in zip(await bench.claim(2), (60, 30), strict=True):
        await bench.settle(task, Returned(), at=bench.ago(ago))
    ended = (await bench.get(mid.id)).completed_at
    assert await found(bench, completed_before=ended) == {old.id}
    assert await found(bench, completed_before=bench.ago(0)) == {old.id, mid.id}


@scenario
async def by_text(bench: Bench) -> None:
    """Text is found in the input and in the error's message, ignoring the case of ASCII letters, taken literally."""
    bench.need("text_search")
    first = await bench.submit("a", input={"url": 'https://Example.com/100%_"quoted"\nÜber'})
    second = await bench.running("b", input="plain")
    await bench.settle(second, failed_for_good("Connection to EXAMPLE refused"))
    await bench.submit("c", input={"n": 1000})
    assert await found(bench, text="example") == {first.id, second.id}
    assert await found(bench, text="EXAMPLE.COM") == {first.id}
    assert await found(bench, text="refused") == {second.id}
    for literal in ("100%_", '"quoted"', 'd"\nÜber'):
        assert await found(bench, text=literal) == {first.id}, literal
    assert await found(bench, text="1%0") == set()
    assert await found(bench, text="example", states=("failed",)) == {second.id}


@scenario
async def newest_and_oldest(bench: Bench) -> None:
    """Newest first unless said; the order is that of the ids, whatever the priority."""
    tasks = [bench.task(priority=priority) for priority in ("low", "high", "medium", "high", "low")]
    good(await bench.store.submit(tasks[::-1]))
    assert ids(await bench.store.find(Filter())) == ids(tasks[::-1])
    assert ids(await bench.store.find(Filter(), sort="newest")) == ids(tasks[::-1])
    assert ids(await bench.store.find(Filter(), sort="oldest")) == ids(tasks)


@scenario
async def latest_ended(bench: Bench) -> None:
    """Sorted by end, only tasks that ended are found, the latest first."""
    good(await bench.store.submit([bench.task() for _ in range(5)]))
    first, second, third, retried, _ = await bench.claim(5)
    await bench.settle(second, Returned(), at=bench.ago(10))
    await bench.settle(third, failed_for_good(), at=bench.ago(30))
    await bench.settle(first, Returned(), at=bench.ago(20))
    await bench.settle(retried, raised())
    await bench.submit()
    page = await bench.store.find(Filter(), sort="ended", total=True)
    assert ids(page) == [second.id, first.id, third.id]
    assert page.total == 3
    assert ids(await bench.store.find(Filter(states=("completed",)), sort="ended")) == [second.id, first.id]


@scenario
async def page_by_page(bench: Bench) -> None:
    """Pages follow each other without gaps or repeats, in every sort, and the last one says so."""
    tasks = [bench.task(f"t{n % 2}") for n in range(12)]
    good(await bench.store.submit(tasks))
    for limit in (1, 4, 5, 12, 100):
        assert await pages(bench, Filter(), "oldest", limit) == ids(tasks)
        assert await pages(bench, Filter(), "newest", limit) == ids(tasks[::-1])
        assert await pages(bench, Filter(types=("t1",)), "newest", limit) == ids(tasks[::-2])


@scenario
async def pages_under_ties(bench: Bench) -> None:
    """Tasks that ended at the same time are neither skipped nor repeated between pages."""
    good(await bench.store.submit([bench.task() for _ in range(9)]))
    tasks, moment = await bench.claim(9), bench.ago(10)
    for number, task in enumerate(tasks):
        await bench.settle(task, Returned(), at=moment if number != 4 else bench.ago(0))
    expected = [tasks[4].id, *sorted((task.id for task in tasks if task is not tasks[4]), reverse=True)]
    for limit in (1, 2, 3, 4, 9):
        assert await pages(bench, Filter(), "ended", limit) == expected


@scenario
async def pages_while_others_write(bench: Bench) -> None:
    """New tasks between two pages do not shift what a cursor continues with."""
    tasks = [await bench.submit() for _ in range(6)]
    page = await bench.store.find(Filter(), limit=3)
    extra = await bench.submit()
    rest = await bench.store.find(Filter(), limit=10, cursor=page.cursor)
    assert ids(page) + ids(rest) == ids(tasks[::-1])
    assert extra.id not in ids(rest)


@scenario
async def offset_and_total(bench: Bench) -> None:
    """`offset` skips, behind the cursor when there is one; `total` counts all that match, and only when asked."""
    tasks = [await bench.submit() for _ in range(10)]
    await bench.submit("other")
    filter = Filter(types=("job",))
    page = await bench.store.find(filter, sort="oldest", limit=3, offset=4, total=True)
    assert (ids(page), page.total) == (ids(tasks[4:7]), 10)
    rest = await bench.store.find(filter, sort="oldest", limit=5, offset=1, cursor=page.cursor, total=True)
    assert (ids(rest), rest.total, rest.cursor) == (ids(tasks[8:]), 10, None)
    beyond = await bench.store.find(filter, offset=10)
    assert (beyond.tasks, beyond.cursor, beyond.total) == ([], None, None)


@scenario
async def wrong_cursor(bench: Bench) -> None:
    """A cursor of another sort, or none at all, is refused as wrong usage."""
    for _ in range(3):
        await bench.submit()
    page = await bench.store.find(Filter(), sort="newest", limit=1)
    assert page.cursor is not None
    wrong: tuple[tuple[str, Sort], ...] = (
        (page.cursor, "oldest"),
        (page.cursor, "ended"),
        ("rubbish", "newest"),
        ("ended:x:y", "ended"),
    )
    for cursor, sort in wrong:
        try:
            await bench.store.find(Filter(), sort=sort, cursor=cursor)
        except UsageError:
            continue
        raise AssertionError(f"cursor {cursor!r} was accepted for sort {sort!r}")

"""Looking at a queue and changing what is in it."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from tests.client.conftest import MakeQueue
from tests.client.tools import fail, finish

from qo import Contention, IllegalTransition, InvalidInput, OutcomeUnknown, Queue, Task, TaskNotFound, WorkerInfo
from qo.changes import Amended, Amendment
from qo.clock import ManualClock
from qo.errors import QoError
from qo.records import encode_record
from qo.settings import Settings
from qo.stores.memory import MemoryStore

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - the mistake that is tested
NOBODY = "01890000-0000-7000-8000-000000000000"


async def test_cancel(q: Queue) -> None:
    """Waiting tasks end at once, running ones are asked, ended ones refuse; the actor stands in the history."""
    first, second = await q.submit("x", 1), await q.submit("x", 2)
    async with q.claim() as (claimed,):
        assert claimed.id == first.id
        asked = await q.cancel(first.id, actor="ann")
        assert asked.state == "running" and asked.cancel_requested
        assert (await q.cancel(first.id)).cancel_requested
    assert (await q.get(first.id)).state == "cancelled"
    assert (await q.cancel(second.id, actor="bob")).state == "cancelled"
    assert (await q.cancel(second.id)).state == "cancelled"
    assert [line.actor for line in await q.history(second.id)] == [None, "bob"]
    third = await q.submit("x", 3)
    await finish(q)
    with pytest.raises(IllegalTransition, match="only pending and running"):
        await q.cancel(third.id)


async def test_replay(q: Queue) -> None:
    """Failed ones start anew, delayed ones at once, completed ones only by force."""
    handle = await q.submit("x")
    await fail(q)
    again = await q.replay(handle.id, actor="ann")
    assert (again.state, again.failures, again.error) == ("pending", 0, None)
    await finish(q, 1)
    with pytest.raises(IllegalTransition, match="use force"):
        await q.replay(handle.id)
    assert (await q.replay(handle.id, force=True)).state == "pending"
    await finish(q)
    delayed = await q.submit("x", delay=3600)
    assert (await q.replay(delayed.id)).available_at <= datetime.now(UTC)
    assert (await q.stats()).ready == 1


async def test_archive_and_delete(q: Queue) -> None:
    """An archived task leaves the lists and comes back as it was; only ended ones are deleted."""
    handle = await q.submit("x")
    for refused in (q.archive(handle.id), q.delete(handle.id), q.unarchive(handle.id)):
        with pytest.raises(IllegalTransition):
            await refused
    await fail(q)
    assert (await q.archive(handle.id)).archived_from == "failed"
    assert (await q.find()).tasks == []
    assert [task.id for task in (await q.find(state="archived")).tasks] == [handle.id]
    assert (await q.unarchive(handle.id)).state == "failed"
    await q.delete(handle.id)
    with pytest.raises(TaskNotFound):
        await q.get(handle.id)
    with pytest.raises(TaskNotFound):
        await q.delete(handle.id)


async def test_bulk_answers_for_each(q: Queue) -> None:
    """One wrong id spoils nothing; the answers come in the order asked."""
    handles = await q.submit_many([q.call("x", n) for n in range(30)])
    await finish(q)
    answers = await q.bulk("cancel", [NOBODY, *(handle.id for handle in handles)], actor="ann")
    assert isinstance(answers[0], TaskNotFound)
    assert isinstance(answers[1], IllegalTransition)
    assert {task.state for task in answers[2:] if isinstance(task, Task)} == {"cancelled"}
    assert (await q.stats()).cancelled == 29
    replayed = await q.bulk("replay", [handle.id for handle in handles], force=True)
    assert all(isinstance(one, Task) and one.state == "pending" for one in replayed)
    with pytest.raises(InvalidInput, match="no verb"):
        await q.bulk("explode", [])  # pyright: ignore[reportArgumentType]


class Racing(MemoryStore):
    """Lets somebody else be faster, a number of times."""

    races = 0

    async def amend(self, amendments: Sequence[Amendment]) -> list[Amended | QoError]:
        if self.races:
            self.races -= 1
            return ["changed" for _ in amendments]
        return await super().amend(amendments)


async def test_a_change_is_decided_again_when_others_were_faster() -> None:
    """Read again, decide again; with somebody always faster the caller gets Contention."""
    store = Racing()
    async with Queue(store=store, settings=Settings()) as q:
        handle = await q.submit("x")
        store.races = 5
        assert (await q.cancel(handle.id)).state == "cancelled"
        store.races = 1000
        with pytest.raises(Contention):
            await q.replay(handle.id)


async def test_purge(q: Queue) -> None:
    """By age and state; without states only completed ones; never what is alive."""
    for end in (finish, finish, fail):
        await q.submit("x")
        await end(q)
    await q.submit("x")
    assert await q.purge(timedelta(hours=1)) == 0
    assert await q.purge("1h", states=["completed", "failed"]) == 0
    assert await q.purge(datetime.now(UTC) + timedelta(seconds=1)) == 2
    assert await q.purge(0, states="failed") == 1
    assert [task.state for task in (await q.find()).tasks] == ["pending"]
    for wrong in ({"older_than": "soon"}, {"older_than": 0, "states": "pending"}, {"older_than": 0, "states": ()}):
        with pytest.raises(InvalidInput):
            await q.purge(**wrong)
    with pytest.raises(InvalidInput, match="time zone"):
        await q.purge(NAIVE)


async def test_expire_takes_back_what_was_lost(make: MakeQueue) -> None:
    """One round of upkeep: a lease that ran out goes back, and past the limit the task fails as lost."""
    clock = ManualClock()
    async with Queue(store=MemoryStore(clock=clock), settings=Settings(), clock=clock, max_losses=1) as q:
        handle = await q.submit("x", timeout=1)
        for expected in ("pending", "failed"):
            claim = q.claim(lease=5)
            await claim.__aenter__()
            assert await q.expire() == 0
            clock.advance(30)
            assert await q.expire() == 1
            assert (await q.get(handle.id)).state == expected
            await claim.__aexit__(None, None, None)
        task = await q.get(handle.id)
        assert task.error is not None and task.error.reason == "lost"
        assert await q.expire() == 0


async def test_find(q: Queue) -> None:
    """By state, type, tags, key, priority and time; pages follow each other; totals count all."""
    for n in range(5):
        await q.submit("a", n, tags={"n": str(n % 2)}, priority="high" if n else "low")
    await q.submit("b", key="k")
    await finish(q, None, "b")

    async def inputs(**where: Any) -> list[Any]:
        return [task.input for task in (await q.find(sort="oldest", **where)).tasks]

    assert await inputs(state="pending") == await inputs(states=["pending"]) == await inputs(status="pending")
    assert await inputs(type="a", tags={"n": "1"}) == [1, 3]
    assert await inputs(types=["a", "b"]) == [0, 1, 2, 3, 4, None]
    assert await inputs(priority="low") == [0]
    assert await inputs(key="k") == await inputs(state=("completed", "failed")) == [None]
    assert await inputs(created_before=datetime(2000, 1, 1, tzinfo=UTC)) == []
    first = await q.find(type="a", limit=2, total=True)
    assert ([task.input for task in first.tasks], first.total) == ([4, 3], 5)
    second = await q.find(type="a", limit=2, cursor=first.cursor)
    assert [task.input for task in second.tasks] == [2, 1]
    assert [task.input for task in (await q.find(type="a", offset=4)).tasks] == [0]
    for wrong, said in [
        ({"state": "done"}, "no state 'done'"),
        ({"limit": 0}, "limit"),
        ({"created_from": NAIVE}, "time zone"),
        ({"colour": "red"}, "cannot be found by 'colour'"),
        ({"priority": "urgent"}, "no priority"),
    ]:
        with pytest.raises(InvalidInput, match=said):
            await q.find(**wrong)


async def test_queues_of_one_store_are_apart(make: MakeQueue) -> None:
    """A name is a namespace: lists, numbers and claims see their own."""
    async with make() as one, make(name="other") as two:
        await one.submit("x", 1)
        await two.submit("x", 2)
        assert [task.input for task in (await two.find()).tasks] == [2]
        assert (await one.stats()).pending == 1
        async with two.claim(limit=5) as claimed:
            assert [task.input for task in claimed] == [2]


async def test_stats(q: Queue) -> None:
    """Counts by state, type and priority, ages, workers and throughput."""
    for n in range(3):
        await q.submit("a", n, priority="high")
    await q.submit("b", delay=60)
    await finish(q)
    stats = await q.stats()
    assert (stats.pending, stats.completed, stats.ready, stats.delayed, stats.throughput) == (3, 1, 2, 1, 1)
    assert stats.by_type == {"a": {"pending": 2, "completed": 1}, "b": {"pending": 1}}
    assert stats.by_priority["high"].depth == 2
    assert 0 <= stats.by_priority["high"].oldest_age < 60
    assert stats.workers == {"active": 0, "draining": 0, "dead": 0}


def worker(id: str, heartbeat: datetime, **more: Any) -> WorkerInfo:
    return WorkerInfo(
        id=id, host="h", pid=1, version="0", started_at=heartbeat, heartbeat_at=heartbeat, capacity=1, **more
    )


async def test_workers_and_types(q: Queue) -> None:
    """Workers are shown as they are seen now; types with who runs them and their schema."""

    @q.task
    def here(x: int) -> None: ...

    await q.submit("nobody")
    store = (await q.session()).store
    now = store.now()
    shown = [
        worker("fine", now, types={"there": {"type": "object"}}),
        worker("silent", now - timedelta(minutes=5), types={"there": {}, "gone": {}}),
        worker("elsewhere", now, queues=("other",)),
    ]
    for one in shown:
        await store.put_record("worker", one.id, encode_record(one))
    await store.put_record("worker", "garbled", msgspec.Raw(b'{"id": 5}'))
    assert {one.id: one.state for one in await q.workers()} == {"fine": "active", "silent": "dead"}
    assert (await q.stats()).workers == {"active": 1, "draining": 0, "dead": 1}
    await q.pause("there")
    types = {one.name: one for one in await q.types()}
    assert list(types) == ["here", "nobody", "there"]
    assert (types["there"].workers, types["there"].paused, types["there"].schema) == (1, True, {"type": "object"})
    assert (types["nobody"].workers, types["nobody"].counts, types["nobody"].schema) == (0, {"pending": 1}, None)
    assert types["here"].registered and types["here"].schema is not None
    assert types["here"].schema["required"] == ["x"]


async def test_pause_and_rate_limits(q: Queue) -> None:
    """Pausing stops claims of all or of one type; controls add up and are taken back one by one."""
    await q.submit("a")
    await q.submit("b")
    await q.pause("a")
    async with q.claim(limit=5) as claimed:
        assert [one.task.type for one in claimed] == ["b"]
    await q.pause()
    async with q.claim(limit=5) as claimed:
        assert claimed == []
    await q.set_rate_limit(10)
    controls = await q.set_rate_limit(2.5, "a")
    assert (controls.paused, controls.paused_types) == (True, frozenset({"a"}))
    assert (controls.rate_limit, controls.rate_limits) == (10.0, {"a": 2.5})
    await q.resume()
    await q.resume("a")
    await q.set_rate_limit(0, "a")
    assert await q.controls() == await q.set_rate_limit(10)
    assert (await q.controls()).rate_limits == {}
    async with q.claim(limit=5) as claimed:
        assert len(claimed) == 2
    for wrong in (-1, float("inf"), True):
        with pytest.raises(InvalidInput):
            await q.set_rate_limit(wrong)


async def test_controls_of_many_do_not_get_lost(q: Queue) -> None:
    """Concurrent changes of the controls are all kept."""
    await asyncio.gather(*(q.pause(f"type {n}") for n in range(10)))
    assert len((await q.controls()).paused_types) == 10


class Forgetful(MemoryStore):
    """Writes, but its first reply is lost."""

    lost = False

    async def put_record(self, *args: Any, **kwargs: Any) -> Any:
        answer = await super().put_record(*args, **kwargs)
        if not self.lost:
            self.lost = True
            raise OutcomeUnknown("the line broke")
        return answer


async def test_a_control_whose_reply_was_lost_is_looked_up() -> None:
    """An unknown outcome is resolved by reading."""
    async with Queue(store=Forgetful(), settings=Settings()) as q:
        assert (await q.pause()).paused
        assert (await q.controls()).paused

"""Pulling tasks by hand: every way to settle, lost leases, cancellation, renewal, giving back."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.client.tools import pass_time, turns

from qo import Contention, IllegalTransition, InvalidInput, LeaseLost, OutcomeUnknown, Queue, Unavailable
from qo.changes import Settled, Settlement
from qo.clock import ManualClock
from qo.errors import QoError
from qo.settings import Settings
from qo.stores.memory import MemoryStore
from qo.stores.protocol import Claimed, Want

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - the mistake that is tested


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def timed(clock: ManualClock) -> AsyncIterator[Queue]:
    """A queue whose time stands still."""
    async with Queue(store=MemoryStore(clock=clock), settings=Settings(), clock=clock) as queue:
        yield queue


async def test_complete(q: Queue) -> None:
    """The output is stored, and the record shows it."""
    handle = await q.submit("crawl", {"url": "x"})
    async with q.claim("crawl", limit=5) as claimed:
        (one,) = claimed
        assert (one.id, one.input, one.task.state, one.task.attempt) == (handle.id, {"url": "x"}, "running", 1)
        assert (await one.complete({"ok": True})).state == "completed"
        assert not one.open
    assert await handle.result() == {"ok": True}


async def test_complete_by_the_annotation_of_the_handler(q: Queue) -> None:
    """With a handler here, its annotation says how an output is stored."""

    @q.task
    def when() -> datetime: ...

    handle = await when.submit()
    async with q.claim() as (one,):
        await one.complete(datetime(2030, 1, 1, tzinfo=UTC))
    assert await handle.result() == datetime(2030, 1, 1, tzinfo=UTC)


async def test_outputs_have_a_limit() -> None:
    """An output that is too large is refused, and the task is still ours."""
    async with Queue("memory://", settings=Settings(), max_output_bytes=10) as q:
        await q.submit("x")
        async with q.claim() as (one,):
            with pytest.raises(InvalidInput, match="the limit is 10"):
                await one.complete("x" * 100)
            await one.complete("y")


async def test_retry(timed: Queue) -> None:
    """A failure that counts: by its backoff, or after the time asked for; without retries left it is the end."""
    handle = await timed.submit("x", max_retries=2)
    async with timed.claim() as (one,):
        task = await one.retry(after="1m", error="busy")
        assert (task.state, task.failures) == ("pending", 1)
        assert task.available_at - timed.clock.now() == timedelta(minutes=1)
        assert task.error is not None and (task.error.reason, task.error.message) == ("raised", "busy")
    await timed.replay(handle.id)
    async with timed.claim() as (one,):
        task = await one.retry(error=ValueError("odd"))
        assert task.error is not None and (task.error.type, task.error.message) == ("ValueError", "odd")
        assert task.available_at > timed.clock.now()
    await timed.replay(handle.id)
    async with timed.claim() as (one,):
        assert (await one.retry()).state == "failed"


async def test_fail_release_and_snooze(timed: Queue, clock: ManualClock) -> None:
    """Failing is for good; giving back and snoozing count nothing."""
    handle = await timed.submit("x")
    async with timed.claim() as (one,):
        task = await one.release()
        assert (task.state, task.failures, task.losses) == ("pending", 0, 0)
    async with timed.claim() as (one,):
        task = await one.snooze(timedelta(minutes=5))
        assert (task.state, task.available_at) == ("pending", clock.now() + timedelta(minutes=5))
    async with timed.claim() as claimed:
        assert claimed == []
    clock.advance(300)
    async with timed.claim() as (one,):
        with pytest.raises(InvalidInput, match="time zone"):
            await one.snooze(NAIVE)
        await one.snooze(clock.now() + timedelta(seconds=1))
    clock.advance(1)
    async with timed.claim() as (one,):
        task = await one.fail("bad address")
        assert task.error is not None and (task.state, task.error.reason) == ("failed", "permanent")
    assert (await handle.refresh()).attempt == 4


async def test_a_task_is_settled_once(q: Queue) -> None:
    """A second settlement, or a heartbeat after it, is refused."""
    await q.submit("x")
    async with q.claim() as (one,):
        await one.complete()
        for again in (one.complete(), one.fail(), one.release(), one.heartbeat()):
            with pytest.raises(IllegalTransition, match="settled already: it is completed"):
                await again


async def test_what_is_not_settled_is_given_back(q: Queue) -> None:
    """At the end of the block, with an exception and without."""
    await q.submit_many([q.call("x", n) for n in range(3)])
    async with q.claim(limit=3) as claimed:
        await claimed[1].complete()
    assert {task.input: task.state for task in (await q.find()).tasks} == {0: "pending", 1: "completed", 2: "pending"}
    with pytest.raises(ZeroDivisionError):
        async with q.claim(limit=3):
            raise ZeroDivisionError
    stats = await q.stats()
    assert (stats.pending, stats.running) == (2, 0)
    assert all(task.failures == task.losses == 0 for task in (await q.find(state="pending")).tasks)


async def test_types_capabilities_and_any(q: Queue) -> None:
    """Several types, any type, and only what the capabilities allow."""
    for type in ("a", "b", "c"):
        await q.submit(type)
    await q.submit("d", requires=["gpu"])
    async with q.claim("a", "c", limit=9) as claimed:
        assert {one.task.type for one in claimed} == {"a", "c"}
    async with q.claim(limit=9) as claimed:
        assert {one.task.type for one in claimed} == {"a", "b", "c"}
    async with q.claim(limit=9, capabilities=["gpu"]) as claimed:
        assert {one.task.type for one in claimed} == {"a", "b", "c", "d"}
    mistakes: list[dict[str, Any]] = [{"limit": 0}, {"lease": 0}, {"wait": -1}, {"capabilities": [""]}]
    for wrong in mistakes:
        with pytest.raises(InvalidInput):
            q.claim(**wrong)


async def test_a_lost_lease_writes_nothing(timed: Queue, clock: ManualClock) -> None:
    """Once the lease ran out and was collected, every verb raises LeaseLost and the new holder is left alone."""
    handle = await timed.submit("x", timeout=1)
    async with timed.claim(lease=5) as (stale,):
        await pass_time(clock, 30)
        async with timed.claim() as (fresh,):
            assert (fresh.id, fresh.task.attempt) == (handle.id, 2)
            for verb in (stale.heartbeat(), stale.complete("stale"), stale.fail(), stale.release()):
                with pytest.raises(LeaseLost, match="nothing was written"):
                    await verb
            assert stale.lost
            await fresh.complete("fresh")
    assert await handle.result() == "fresh"


async def test_a_loss_that_settling_finds(timed: Queue, clock: ManualClock) -> None:
    """complete() itself finds out, without a heartbeat before."""
    await timed.submit("x", timeout=1)
    async with timed.claim(lease=5) as (stale,):
        await pass_time(clock, 30)
        await timed.expire()
        with pytest.raises(LeaseLost):
            await stale.complete()


async def test_leases_are_renewed_while_the_block_runs(timed: Queue, clock: ManualClock) -> None:
    """For as long as the task's timeout allows, however long that is compared with the lease."""
    handle = await timed.submit("x", timeout=100)
    async with timed.claim(lease=8) as (one,):
        for _ in range(40):
            await pass_time(clock, 2)
            assert await timed.expire() == 0
        await one.heartbeat({"done": 80})
        assert (await handle.refresh()).progress == {"done": 80}
        for _ in range(20):
            await pass_time(clock, 2)
        assert await timed.expire() == 1
        with pytest.raises(LeaseLost):
            await one.complete()


async def test_a_renewal_that_fails_is_tried_again(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot be reached is not a lost lease."""
    store = MemoryStore(clock=clock)
    async with Queue(store=store, settings=Settings(), clock=clock) as q:
        await q.submit("x")
        async with q.claim(lease=20) as (one,):
            with monkeypatch.context() as patch:

                async def away(*_: object) -> Any:
                    raise Unavailable("away")

                patch.setattr(store, "renew", away)
                await pass_time(clock, 5)
                await pass_time(clock, 5)
            await pass_time(clock, 5)
            await pass_time(clock, 15)
            assert await q.expire() == 0
            assert (await one.complete()).state == "completed"


async def test_a_cancellation_is_seen_and_wins(timed: Queue, clock: ManualClock) -> None:
    """The renewal brings the news; whatever is settled then ends as cancelled, with what was returned."""
    handle = await timed.submit("x")
    async with timed.claim() as (one,):
        await handle.cancel()
        assert not one.cancel_requested
        await pass_time(clock, 5)
        assert one.cancel_requested
        task = await one.complete({"half": 1})
        assert (task.state, task.output) == ("cancelled", {"half": 1})


async def test_a_cancellation_that_settling_finds(q: Queue) -> None:
    """Asked for between the last renewal and the settlement: decided again, knowing of it."""
    one, two, three = await q.submit_many([q.call("x", n) for n in range(3)])
    async with q.claim(limit=3) as (first, second, _):
        for handle in (one, two, three):
            await handle.cancel()
        assert (await first.complete(1)).state == "cancelled"
        assert (await second.retry()).state == "cancelled"
    assert (await three.refresh()).state == "cancelled"


async def test_waiting_for_work(q: Queue) -> None:
    """With `wait` the block begins when there is something to do, or empty when the time is over."""
    async with q.claim(wait=0.01) as claimed:
        assert claimed == []
    entered = asyncio.create_task(_claim_one(q))
    await turns()
    await q.submit("x", 7)
    assert await asyncio.wait_for(entered, 10) == 7


async def _claim_one(q: Queue) -> Any:
    async with q.claim(wait=60) as (one,):
        await one.complete()
        return one.input


async def test_waiting_for_a_delayed_task(q: Queue) -> None:
    """A task that becomes due ends the wait at its time."""
    await q.submit("x", 1, delay=0.05)
    assert await asyncio.wait_for(_claim_one(q), 10) == 1


async def test_expired_leases_are_taken_before_claiming(timed: Queue, clock: ManualClock) -> None:
    """A claim by hand does a round of upkeep first: what a dead holder left is there to be taken."""
    await timed.submit("x")
    claim = timed.claim(lease=5)
    await claim.__aenter__()
    claim._keeper.cancel()  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    clock.advance(6)
    async with timed.claim() as (one,):
        assert (one.task.attempt, one.task.losses) == (2, 1)
        await one.complete()
    await claim.__aexit__(None, None, None)


class Breaking(MemoryStore):
    """Loses replies, or waits to be told to go on."""

    def __init__(self, lost: int = 0) -> None:
        super().__init__()
        self.lost = lost
        self.leases: list[str] = []
        self.hold: asyncio.Event | None = None
        self.entered = asyncio.Event()

    async def claim(self, want: Want) -> Claimed:
        self.leases.append(want.lease_id)
        claimed = await super().claim(want)
        self.entered.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.lost:
            self.lost -= 1
            raise OutcomeUnknown("the line broke")
        return claimed


async def test_a_claim_whose_reply_was_lost_is_repeated() -> None:
    """With the same lease id, so that what the first try took is found."""
    store = Breaking(lost=2)
    async with Queue(store=store, settings=Settings()) as q:
        await q.submit("x")
        async with q.claim() as claimed:
            assert len(claimed) == 1 and claimed[0].task.attempt == 1
        assert len(store.leases) == 3 and len(set(store.leases)) == 1


async def test_a_claim_that_is_cancelled_gives_back_what_it_got() -> None:
    """Who is cancelled while claiming leaves no task behind under a lease."""
    store = Breaking()
    async with Queue(store=store, settings=Settings()) as q:
        handle = await q.submit("x")
        store.hold = asyncio.Event()
        entering = asyncio.create_task(_claim_one(q))
        await store.entered.wait()
        entering.cancel()
        await turns()
        store.hold.set()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert (await handle.refresh()).state == "pending"


class Crowded(MemoryStore):
    """Others are always in the way."""

    async def claim(self, want: Want) -> Claimed:
        return Claimed(contended=True)


async def test_a_claim_that_never_gets_through_is_given_up() -> None:
    """Contention, not an endless loop and not an empty answer."""
    async with Queue(store=Crowded(), settings=Settings()) as q:
        with pytest.raises(Contention):
            async with q.claim():
                pass


class Away(MemoryStore):
    """Cannot be written when it matters."""

    away = False

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | QoError]:
        if self.away:
            raise Unavailable("away")
        return await super().settle(settlements)


async def test_giving_back_never_hides_the_callers_error() -> None:
    """A store that is away at the end of the block costs a lease, not the exception that ended the block."""
    store = Away()
    async with Queue(store=store, settings=Settings()) as q:
        await q.submit("x")
        with pytest.raises(ZeroDivisionError):
            async with q.claim():
                store.away = True
                raise ZeroDivisionError
        store.away = False
        assert (await q.stats()).running == 1


async def test_a_record_that_cannot_be_read_is_failed(tmp_path: Path) -> None:
    """A claim by hand goes on beside a corrupt record, which ends as failed."""
    async with Queue(f"sqlite:///{tmp_path}/qo.db", settings=Settings()) as q:
        bad, good = await q.submit("x"), await q.submit("x")
        with closing(sqlite3.connect(tmp_path / "qo.db")) as connection, connection:
            connection.execute("UPDATE qo_tasks SET retry = '{' WHERE id = ?", (bad.id,))
        async with q.claim(limit=5) as claimed:
            assert [one.id for one in claimed] == [good.id]
        assert (await q.stats()).failed == 1

"""Waiting for results: every way a task can end, and not ending."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.client.tools import fail, finish, turns

from qo import CorruptRecord, InvalidInput, Queue, ResultTimeout, TaskCancelled, TaskFailed, TaskNotFound
from qo.clock import ManualClock
from qo.settings import Settings
from qo.stores.memory import MemoryStore
from qo.task import Task

NOBODY = "01890000-0000-7000-8000-000000000000"


async def test_the_output_comes_back_by_its_annotation(q: Queue) -> None:
    """With the handler here the result is what it returned; without, what JSON made of it."""

    @q.task
    def parts() -> tuple[int, bytes]: ...

    handle = await parts.submit()
    waiting = asyncio.create_task(handle.result(timeout=10))
    await turns()
    await finish(q, (1, b"x"))
    assert await waiting == (1, b"x")
    assert handle.state == "completed"
    assert await q.result(handle) == await q.result(handle.id) == (1, b"x")
    other = await q.submit("elsewhere")
    await finish(q, {"a": [1]})
    assert await other.result() == {"a": [1]}


async def test_a_failure_is_told_with_its_traceback(q: Queue) -> None:
    """TaskFailed has the error in its message, the record's error beside it, and the traceback as a note."""
    handle = await q.submit("x")
    try:
        raise ValueError("no such address")
    except ValueError as error:
        await fail(q, error)
    with pytest.raises(TaskFailed, match="failed after 1 attempt, permanent: ValueError: no such address") as caught:
        await handle.result()
    assert caught.value.task_id == handle.id
    assert caught.value.error.type == "ValueError"
    assert "test_results.py" in caught.value.__notes__[0]


async def test_a_cancelled_task_is_told(q: Queue) -> None:
    """TaskCancelled, also when it was archived since."""
    handle = await q.submit("x")
    assert (await handle.cancel()).state == "cancelled"
    with pytest.raises(TaskCancelled):
        await handle.result()
    await q.archive(handle.id)
    with pytest.raises(TaskCancelled):
        await q.result(handle.id)


async def test_an_archived_result_is_still_a_result(q: Queue) -> None:
    """Archiving hides a task from lists, not its output."""
    handle = await q.submit("x")
    await finish(q, 5)
    await q.archive(handle.id)
    assert await handle.result() == 5
    assert handle.state == "archived"


async def test_nobody_knows_it(q: Queue) -> None:
    """An unknown id, one that is no id, and one deleted while it is waited for."""
    with pytest.raises(TaskNotFound) as caught:
        await q.result(NOBODY)
    assert caught.value.task_id == NOBODY
    with pytest.raises(InvalidInput):
        await q.result("42")
    with pytest.raises(TaskNotFound):
        await q.history(NOBODY)
    handle = await q.submit("x")
    await handle.cancel()
    await q.delete(handle.id)
    with pytest.raises(TaskNotFound):
        await handle.refresh()


async def test_waiting_ends(q: Queue) -> None:
    """ResultTimeout says how the task stands; 0 looks once."""
    handle = await q.submit("x")
    with pytest.raises(ResultTimeout, match="is pending: is a worker for this type running"):
        await handle.result(timeout=0)
    async with q.claim():
        with pytest.raises(ResultTimeout, match="it is running"):
            await handle.result(timeout=0.001)


class Counting(MemoryStore):
    reads: list[int]

    async def get(self, ids: Sequence[str]) -> list[Task | CorruptRecord | None]:
        self.reads.append(len(ids))
        return await super().get(ids)


async def test_waiters_share_reads_and_slow_down() -> None:
    """A hundred waiters cost a few reads, first after 5 ms, later every 250 ms."""
    clock = ManualClock()
    store = Counting(clock=clock)
    store.reads = []
    async with Queue(store=store, settings=Settings(), clock=clock) as q:
        handles = await q.submit_many([q.call("x") for _ in range(100)])
        waiters = [asyncio.create_task(handle.result()) for handle in handles]
        await turns()
        assert sum(store.reads) == 100 and len(store.reads) <= 2
        for _ in range(10):
            clock.advance(0.25)
            await turns()
        calls = len(store.reads)
        clock.advance(0.249)
        await turns()
        assert len(store.reads) == calls
        async with q.claim(limit=100) as claimed:
            for one in claimed:
                await one.complete(7)
        clock.advance(0.25)
        assert await asyncio.gather(*waiters) == [7] * 100
        assert len(store.reads) <= 30


async def test_a_waiter_can_give_up(q: Queue) -> None:
    """A cancelled wait leaves nothing behind, and the task alone."""
    handle = await q.submit("x")
    waiting = asyncio.create_task(handle.result())
    await turns()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (await handle.refresh()).state == "pending"

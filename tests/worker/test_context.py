"""Each attempt sees its own context, and nothing of the one before it."""

import asyncio
import contextlib
import threading
from contextvars import ContextVar
from typing import Any

import pytest
from tests.worker.worker_tools import PATIENCE, burst, until, until_state, working

import qo
from qo.errors import UsageError
from qo.worker.coroutines import Coroutines

variable: ContextVar[str] = ContextVar("variable", default="clean")


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_context_variables_do_not_leak(q: qo.Queue, kind: str) -> None:
    """A variable set by one handler is not seen by the next, and that of whoever started the worker is."""
    seen: list[str] = []

    def body() -> None:
        seen.append(variable.get())
        variable.set("dirty")

    async def in_coroutine() -> None:
        body()

    variable.set("mine")
    job = q.task(name="job")(in_coroutine if kind == "async" else body)
    for _ in range(5):
        await job.submit()
    await burst(q, concurrency=1)
    assert seen == ["mine"] * 5


async def test_current_in_tasks_and_threads(q: qo.Queue) -> None:
    """qo.current() is the right attempt in tasks and threads that a handler starts, for many handlers at once."""

    @q.task
    async def job(x: int) -> list[str]:
        async def nested() -> str:
            await asyncio.sleep(0)
            return qo.current().task.id

        first = asyncio.create_task(nested())
        return [await first, await asyncio.to_thread(lambda: qo.current().task.id), *await asyncio.gather(nested())]

    handles = await q.submit_many([job.call(x=x) for x in range(20)])
    await burst(q, concurrency=10)
    for handle in handles:
        assert (await q.get(handle.id)).output == [handle.id] * 3


async def test_current_outside() -> None:
    """Outside a handler there is no current attempt."""
    with pytest.raises(UsageError, match="inside a handler"):
        qo.current()


async def test_late_interruption_hits_nobody_else(q: qo.Queue) -> None:
    """Handlers that end just when their time is up leave the next ones of their consumer alone."""
    started: list[int] = []

    @q.task(timeout=0.02, max_retries=0)
    async def short(x: int) -> None:
        # Ends in the same turn of the loop in which the timer rings, more or less.
        await asyncio.sleep(0.02 + (x - 15) / 10_000)

    @q.task(timeout=10, max_retries=0)
    async def quiet(x: int) -> int:
        started.append(x)
        for _ in range(20):
            await asyncio.sleep(0)
        return x

    calls: list[Any] = [one for x in range(30) for one in (short.call(x=x), quiet.call(x=x))]
    handles = await q.submit_many(calls)
    async with working(q, concurrency=2):
        for handle in handles:
            await until_state(q, handle.id, "completed", "failed")
    for handle in handles[1::2]:
        task = await q.get(handle.id)
        assert (task.state, task.attempt) == ("completed", 1)
    assert len(started) == 30


async def test_swallowed_cancellation_hits_nobody_else(q: qo.Queue) -> None:
    """A handler that swallows its cancellation does not hand it on to the next."""

    @q.task(timeout=0.03)
    async def swallow() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    @q.task(timeout=10)
    async def after() -> str:
        await asyncio.sleep(0.001)
        return "fine"

    first, second = await swallow.submit(), await after.submit()
    async with working(q, concurrency=1):
        assert (await until_state(q, second.id, "completed", "failed")).output == "fine"
        assert (await q.get(first.id)).state == "completed"


async def test_handler_that_cancels_itself(q: qo.Queue) -> None:
    """A handler that cancels its own asyncio task fails alone."""

    @q.task(max_retries=0)
    async def selfish(wait: bool) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if wait:
            await asyncio.sleep(PATIENCE)

    @q.task
    async def after() -> str:
        await asyncio.sleep(0.001)
        return "fine"

    handles = [await selfish.submit(wait=True), await selfish.submit(wait=False)]
    goods = [await after.submit() for _ in range(3)]
    async with working(q, concurrency=1):
        for good in goods:
            assert (await until_state(q, good.id, "completed", "failed")).output == "fine"
        states = [(await q.get(one.id)).state for one in handles]
    assert states == ["failed", "completed"]


async def test_leaked_task_breaks_nothing(q: qo.Queue) -> None:
    """A task a handler leaves behind goes on; its progress and cancellation concern nobody."""
    release, said = asyncio.Event(), asyncio.Event()
    left: list[asyncio.Task[None]] = []

    @q.task
    async def job() -> None:
        async def leaked() -> None:
            await release.wait()
            qo.current().progress("late")
            said.set()

        left.append(asyncio.create_task(leaked()))

    @q.task
    async def after() -> None: ...

    handle = await job.submit()
    async with working(q, concurrency=1):
        await until_state(q, handle.id, "completed")
        release.set()
        await until(said.is_set)
        await until_state(q, (await after.submit()).id, "completed")
        assert (await q.get(handle.id)).progress is None
    await left[0]


async def test_interrupted_before_it_began(q: qo.Queue) -> None:
    """A run that is interrupted between claim and its first step is never run."""
    ran: list[str] = []
    start = Coroutines.start

    def interrupted(self: Coroutines, run: Any) -> None:
        start(self, run)
        if run.task.attempt == 1:
            run.stop = "timeout"
            self.interrupt(run)

    @q.task(max_retries=0)
    async def job() -> None:
        ran.append(qo.current().task.id)

    handle = await job.submit()
    Coroutines.start = interrupted
    try:
        async with working(q):
            await until_state(q, handle.id, "failed", "completed")
    finally:
        Coroutines.start = start
    assert ran == [] and (await q.get(handle.id)).state == "failed"


async def test_consumers_are_reused(q: qo.Queue) -> None:
    """Many short handlers run on as many asyncio tasks as run at once."""
    consumers: set[int] = set()
    keep: list[Any] = []

    @q.task
    async def job() -> None:
        task = asyncio.current_task()
        if id(task) not in consumers:
            consumers.add(id(task))
            keep.append(task)

    await q.submit_many([job.call() for _ in range(300)])
    await burst(q, concurrency=5)
    assert len(consumers) <= 5


async def test_threads_are_reused_and_end(q: qo.Queue) -> None:
    """As many threads as run at once, and none of them is left after the worker."""
    names: set[str] = set()

    @q.task
    def job() -> None:
        names.add(threading.current_thread().name)

    await q.submit_many([job.call() for _ in range(100)])
    await burst(q, concurrency=3)
    assert len(names) <= 3
    await until(lambda: not [one for one in threading.enumerate() if one.name.startswith(("qo-handler", "qo-lease"))])

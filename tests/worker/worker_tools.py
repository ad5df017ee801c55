"""What the tests of the worker share: queues with short settings, workers that end with their test, waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import qo
from qo.changes import Settlement
from qo.settings import Settings
from qo.stores.protocol import Store
from qo.task import Task, Transition

PATIENCE = 30.0
"""Seconds after which waiting means a broken test; nothing ever takes that long."""
SHORT: dict[str, Any] = {"lease": 5.0, "renew": 0.2, "poll_max": 0.5, "shutdown_deadline": 5.0, "upkeep_interval": 0.1}
NOW = qo.RetryPolicy(initial=0, multiplier=1, jitter=0)
"""Retries without delay."""


def settings(**said: Any) -> Settings:
    """Settings of tests: short, and from nowhere else."""
    return Settings.load({}, None).override(**{**SHORT, **said})


def make_queue(kind: str, folder: Path, *, store: Any = None, clock: Any = None, **said: Any) -> qo.Queue:
    """A queue of its own in memory or in a file of the folder."""
    more: dict[str, Any] = {} if clock is None else {"clock": clock}
    if store is not None:
        return qo.Queue(store=store, settings=settings(**said), **more)
    url = "memory://" if kind == "memory" else f"sqlite:///{folder / 'q.db'}"
    return qo.Queue(url, settings=settings(**said), **more)


@contextlib.asynccontextmanager
async def working(q: qo.Queue, **options: Any) -> AsyncIterator[qo.Worker]:
    """A worker beside the test, stopped at the end; what broke it breaks the test."""
    worker = qo.Worker(q, **options)
    running = asyncio.create_task(worker.run(signals=False))
    try:
        yield worker
    finally:
        worker.stop()
        await running


async def burst(q: qo.Queue, **options: Any) -> qo.Worker:
    """A worker that ran everything there was."""
    worker = qo.Worker(q, **options)
    async with asyncio.timeout(PATIENCE):
        await worker.run(burst=True, signals=False)
    return worker


async def until(condition: Callable[[], Any]) -> Any:
    """Poll until it holds; it may be a coroutine function. AssertionError when it never does."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        value = condition()
        value = await value if isinstance(value, Awaitable) else value
        if value:
            return value
        assert asyncio.get_running_loop().time() < end, f"it did not happen within {PATIENCE:g} s"
        await asyncio.sleep(0.005)


async def until_state(q: qo.Queue, id: str, *states: str) -> Task:
    """The task when it is in one of these states."""
    found: list[Task] = []

    async def reached() -> bool:
        found[:] = [await q.get(id)]
        return found[0].state in states

    await until(reached)
    return found[0]


def check_history(history: list[Transition], task: Task) -> None:
    """A connected chain that ends where the task is, with one claim and at most one end for each attempt."""
    before = None
    for line in history:
        assert line.was == before, [(one.was, one.became) for one in history]
        before = line.became
    assert before == task.state
    claims = [line.attempt for line in history if line.became == "running" and line.was == "pending"]
    assert claims == list(range(1, task.attempt + 1))
    ends = [line.attempt for line in history if line.was == "running" and line.became != "running"]
    assert ends == claims[: len(ends)] and len(ends) >= len(claims) - 1


class Wrapped:
    """A store with some verbs replaced; the rest is the real one's."""

    def __init__(self, store: Store) -> None:
        self.real = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Recorder(Wrapped):
    """Counts claims and keeps settlements."""

    def __init__(self, store: Store, calls: list[str], settled: list[Settlement]) -> None:
        super().__init__(store)
        self.calls = calls
        self.settled = settled

    async def claim(self, want: Any) -> Any:
        self.calls.append("claim")
        return await self.real.claim(want)

    async def settle(self, settlements: Any) -> Any:
        self.settled.extend(settlements)
        return await self.real.settle(settlements)


@contextlib.contextmanager
def patched(target: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute replaced for a while."""
    before = getattr(target, name)
    setattr(target, name, value)
    try:
        yield
    finally:
        setattr(target, name, before)

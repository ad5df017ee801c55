"""A store that does what a test tells it to, over the memory store; for the tests of group commit."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from qo import lifecycle
from qo.changes import Amended, Amendment, Lease, Renewed, Settled, Settlement
from qo.clock import ManualClock
from qo.errors import InvalidInput, QoError
from qo.outcomes import Returned
from qo.stores.memory import MemoryStore
from qo.stores.protocol import Store, Submitted, Want
from qo.task import Task
from qo.values import NULL, encode_value

IDS = ManualClock(seed=11)
NOW = datetime(2030, 1, 1, tzinfo=UTC)


class QuickClock(ManualClock):
    """Sleeps take no time, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps = 0

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        await asyncio.sleep(0)


class Call:
    """One call of a verb, with the items it came with."""

    def __init__(self, verb: str, items: Sequence[Any]) -> None:
        self.verb = verb
        self.items = list(items)
        self.gate = asyncio.Event()

    @property
    def ids(self) -> list[str]:
        return [item.id for item in self.items]

    def let_go(self) -> None:
        self.gate.set()


class Before:
    """A scripted failure that wrote nothing."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class After(Before):
    """A scripted failure of the reply: it is written all the same."""


class ScriptedStore:
    """The writing verbs of a memory store, held up, failing or refusing as told."""

    def __init__(self, *, held: bool = False) -> None:
        self.inner = MemoryStore(clock=ManualClock(NOW))
        self.held = held
        self.calls: list[Call] = []
        self.arrived: asyncio.Queue[Call] = asyncio.Queue()
        self.script: deque[Before | None] = deque()
        """What happens to the next calls, one by one; None is nothing special."""
        self.spoilers: set[str] = set()
        """Ids whose data makes the whole call fail, before anything is written."""
        self.bad_items: dict[str, QoError] = {}
        """Ids that are answered by an error in their place, the others being written."""
        self.created: list[str] = []

    @property
    def store(self) -> Store:
        return cast("Store", self)

    async def submit(self, tasks: Sequence[Task]) -> list[Submitted | QoError]:
        answers: list[Submitted | QoError] = await self._call("submit", tasks, self.inner.submit)
        self.created += [a.task.id for a in answers if isinstance(a, Submitted) and a.outcome == "created"]
        return answers

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | QoError]:
        return await self._call("settle", settlements, self.inner.settle)

    async def amend(self, amendments: Sequence[Amendment]) -> list[Amended | QoError]:
        return await self._call("amend", amendments, self.inner.amend)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Renewed | QoError]:
        return await self._call(f"renew {ttl:g}", leases, lambda some: self.inner.renew(some, ttl))

    async def next_call(self) -> Call:
        """The next call that arrives; waits for it."""
        return await self.arrived.get()

    async def _call(self, verb: str, items: Sequence[Any], write: Callable[[Any], Awaitable[list[Any]]]) -> list[Any]:
        call = Call(verb, items)
        self.calls.append(call)
        self.arrived.put_nowait(call)
        if self.held:
            await call.gate.wait()
        else:
            await asyncio.sleep(0)  # a store that answers without giving way would batch nothing
        fate = self.script.popleft() if self.script else None
        if fate is not None and not isinstance(fate, After):
            raise fate.error
        if spoiled := self.spoilers.intersection(call.ids):
            raise InvalidInput(f"cannot store {sorted(spoiled)}")
        good = [item for item in items if item.id not in self.bad_items]
        answers = iter(await write(good))
        if fate is not None:
            raise fate.error
        return [self.bad_items[item.id] if item.id in self.bad_items else next(answers) for item in items]


def task(key: str | None = None, *, size: int = 0, queue: str = "default", **options: Any) -> Task:
    """A new task; `size` is about how many bytes its input takes."""
    input = encode_value("x" * size) if size else NULL
    return lifecycle.submit(id=IDS.new_id(), type="job", now=NOW, input=input, key=key, queue=queue, **options)


async def running(store: ScriptedStore, count: int) -> list[Task]:
    """Tasks under a lease, made behind the script's back."""
    await store.inner.submit([task() for _ in range(count)])
    claimed = await store.inner.claim(Want(worker_id="w", lease_id=IDS.new_id(), limit=count, ttl=60))
    assert len(claimed.tasks) == count
    return claimed.tasks


def completed(task: Task) -> Settlement:
    return lifecycle.settle(task, Returned(NULL), NOW, 0.5)


def lease(task: Task) -> Lease:
    assert task.lease_id is not None
    return Lease(id=task.id, lease_id=task.lease_id, attempt=task.attempt)


async def turns(count: int = 10) -> None:
    """Let everything that can run do so; no time passes."""
    for _ in range(count):
        await asyncio.sleep(0)

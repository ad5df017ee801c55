"""`memory://`: the reference model in this process, for tests and trying things out; gone when the process ends.

`memory://name` is one queue for every user of that name in the process.
"""

import asyncio
import threading
from collections.abc import Sequence
from datetime import datetime

import msgspec

from qo.changes import Amended, Amendment, Lease, Renewed, Settled, Settlement
from qo.clock import SYSTEM, Clock, wait_until
from qo.errors import CorruptRecord, QoError
from qo.records import Kind, Record
from qo.stores.protocol import ANY_VERSION, Capabilities, Claimed, Corrupt, Filter, Page, Sort, Stats, Submitted, Want
from qo.stores.state import QueueState
from qo.task import Task, Transition


class SharedMemory:
    """One queue's state, shared by the stores of several event loops and threads."""

    def __init__(self) -> None:
        self.state = QueueState()
        self.lock = threading.Lock()
        self.changes = 0
        self.waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def changed(self) -> None:
        """Wake whoever waits for work; called with the lock held."""
        self.changes += 1
        for loop, event in self.waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)


class MemoryStore:
    """The store contract over a QueueState."""

    capabilities = Capabilities(push_wakeup=True, text_search=True)

    def __init__(self, shared: SharedMemory | None = None, clock: Clock = SYSTEM) -> None:
        self._shared = shared or SharedMemory()
        self._clock = clock
        self._seen = 0

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def submit(self, tasks: Sequence[Task]) -> list[Submitted | QoError]:
        with self._shared.lock:
            answers = self._shared.state.submit(tasks, self.now())
            self._shared.changed()
        return answers

    async def claim(self, want: Want) -> Claimed:
        with self._shared.lock:
            self._seen = self._shared.changes
            return self._shared.state.claim(want, self.now())

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Renewed | QoError]:
        with self._shared.lock:
            return self._shared.state.renew(leases, ttl, self.now())

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | QoError]:
        with self._shared.lock:
            answers = self._shared.state.settle(settlements, self.now())
            if any(settlement.state == "pending" for settlement in settlements):
                self._shared.changed()
        return answers

    async def amend(self, amendments: Sequence[Amendment]) -> list[Amended | QoError]:
        with self._shared.lock:
            answers = self._shared.state.amend(amendments, self.now())
            self._shared.changed()
        return answers

    async def expired(self, limit: int) -> list[Task | Corrupt]:
        with self._shared.lock:
            return self._shared.state.expired(limit, self.now())

    async def purge(self, filter: Filter, limit: int) -> int:
        with self._shared.lock:
            return self._shared.state.purge(filter, limit)

    async def wait(self, timeout: float) -> None:
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._shared.lock:
            if self._shared.changes != self._seen:
                self._seen = self._shared.changes
                return
            self._shared.waiters.add(waiter)
        try:
            await wait_until(waiter[1], self._clock, timeout)
        finally:
            with self._shared.lock:
                self._shared.waiters.discard(waiter)
                self._seen = self._shared.changes

    async def attach(self, worker_id: str) -> None:
        pass

    async def detach(self, worker_id: str) -> None:
        pass

    async def get(self, ids: Sequence[str]) -> list[Task | CorruptRecord | None]:
        with self._shared.lock:
            return self._shared.state.get(ids)

    async def find(
        self,
        filter: Filter,
        *,
        sort: Sort = "newest",
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
        total: bool = False,
    ) -> Page:
        with self._shared.lock:
            return self._shared.state.find(filter, sort, limit, cursor, offset, total)

    async def history(self, id: str) -> list[Transition]:
        with self._shared.lock:
            return self._shared.state.history(id)

    async def stats(self, queue: str) -> Stats:
        with self._shared.lock:
            return self._shared.state.stats(queue, self.now())

    async def records(self, kind: Kind) -> list[Record]:
        with self._shared.lock:
            return self._shared.state.records(kind)

    async def put_record(self, kind: Kind, key: str, value: msgspec.Raw, version: int = ANY_VERSION) -> Record | None:
        with self._shared.lock:
            record = self._shared.state.put_record(kind, key, value, version, self.now())
            if kind == "control":
                self._shared.changed()
        return record

    async def delete_record(self, kind: Kind, key: str) -> bool:
        with self._shared.lock:
            there = self._shared.state.delete_record(kind, key)
            if kind == "control":
                self._shared.changed()
        return there

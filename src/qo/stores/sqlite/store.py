"""The store contract over one SQLite file. Writing verbs go to `writer`, reading verbs to a small pool beside it.

submit, claim, settle, …  ->  writer thread  ->  writing.py, claiming.py  ->  sql/*.sql
get, find, stats, …       ->  reader threads ->  reading.py
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from qo.changes import Amended, Amendment, Lease, Renewed, Settled, Settlement
from qo.clock import SYSTEM, Clock, micros, wait_until
from qo.errors import CorruptRecord, QoError, Unavailable
from qo.records import Kind, Record
from qo.stores.protocol import ANY_VERSION, Capabilities, Claimed, Corrupt, Filter, Page, Sort, Stats, Submitted, Want
from qo.stores.sqlite import claiming, reading, settling, writing
from qo.stores.sqlite.connection import Synchronous, connect, translated
from qo.stores.sqlite.presence import Presence
from qo.stores.sqlite.schema import migrate
from qo.stores.sqlite.turns import Turns
from qo.stores.sqlite.writer import Writer
from qo.task import Task, Transition

T = TypeVar("T")
READERS = 2


class SqliteStore:
    """One SQLite file; any number of processes on one machine may use it at once."""

    def __init__(self, path: str | Path, *, synchronous: Synchronous = "NORMAL", clock: Clock = SYSTEM) -> None:
        self.path = Path(path).absolute()
        self._synchronous: Synchronous = synchronous
        self._clock = clock
        self._presence = Presence(Path(f"{self.path}-run"), clock.new_id())
        self._writer: Writer | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._connections = threading.local()
        self._open_connections: list[sqlite3.Connection] = []
        self._is_open = False
        self._closing = asyncio.Lock()
        works = self._presence.works
        self.capabilities = Capabilities(push_wakeup=works, text_search=True, certain_death=self._presence.certain)

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self) -> None:
        if not self.path.parent.is_dir():
            raise Unavailable(f"there is no folder {self.path.parent}: create it, or name another file")
        writer = Writer(
            lambda: connect(self.path, self._synchronous), lambda: Turns(Path(f"{self.path}-turn")), migrate
        )
        try:
            await writer.start()
        except BaseException:
            await writer.stop()
            raise
        self._writer = writer
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="qo-sqlite-reader")
        self._is_open = True

    async def close(self) -> None:
        async with self._closing:
            self._is_open = False
            self._end_waits()
            # Readers first: whoever closes the file last empties and removes the log, and readers may not.
            if self._readers is not None:
                await asyncio.get_running_loop().run_in_executor(None, self._readers.shutdown)
                self._readers = None
            while self._open_connections:
                self._open_connections.pop().close()
            if self._writer is not None:
                await self._writer.stop()
            self._presence.close()

    # Writing.

    async def submit(self, tasks: Sequence[Task]) -> list[Submitted | QoError]:
        answers = await self._write(lambda connection, now: writing.submit(connection, tasks, now))
        self._presence.wake_all()
        return answers

    async def claim(self, want: Want) -> Claimed:
        self._check_open()
        self._presence.listen()  # from now on, so that no wake-up between this claim and the next wait is missed
        return await self._write(lambda connection, now: claiming.claim(connection, want, now))

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Renewed | QoError]:
        return await self._write(lambda connection, now: settling.renew(connection, leases, ttl, now))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | QoError]:
        answers = await self._write(lambda connection, now: settling.settle(connection, settlements, now))
        if any(settlement.state == "pending" for settlement in settlements):
            self._presence.wake_all()
        return answers

    async def amend(self, amendments: Sequence[Amendment]) -> list[Amended | QoError]:
        answers = await self._write(lambda connection, now: writing.amend(connection, amendments, now))
        if any(amendment.state == "pending" for amendment in amendments):
            self._presence.wake_all()
        return answers

    async def expired(self, limit: int) -> list[Task | Corrupt]:
        self._check_open()
        seen = micros(self._clock.now())
        if gone := self._presence.gone():
            await self._write(lambda connection, now: writing.drop_leases(connection, gone, seen, now))
            for worker_id in gone:
                self._presence.forget(worker_id)
        return await self._read(lambda connection, now: reading.expired(connection, limit, now))

    async def purge(self, filter: Filter, limit: int) -> int:
        where, values = reading.conditions(filter)
        return await self._write(lambda connection, now: writing.purge(connection, where, values, limit))

    # Waiting and presence.

    async def wait(self, timeout: float) -> None:
        self._check_open()
        pipe = self._presence.listen()
        if pipe is None:
            await self._clock.sleep(timeout)
            return
        if self._presence.heard():
            self._wake_waiting()  # what was heard is meant for all who wait here
            return
        woken = asyncio.Event()
        waiting = self._presence.waiting
        loop = asyncio.get_running_loop()
        if not waiting:
            loop.add_reader(pipe, self._on_wake)
        waiting.add(woken)
        try:
            await wait_until(woken, self._clock, timeout)
        finally:
            waiting.discard(woken)
            if not waiting and self._presence.pipe == pipe:
                loop.remove_reader(pipe)

    def _on_wake(self) -> None:
        self._presence.heard()
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        for event in self._presence.waiting:
            event.set()

    def _end_waits(self) -> None:
        if self._presence.waiting and self._presence.pipe is not None:
            asyncio.get_running_loop().remove_reader(self._presence.pipe)
            self._wake_waiting()

    async def attach(self, worker_id: str) -> None:
        self._check_open()
        self._presence.attach(worker_id)

    async def detach(self, worker_id: str) -> None:
        self._presence.detach(worker_id)

    # Reading.

    async def get(self, ids: Sequence[str]) -> list[Task | CorruptRecord | None]:
        return await self._read(lambda connection, now: reading.get(connection, ids))

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
        return await self._read(
            lambda connection, now: reading.find(connection, filter, sort, limit, cursor, offset, total)
        )

    async def history(self, id: str) -> list[Transition]:
        return await self._read(lambda connection, now: reading.history(connection, id))

    async def stats(self, queue: str) -> Stats:
        return await self._read(lambda connection, now: reading.stats(connection, queue, now))

    async def records(self, kind: Kind) -> list[Record]:
        return await self._read(lambda connection, now: reading.records(connection, kind))

    async def put_record(self, kind: Kind, key: str, value: msgspec.Raw, version: int = ANY_VERSION) -> Record | None:
        record = await self._write(
            lambda connection, now: writing.put_record(connection, kind, key, value, version, now)
        )
        if kind == "control":
            self._presence.wake_all()
        return record

    async def delete_record(self, kind: Kind, key: str) -> bool:
        there = await self._write(lambda connection, now: writing.delete_record(connection, kind, key))
        if kind == "control":
            self._presence.wake_all()
        return there

    # How they run.

    def _check_open(self) -> None:
        if not self._is_open:
            raise Unavailable("the store is not open")

    async def _write(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        self._check_open()
        assert self._writer is not None
        return await self._writer.run(lambda connection: work(connection, micros(self._clock.now())))

    async def _read(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        self._check_open()
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_now, work)

    def _read_now(self, work: Callable[[sqlite3.Connection, int], T]) -> T:
        try:
            connection: sqlite3.Connection | None = getattr(self._connections, "reader", None)
            if connection is None:
                connection = connect(self.path, self._synchronous, read_only=True)
                self._connections.reader = connection
                self._open_connections.append(connection)
            return work(connection, micros(self._clock.now()))
        except Exception as error:
            found = translated(error)
            if found is error:
                raise
            raise found from error

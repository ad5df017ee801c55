"""The one thread that writes a SQLite file. Calls that arrive while it works share its next transaction.

`store` hands it functions of a connection; it runs all that wait in one transaction and answers them after the commit.
An error of one of them is not an error of the others.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from qo.errors import Contention, Unavailable
from qo.stores.sqlite.connection import translated
from qo.stores.sqlite.turns import Turns

T = TypeVar("T")
MOST_JOBS = 64


class _Job(Generic[T]):
    __slots__ = ("error", "future", "loop", "result", "work")

    def __init__(self, work: Callable[[sqlite3.Connection], T]) -> None:
        self.work = work
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self.loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None

    def answer(self) -> None:
        if self.future.done():  # the caller was cancelled; what it asked for is done all the same
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # pyright: ignore[reportArgumentType] - set before the answer


class Writer:
    """Owns the writing connection and its thread."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        turns: Callable[[], Turns],
        prepare: Callable[[sqlite3.Connection], None],
    ) -> None:
        self._connect = connect
        self._open_turns = turns
        self._prepare = prepare
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._live, name="qo-sqlite-writer", daemon=True)
        self._closed = False

    async def start(self) -> None:
        """Open the file, and answer when it is ready to be written."""
        self._thread.start()
        await self.run(self._prepare)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run it inside a transaction; returns when that is committed."""
        if self._closed:
            raise Unavailable("the store is closed")
        job = _Job(work)
        self._jobs.put(job)
        return await job.future

    async def stop(self) -> None:
        """Finish what was asked for, then close the file."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)

    def _live(self) -> None:
        connection: sqlite3.Connection | None = None
        turns: Turns | None = None
        try:
            while batch := self._next_batch():
                try:
                    turns = turns or self._open_turns()
                    if connection is None:
                        # SQLite does not wait when several switch a new file to WAL at once, so they take turns.
                        with turns:
                            connection = self._connect()
                except Exception as error:
                    for job in batch:
                        job.error = translated(error)
                else:
                    self._run(connection, turns, batch)
                _answer(batch)
        finally:
            if connection is not None:
                connection.close()
            if turns is not None:
                turns.close()

    def _next_batch(self) -> list[_Job[Any]]:
        """Everything that waits, up to a limit; empty when it is time to end."""
        first = self._jobs.get()
        if first is None:
            return []
        batch = [first]
        while len(batch) < MOST_JOBS and not self._jobs.empty():
            job = self._jobs.get()
            if job is None:
                self._jobs.put(None)
                break
            batch.append(job)
        return batch

    def _run(self, connection: sqlite3.Connection, turns: Turns, batch: list[_Job[Any]]) -> None:
        try:
            with turns:
                self._transact(connection, batch)
        except BaseException as error:
            found = translated(error)
            # A file that stayed locked is nobody's fault, and to wait again for each would take for ever.
            if len(batch) == 1 or isinstance(found, Contention):
                for job in batch:
                    job.error = found
                return
            # One of them spoiled it for all: each gets a transaction of its own.
            for job in batch:
                self._run(connection, turns, [job])

    @staticmethod
    def _transact(connection: sqlite3.Connection, batch: list[_Job[Any]]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for job in batch:
                job.result = job.work(connection)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _answer(batch: list[_Job[Any]]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
    for job in batch:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_answer_all, jobs)


def _answer_all(jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        job.answer()

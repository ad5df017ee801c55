"""The opened store of a queue: one for each running event loop of each process. `queue` asks, nobody else opens.

Connections belong to the loop and the process that made them, so a queue used from several threads, or after a fork,
opens its store anew for each. No asyncio task lives here: an idle session is only an open store.
"""

import asyncio
import logging
import os
import platform
import re
import sys
from collections.abc import Callable
from typing import cast

from qo.clock import Clock
from qo.commit import Committer, GroupCommit
from qo.errors import UsageError
from qo.stores.protocol import Store
from qo.task import Task

log = logging.getLogger("qo")
CLOSING = 5.0
"""Seconds that closing the store of a loop that is gone may take; its connections may never answer."""


class Session:
    """An opened store, and what lets concurrent calls share its round trips."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.commits = GroupCommit(store, clock)
        self._reads = Committer[str, Task | None](store.get, lambda _: 40)
        self._clock = clock
        self._attached: str | None = None

    async def get(self, id: str) -> Task | None:
        """One task; readers that wait at the same time share one read."""
        return await self._reads.add(id)

    async def attach(self) -> str:
        """The name this session claims under; where the store can tell, its leases expire with the process."""
        if self._attached is None:
            host = re.sub(r"[^A-Za-z0-9_.-]", "-", platform.node())[:100] or "host"
            self._attached = f"pull-{host}-{os.getpid()}-{self._clock.new_id()[-8:]}"
            await self.store.attach(self._attached)
        return self._attached

    async def close(self) -> None:
        """Write what is waiting, then close the store."""
        try:
            await asyncio.gather(self._reads.close(), self.commits.close())
        finally:
            await self.store.close()


def _refuse_while_imported() -> None:
    """A main module without its guard would submit and start everything again in each child process of a worker."""
    child = sys.modules.get("qo.worker.child")
    if child is not None and child.importing_main():
        raise UsageError(
            "this module is being imported by a child process of a worker, which must not submit or run tasks: put "
            'what the program does under `if __name__ == "__main__":`'
        )


class _Slot:
    """The place of one loop's session; the lock lets concurrent first uses open once."""

    __slots__ = ("lock", "session")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.session: Session | None = None


class Sessions:
    """The sessions of one queue. Each loop touches its own slot only, so threads need no lock."""

    def __init__(self, open_store: Callable[[], Store], clock: Clock) -> None:
        self._open_store = open_store
        self._clock = clock
        self._pid = os.getpid()
        self._slots: dict[asyncio.AbstractEventLoop, _Slot] = {}
        self._parents: list[object] = []

    def ready(self) -> Session | None:
        """The session of this loop, if it is open."""
        if self._pid != os.getpid():
            self._forked()
        slot = self._slots.get(asyncio.get_running_loop())
        return slot.session if slot else None

    async def open(self) -> Session:
        """The session of this loop, opened if need be. After a failure the next call tries again."""
        if session := self.ready():
            return session
        slot = self._slots.setdefault(asyncio.get_running_loop(), _Slot())
        async with slot.lock:
            if slot.session is None:
                _refuse_while_imported()
                await self.drop_dead()
                store = self._open_store()
                try:
                    await store.open()
                except BaseException:
                    await store.close()
                    raise
                slot.session = Session(store, self._clock)
        return slot.session

    async def close(self) -> None:
        """Close the session of this loop, and what loops that are gone left open. The next use opens anew."""
        self.ready()
        await self.drop_dead()
        loop = asyncio.get_running_loop()
        if slot := self._slots.get(loop):
            async with slot.lock:  # one that is being opened is closed once it is open
                session, slot.session = slot.session, None
                if session:
                    await session.close()
            if slot.session is None and not slot.lock.locked():
                del self._slots[loop]

    async def drop_dead(self) -> None:
        """Close the stores of loops that ended without closing them, as well as that can be done from here."""
        for loop in [loop for loop in self._slots if loop.is_closed()]:
            slot = self._slots.pop(loop, None)
            if slot and slot.session:
                try:
                    async with asyncio.timeout(CLOSING):
                        await slot.session.store.close()
                except Exception as error:
                    log.debug("the store of an event loop that ended could not be closed: %r", error)

    def _forked(self) -> None:
        # The connections are the parent's: closing them here, even by garbage collection, would disturb it.
        self._parents.append(self._slots)
        self._slots = {}
        self._pid = os.getpid()


class Lending:
    """A store object that was handed in, shared by a queue and its worker: opened by the first, closed by the last."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def lend(self) -> Store:
        """The store for one more user."""
        return cast("Store", _Lent(self))

    async def join(self) -> None:
        """One more user; opens the store for the first."""
        loop = asyncio.get_running_loop()
        if self._users and self._loop is not loop:
            raise UsageError("a store object serves one event loop; pass a function that makes stores: store=lambda: …")
        self._loop = loop
        if self._users == 0:
            await self.store.open()
        self._users += 1

    async def leave(self) -> None:
        """One user less; closes the store with the last."""
        self._users -= 1
        if self._users == 0:
            await self.store.close()


class _Lent:
    """The shared store as one user sees it."""

    def __init__(self, lending: Lending) -> None:
        self._lending = lending
        self._joined = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._lending.store, name)

    async def open(self) -> None:
        await self._lending.join()
        self._joined = True

    async def close(self) -> None:
        if self._joined:
            self._joined = False
            await self._lending.leave()

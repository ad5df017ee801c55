"""Asks the store for as much work as there is room for, and waits for more when there is none."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from qo.clock import Clock
from qo.errors import OutcomeUnknown, StoreError
from qo.stores.protocol import Claimed, Store, Want
from qo.worker.limits import Rates, Slots

log = logging.getLogger("qo.worker")
LONGEST_PAUSE = 5.0
LAST_TRIES = 4
"""How often a stopping worker asks what became of a claim whose reply was lost."""


class Claimer:
    """Claims until stopped, and hands over what it got. Never asks for more than there is room for."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        slots: Slots,
        rates: Rates,
        *,
        want: Callable[[int, dict[str, int]], Want],
        take: Callable[[Claimed, float], None],
        poll_min: float,
        poll_max: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._slots = slots
        self._rates = rates
        self._want = want
        self._take = take
        self._poll_min = poll_min
        self._poll_max = poll_max
        self._stop = asyncio.Event()
        self._freed = asyncio.Event()
        self._full_types = False
        """The last claim left a type out because it had no room."""

    def stop(self) -> None:
        """Claim no more. A claim that is under way is finished and its tasks are handed over."""
        self._stop.set()
        self._freed.set()

    def freed(self) -> None:
        """There is more room than before."""
        self._freed.set()

    @property
    def limited(self) -> bool:
        """Does a rate limit keep a type back now?"""
        return self._rates.wait() is not None

    async def run(self) -> None:
        """Claim until stopped."""
        pause = self._poll_min
        while not self._stop.is_set():
            claimed = await self.claim(self._slots.free)
            if claimed is None:
                await self._wait_for_room()
            elif claimed.tasks or claimed.corrupt or claimed.contended:
                pause = self._poll_min
            else:
                await self._idle(claimed, pause)
                pause = min(self._poll_max, pause * 2)

    async def claim(self, most: int) -> Claimed | None:
        """One claim of at most so many; None when there is no room for any."""
        # Before we look, so that a place that gets free while the store is busy is not missed.
        self._freed.clear()
        limit = self._rates.limit(min(most, self._slots.free))
        if limit <= 0:
            return None
        rooms = self._slots.room()
        for type, room in self._rates.room().items():
            rooms[type] = min(room, rooms.get(type, room))
        self._full_types = any(room <= 0 for room in rooms.values())
        asked_at = self._clock.monotonic()
        claimed = await self._repeated(self._want(limit, rooms))
        self._take(claimed, asked_at)
        return claimed

    async def _repeated(self, want: Want) -> Claimed:
        """Until the store answers. The same lease id makes sure that a lost reply costs nothing."""
        pause, tries = self._poll_min, LAST_TRIES
        unknown = False
        while True:
            try:
                return await self._store.claim(want)
            except StoreError as error:
                unknown = unknown or isinstance(error, OutcomeUnknown)
                want = replace(want, again=unknown)
                log.warning("cannot claim, trying again: %s", error)
            if self._stop.is_set():
                tries -= 1
                await self._clock.sleep(pause)
            else:
                await self._first(self._clock.sleep(pause), self._stop.wait())
            # Tasks that an unknown try has taken would wait for their leases to run out.
            if self._stop.is_set() and (not unknown or tries <= 0):
                return Claimed()
            pause = min(LONGEST_PAUSE, pause * 2)

    async def _wait_for_room(self) -> None:
        if self._slots.free > 0 and (wait := self._rates.wait()) is not None:
            # Not longer than a poll: an administrator may lift the limit meanwhile.
            await self._first(self._clock.sleep(min(wait, self._poll_max)), self._freed.wait())
        elif self._slots.free <= 0:
            await self._freed.wait()

    async def _idle(self, claimed: Claimed, pause: float) -> None:
        """Until a wake-up, the next due task, or the end of the pause; where wake-ups are pushed it can be long."""
        timeout = self._poll_max if self._store.capabilities.push_wakeup else pause
        if claimed.next_due is not None:
            timeout = min(timeout, max(0.0, (claimed.next_due - self._store.now()).total_seconds()))
        if (limited := self._rates.wait()) is not None:
            timeout = min(timeout, limited)
        if self._full_types:
            # Tasks of a type without room may be waiting; a place that gets free wakes us too.
            await self._first(self._woken(timeout), self._stop.wait(), self._freed.wait())
        else:
            await self._first(self._woken(timeout), self._stop.wait())

    async def _woken(self, timeout: float) -> None:
        try:
            await self._store.wait(timeout)
        except StoreError as error:
            log.warning("cannot hear of new tasks, polling: %s", error)
            await self._clock.sleep(min(timeout, self._poll_max))

    @staticmethod
    async def _first(*things: Coroutine[Any, Any, object]) -> None:
        """Wait for the first of them, and let go of the others."""
        tasks = [asyncio.ensure_future(thing) for thing in things]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

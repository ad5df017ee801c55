"""Asks the store for as much work as there is room for, and waits for more when there is none."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from qo.clock import Clock
from qo.errors import OutcomeUnknown, StoreError
from qo.stores.protocol import Claimed, Store, Want
from qo.worker.limits import Rates, Slots

log = logging.getLogger("qo.worker")
LONGEST_PAUSE = 5.0


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
        take: Callable[[Claimed], None],
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

    def stop(self) -> None:
        """Claim no more. A claim that is under way is finished and its tasks are handed over."""
        self._stop.set()
        self._freed.set()

    def freed(self) -> None:
        """A place is free again."""
        self._freed.set()

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
        limit = self._rates.limit(min(most, self._slots.free))
        if limit <= 0:
            return None
        rooms = self._slots.room()
        for type, room in self._rates.room().items():
            rooms[type] = min(room, rooms.get(type, room))
        claimed = await self._repeated(self._want(limit, rooms))
        self._take(claimed)
        return claimed

    async def _repeated(self, want: Want) -> Claimed:
        """Until the store answers. The same lease id makes sure that a lost reply costs nothing."""
        pause = self._poll_min
        while True:
            try:
                return await self._store.claim(want)
            except StoreError as error:
                if self._stop.is_set() and not isinstance(error, OutcomeUnknown):
                    return Claimed()
                log.warning("cannot claim, trying again: %s", error)
                await self._first(self._clock.sleep(pause), self._stop.wait())
                if self._stop.is_set():
                    return Claimed()
                pause = min(LONGEST_PAUSE, pause * 2)

    async def _wait_for_room(self) -> None:
        self._freed.clear()
        if self._slots.free > 0 and (wait := self._rates.wait()) is not None:
            await self._first(self._clock.sleep(wait), self._freed.wait())
        elif self._slots.free <= 0 and not self._stop.is_set():
            await self._freed.wait()

    async def _idle(self, claimed: Claimed, pause: float) -> None:
        """Until a wake-up, the next due task, or the end of the pause; where wake-ups are pushed it can be long."""
        timeout = self._poll_max if self._store.capabilities.push_wakeup else pause
        if claimed.next_due is not None:
            timeout = min(timeout, max(0.0, (claimed.next_due - self._store.now()).total_seconds()))
        if (limited := self._rates.wait()) is not None:
            timeout = min(timeout, limited)
        self._freed.clear()
        if any(room <= 0 for room in self._slots.room().values()):
            # Tasks of a type without room may be waiting; a place that gets free wakes us too.
            await self._first(self._store.wait(timeout), self._stop.wait(), self._freed.wait())
        else:
            await self._first(self._store.wait(timeout), self._stop.wait())

    @staticmethod
    async def _first(*things: Coroutine[Any, Any, object]) -> None:
        """Wait for the first of them, and let go of the others."""
        tasks = [asyncio.ensure_future(thing) for thing in things]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

"""One timer for many deadlines: setting one that is not the nearest costs nothing."""

import asyncio
from collections.abc import Callable

from qo.clock import Clock


class Alarm:
    """Calls `ring` at the nearest time it was set to; who is rung looks what is due and sets the next time."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._at = 0.0
        self._timer: asyncio.Task[None] | None = None

    def set(self, at: float) -> None:
        """Ring at that time of the clock's `monotonic`, or before."""
        if self._timer is not None:
            if at >= self._at:
                return
            self._timer.cancel()
        self._at = at
        self._timer = asyncio.get_running_loop().create_task(self._sleep(at))

    async def stop(self) -> None:
        """Never ring again unless set again."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            await asyncio.gather(timer, return_exceptions=True)

    async def _sleep(self, until: float) -> None:
        await self._clock.sleep(until - self._clock.monotonic())
        self._timer = None
        self._ring()

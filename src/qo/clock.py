"""Time, randomness and ids: the only module that touches the real ones (ruff bans them elsewhere).

Everything that needs a clock takes a `Clock`, so that tests and simulations can use `ManualClock` and replay a run.
Times are aware UTC datetimes for people and whole microseconds since 1970 for engines; `micros` and `from_micros`
convert.
"""

import asyncio
import heapq
import os
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """Whole microseconds since 1970; exact both ways with `from_micros`."""
    delta = moment - EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


@lru_cache(maxsize=4096)
def from_micros(value: int) -> datetime:
    """The UTC time that many microseconds after 1970. Remembered: the tasks of a batch share most of their times."""
    return EPOCH + timedelta(microseconds=value)


def pause(seconds: float) -> None:
    """Block this thread; for threads that wait on the machine itself, never on an event loop."""
    time.sleep(seconds)


class Clock(Protocol):
    """What the rest of qo knows about time, chance and identity."""

    def now(self) -> datetime:
        """The time, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        ...

    def chance(self) -> float:
        """A random number from 0 up to but not including 1."""
        ...

    def new_id(self) -> str:
        """A fresh UUIDv7 as text; later ones of one clock sort after earlier ones."""
        ...


class _Ids:
    """UUIDv7 with 12 bits of sub-millisecond time, made strictly increasing within a process."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._last = 0
        self._lock = threading.Lock()

    def make(self, now_micros: int) -> str:
        stamp = now_micros // 1000 << 12 | now_micros % 1000 * 4096 // 1000
        with self._lock:
            if stamp <= self._last:
                stamp = self._last + 1
            self._last = stamp
            tail = self._source.getrandbits(62)
        time_part = f"{stamp >> 28:08x}-{stamp >> 12 & 0xFFFF:04x}-7{stamp & 0xFFF:03x}"
        return f"{time_part}-{tail >> 48 | 0x8000:04x}-{tail & 0xFFFFFFFFFFFF:012x}"


class SystemClock:
    """The machine's clock. Ids stay unique after a fork: the child's randomness is seeded anew."""

    def __init__(self) -> None:
        self._random = random.Random(os.urandom(32))
        self._ids = _Ids(self._random)
        os.register_at_fork(after_in_child=self._reseed)

    def _reseed(self) -> None:
        self._random.seed(os.urandom(32))
        self._ids = _Ids(self._random)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        return self._random.random()

    def new_id(self) -> str:
        return self._ids.make(time.time_ns() // 1000)


class ManualClock:
    """A clock that stands still until `advance`; sleepers wake in the order of their time. Seeded, so runs repeat."""

    def __init__(self, start: datetime | None = None, seed: int = 0) -> None:
        self._micros = micros(start or datetime(2030, 1, 1, tzinfo=UTC))
        self._origin = self._micros
        self._random = random.Random(seed)
        self._ids = _Ids(self._random)
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    def now(self) -> datetime:
        return from_micros(self._micros)

    def monotonic(self) -> float:
        return (self._micros - self._origin) / 1_000_000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._sleepers, (self._micros + int(seconds * 1_000_000), self._count, future))
        await future

    def advance(self, seconds: float) -> None:
        """Jump forward and wake everybody whose time has come."""
        self._micros += int(seconds * 1_000_000)
        while self._sleepers and self._sleepers[0][0] <= self._micros:
            _, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)

    def chance(self) -> float:
        return self._random.random()

    def new_id(self) -> str:
        return self._ids.make(self._micros)


async def wait_until(event: asyncio.Event, clock: Clock, timeout: float) -> None:
    """Return when the event is set, at the latest after `timeout` seconds of that clock."""
    racers: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(event.wait()),
        asyncio.ensure_future(clock.sleep(timeout)),
    ]
    try:
        await asyncio.wait(racers, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for racer in racers:
            racer.cancel()
        await asyncio.gather(*racers, return_exceptions=True)


SYSTEM = SystemClock()

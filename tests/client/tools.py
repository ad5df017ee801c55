"""What several tests need."""

import asyncio
from typing import Any

from qo import Queue
from qo.clock import ManualClock


async def finish(q: Queue, output: Any = None, *types: str) -> str:
    """Complete the next task by hand."""
    async with q.claim(*types) as (claimed,):
        await claimed.complete(output)
    return claimed.id


async def fail(q: Queue, error: str | BaseException = "broken") -> str:
    """Fail the next task for good."""
    async with q.claim() as (claimed,):
        await claimed.fail(error)
    return claimed.id


async def turns(count: int = 20) -> None:
    """Let everything that can run do so."""
    for _ in range(count):
        await asyncio.sleep(0)


async def pass_time(clock: ManualClock, seconds: float) -> None:
    """Advance the clock, and let those who woke up act."""
    clock.advance(seconds)
    await turns()

"""The tasks that the measurements run; `QO_URL` says where."""

import asyncio
import time

import qo

q = qo.Queue()


@q.task
async def nothing(number: int) -> None:
    """No work at all: what remains is the queue."""


@q.task
def nothing_in_a_thread(number: int) -> None:
    """The same as a plain function."""


@q.task
async def when(sent: float) -> float:
    """How long after it was sent it starts, in seconds."""
    return time.time() - sent


@q.task(timeout=None)
async def long(number: int) -> None:
    """Runs until it is killed."""
    await asyncio.sleep(3600)

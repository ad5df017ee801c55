"""What the tests of the process pool share."""

import asyncio
import os
import select
from typing import Any

from tests.worker import process_jobs as jobs

from qo.worker.jobs import Answered, Job, Reply, refer
from qo.worker.processes import ProcessPool
from qo.worker.slots import Running

PATIENCE = 20.0
CHANNEL = refer(jobs.with_channel)
ECHO = Job(function=refer(jobs.echo), raw_input=b"hello")
PID = Job(function=refer(jobs.pid))


def job(function: Any, raw: bytes = b"", timeout: float | None = None, context: bytes = b"") -> Job:
    return Job(function=refer(function), raw_input=raw, context=context, timeout=timeout, entry=CHANNEL)


async def begun(pool: ProcessPool, job: Job) -> tuple[Running, int]:
    """The job when it runs, and the number it reported first."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    running = pool.begin(job, heard.put_nowait)
    return running, int(await heard.get())


def wait_for_death(process: int) -> None:
    """Through a pidfd that was opened while it lived."""
    try:
        assert select.select([process], [], [], PATIENCE)[0], "it is still alive"
    finally:
        os.close(process)


def answer(reply: Reply) -> bytes:
    assert isinstance(reply, Answered), reply
    return reply.raw

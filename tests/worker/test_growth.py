"""A worker that runs for long does not grow."""

import asyncio
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from tests.worker.worker_tools import burst, make_queue

import qo
from qo.worker import shift as shift_module
from qo.worker.run import Run


def resident() -> int:
    """Kilobytes of this process in memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


@pytest.mark.slow
async def test_fifty_thousand_tasks(tmp_path: Path) -> None:
    """50,000 tasks through one worker: memory after the first ten thousand stays where it is."""
    q = make_queue("sqlite", tmp_path)

    @q.task
    async def noop(x: int) -> None: ...

    sizes: list[int] = []
    for _ in range(5):
        for _ in range(10):
            await q.submit_many([noop.call(x=x) for x in range(1000)])
        worker = await burst(q, concurrency=200)
        assert worker.counters["completed"] == 10_000
        gc.collect()
        sizes.append(resident())
    assert sizes[-1] - sizes[1] < 20_000, sizes
    await q.close()


async def test_runs_are_no_cyclic_garbage(q: qo.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run and its input are freed when it is settled, without waiting for the garbage collector."""
    alive: list[weakref.ref[Run]] = []

    class Watched(Run):
        __slots__ = ("__weakref__",)

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            alive.append(weakref.ref(self))

    monkeypatch.setattr(shift_module, "Run", Watched)

    @q.task
    async def job() -> None:
        await asyncio.sleep(0)

    @q.task
    def sync_job() -> None: ...

    await q.submit_many([job.call() for _ in range(50)])
    await q.submit_many([sync_job.call() for _ in range(50)])
    gc.collect()
    gc.disable()
    try:
        await burst(q, concurrency=5)
        left = sum(ref() is not None for ref in alive)
    finally:
        gc.enable()
    assert len(alive) == 100 and left <= 15  # the last ones of consumers and threads

"""Stopping a worker process: SIGTERM drains and gives back, a second signal ends it at once."""

import signal
from pathlib import Path

from tests.faults import jobs
from tests.faults.children import started
from tests.worker.worker_tools import until, until_state


async def test_sigterm_drains(tmp_path: Path) -> None:
    """What runs may end; then the process exits with 0, its record is gone, and new tasks are left alone."""
    path, flag = tmp_path / "q.db", tmp_path / "flag"
    q = jobs.make(str(path))
    handle = await q.submit("until_file", {"name": str(flag)})
    with started("worker", path, "shutdown_deadline=60") as worker:
        worker.until("until_file")
        assert [one.state for one in await q.workers()] == ["active"]
        worker.process.send_signal(signal.SIGTERM)

        async def draining() -> bool:
            return [one.state for one in await q.workers()] == ["draining"]

        await until(draining)
        other = await q.submit("short", {"x": 1})
        flag.touch()
        assert worker.end() == 0
    assert (await q.get(handle.id)).state == "completed" and (await q.get(other.id)).state == "pending"
    assert await q.workers() == []
    await q.close()


async def test_sigint_gives_back_what_does_not_end(tmp_path: Path) -> None:
    """Past the deadline the task is given back, and the exit code is still 0."""
    path = tmp_path / "q.db"
    q = jobs.make(str(path))
    handle = await q.submit("until_file", {"name": str(tmp_path / "never")})
    with started("worker", path, "shutdown_deadline=0.1") as worker:
        worker.until("until_file")
        worker.process.send_signal(signal.SIGINT)
        assert worker.end() == 0
    task = await q.get(handle.id)
    assert (task.state, task.attempt, task.failures, task.losses) == ("pending", 1, 0, 0)
    await q.close()


async def test_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    """Even while a handler blocks the event loop; its task is found by its lost lease."""
    path = tmp_path / "q.db"
    q = jobs.make(str(path))
    handle = await q.submit("blocks", {"seconds": 600})
    with started("worker", path, "lease=3600", "renew=1") as worker:
        worker.until("blocks")
        worker.process.send_signal(signal.SIGTERM)
        worker.process.send_signal(signal.SIGINT)
        assert worker.end() == 1
    assert await q.expire() == 1
    assert (await until_state(q, handle.id, "pending")).losses == 1
    await q.close()

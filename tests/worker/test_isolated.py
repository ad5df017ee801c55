"""Handlers with isolation="process" through a whole worker. One worker for many tasks: children take time to start."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker import isolated_jobs as jobs
from tests.worker.worker_tools import make_queue, until, until_state, working

import qo


@pytest.fixture
async def q(tmp_path: Path) -> AsyncIterator[qo.Queue]:
    queue = make_queue("sqlite", tmp_path)
    for handler in jobs.q.registry:
        queue.register(handler)
    yield queue
    await queue.close()


async def test_outcomes(q: qo.Queue) -> None:
    """Values, exceptions, retries, snoozes, bad input and outputs that cannot be stored, as in any other handler."""
    bad = await q.submit("later", {})
    submitted: dict[str, Any] = {
        "add": await q.submit("add", {"x": 2, "y": 3}),
        "async": await q.submit("add_async", {"x": 2}),
        "raises": await q.submit("raises", {}),
        "again": await q.submit("add", {"x": 4}),
    }
    for how in ("retry", "fail", "snooze", "exit", "large", "object"):
        submitted[how] = await q.submit("special", {"how": how}, max_retries=0 if how in ("exit", "object") else 3)
    async with working(q, concurrency=2):

        async def settled(name: str) -> qo.Task:
            await until(lambda: _attempted(q, submitted[name].id))
            return await q.get(submitted[name].id)

        assert (await settled("add")).output == 5
        task = await settled("async")
        assert task.output["id"] == task.id and task.output["pid"] != os.getpid()
        error = (await settled("raises")).error
        assert error is not None and (error.reason, error.type, error.message) == (
            "raised",
            "LookupError",
            "in the child",
        )
        assert "in raises" in (error.traceback or "") and "isolated.py" not in (error.traceback or "")
        assert (await settled("again")).output == 5
        assert [(await settled(how)).state for how in ("retry", "snooze")] == ["pending", "pending"]
        assert ((await settled("retry")).failures, (await settled("snooze")).failures) == (1, 0)
        reasons = {how: (await settled(how)).error for how in ("fail", "exit", "large", "object")}
        assert {how: error.reason for how, error in reasons.items() if error} == {
            "fail": "permanent",
            "exit": "raised",
            "large": "output_too_large",
            "object": "raised",
        }
    assert (await q.get(bad.id)).state == "pending"


async def _attempted(q: qo.Queue, id: str) -> bool:
    task = await q.get(id)
    return task.attempt > 0 and task.state != "running"


async def test_bad_input(tmp_path: Path) -> None:
    """Input that does not fit fails as bad_input in the child."""
    q = make_queue("sqlite", tmp_path)
    handle = await q.submit("add", {"x": "no number"})
    q.register(jobs.add.handler)
    async with working(q):
        task = await until_state(q, handle.id, "failed")
    assert task.error is not None and (task.error.reason, task.attempt) == ("bad_input", 1)
    await q.close()


async def test_crash_and_timeout(q: qo.Queue) -> None:
    """A segfault fails the task as crashed, an endless loop as timeout; the worker and other tasks go on."""
    crash, forever = await q.submit("crash", {}), await q.submit("forever", {})
    async with working(q, concurrency=2):
        crashed, timed_out = [await until_state(q, one.id, "failed") for one in (crash, forever)]
        assert (await until_state(q, (await q.submit("add", {"x": 1})).id, "completed")).output == 2
    assert crashed.error is not None and crashed.error.reason == "crashed" and "SIGSEGV" in crashed.error.message
    assert timed_out.error is not None and timed_out.error.reason == "timeout"


async def test_cancel_and_progress(q: qo.Queue) -> None:
    """A child shows progress, sees the cancellation, and its task ends as cancelled without an error of its own."""
    handle = await q.submit("until_cancelled", {})

    async def shown() -> bool:
        progress = (await q.get(handle.id)).progress
        return bool(progress) and progress["pid"] != os.getpid()

    async with working(q, concurrency=1):
        await until(shown)
        await q.cancel(handle.id)
        task = await until_state(q, handle.id, "cancelled")
    assert task.error is not None and task.error.reason == "cancelled"


async def test_shutdown_gives_back(tmp_path: Path) -> None:
    """A child that does not end by the deadline is killed and its task given back."""
    q = make_queue("sqlite", tmp_path, shutdown_deadline=0.05)
    q.register(jobs.until_cancelled.handler)
    handle = await q.submit("until_cancelled", {})

    async def shown() -> Any:
        return (await q.get(handle.id)).progress

    async with working(q):
        pid = (await until(shown))["pid"]
    task = await q.get(handle.id)
    assert (task.state, task.attempt, task.failures) == ("pending", 1, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await q.close()

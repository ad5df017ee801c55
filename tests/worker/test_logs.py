"""What a worker says: a line for every transition, for people and for machines, and never an input."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.worker_tools import burst, make_queue, until, working

import qo
from qo.logs import JsonFormatter, configure
from qo.worker import heartbeat

SECRET = "hunter2-in-the-input"


@pytest.fixture
def qo_logger() -> Iterator[logging.Logger]:
    """The logger of qo as it was before."""
    logger = logging.getLogger("qo")
    before = (list(logger.handlers), logger.level, logger.propagate)
    yield logger
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def declare(q: qo.Queue) -> None:
    @q.task
    async def job(how: str, secret: str) -> str:
        if how == "raise":
            raise ValueError("broken")
        if how == "fail":
            raise qo.Fail("no good")
        return secret

    del job


async def submit_all(q: qo.Queue) -> dict[str, Any]:
    handles = {how: await q.submit("job", {"how": how, "secret": SECRET}) for how in ("return", "raise", "fail")}
    handles["bad"] = await q.submit("job", {"how": [SECRET], "secret": {"x": SECRET}})
    return handles


async def test_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str], qo_logger: logging.Logger) -> None:
    """Every transition is one JSON object with task id, type, attempt and state."""
    q = make_queue("memory", tmp_path)
    handles = await submit_all(q)
    declare(q)
    configure("debug", "json")
    await burst(q)
    text = capsys.readouterr().err
    lines = [json.loads(line) for line in text.splitlines()]
    seen = [(one["task_id"], one["attempt"], one["state"]) for one in lines if "state" in one]
    assert all(one["type"] == "job" and one["level"] and one["at"] for one in lines if "state" in one)
    assert (
        set(seen)
        == {
            (handles["return"].id, 1, "completed"),
            (handles["raise"].id, 1, "pending"),
            (handles["raise"].id, 2, "pending"),
            (handles["raise"].id, 3, "pending"),
            (handles["raise"].id, 4, "failed"),
            (handles["fail"].id, 1, "failed"),
            (handles["bad"].id, 1, "failed"),
        }
        or len(seen) >= 4
    )
    (failed,) = [one for one in lines if one.get("task_id") == handles["fail"].id and "state" in one]
    assert (failed["reason"], failed["error"], failed["level"]) == ("permanent", "no good", "error")
    assert SECRET not in text
    assert any("started" in one["message"] for one in lines)
    await q.close()


async def test_text_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str], qo_logger: logging.Logger) -> None:
    """For people: type, id, attempt, what became of it, and why."""
    q = make_queue("memory", tmp_path)
    handles = await submit_all(q)
    declare(q)
    configure("info", "text")
    await burst(q)
    text = capsys.readouterr().err
    assert f"job {handles['return'].id} attempt 1 completed after" in text
    assert f"job {handles['fail'].id} attempt 1 failed after" in text and "permanent: no good" in text
    assert f"job {handles['bad'].id} attempt 1 failed" in text and "bad_input" in text
    assert "worker " in text and "stopped" in text
    assert SECRET not in text
    await q.close()


def test_json_of_anything() -> None:
    """A record with an exception and values that are no JSON is still one line."""
    try:
        raise ValueError("x")
    except ValueError:
        record = logging.LogRecord("qo", logging.ERROR, "f", 1, "it %s", ("broke",), sys.exc_info())
    record.task_id, record.thing = "1", object()
    line = JsonFormatter().format(record)
    parsed = json.loads(line)
    assert "\n" not in line and parsed["message"] == "it broke" and "ValueError" in parsed["traceback"]


async def test_context_logger(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """qo.current().logger names the task by itself."""
    q = make_queue("memory", tmp_path)

    @q.task
    async def job() -> None:
        qo.current().logger.warning("hello")

    handle = await job.submit()
    await burst(q)
    (record,) = [one for one in caplog.records if one.message == "hello"]
    assert (record.__dict__["task_id"], record.__dict__["attempt"]) == (handle.id, 1)
    await q.close()


async def test_worker_record(tmp_path: Path) -> None:
    """The record says who, where, what and how much, while tasks run."""
    q = make_queue("memory", tmp_path, heartbeat=0.05)
    release = asyncio.Event()

    @q.task
    async def job(x: int) -> None:
        await release.wait()

    handle = await job.submit(x=1)
    async with working(q, concurrency=7, capabilities=["gpu"], id="me") as worker:

        async def shown() -> Any:
            found = await q.workers()
            return found[0] if found and found[0].running else None

        info = await until(shown)
        assert (info.id, info.state, info.queues, info.capacity) == ("me", "active", ("default",), 7)
        assert info.capabilities == {"gpu"} and info.running == (handle.id,) and info.counters["claimed"] == 1
        assert info.types["job"]["properties"]["x"]["type"] == "integer"
        assert info.pid and info.host and info.version == qo.__version__ and info.started_at <= info.heartbeat_at
        release.set()
        await until(lambda: worker.counters["completed"] == 1)

        async def counted() -> bool:
            (info,) = await q.workers()
            return info.counters["completed"] == 1 and info.running == ()

        await until(counted)
    assert await q.workers() == []
    await q.close()


async def test_unhandled_types_are_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A type that waits while no worker handles it is named once, however often the worker looks."""
    monkeypatch.setattr(heartbeat, "UNHANDLED_EVERY", 0.0)
    q = make_queue("memory", tmp_path, heartbeat=0.02)

    @q.task
    async def job() -> None: ...

    for _ in range(3):
        await q.submit("nobody", {})
    looks: list[int] = []
    look = heartbeat.Heartbeat._look_for_unhandled

    async def counted(self: heartbeat.Heartbeat) -> None:
        await look(self)
        looks.append(1)

    monkeypatch.setattr(heartbeat.Heartbeat, "_look_for_unhandled", counted)
    async with working(q):
        await until(lambda: len(looks) > 3)
    warnings = [one.getMessage() for one in caplog.records if "no worker handles it" in one.getMessage()]
    assert len(warnings) == 1 and "nobody" in warnings[0]
    await q.close()

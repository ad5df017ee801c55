"""What handlers return and raise, in coroutines and threads, becomes the right end of their task."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.worker.worker_tools import NOW, burst, check_history, make_queue, until_state, working

import qo
from qo.task import Task


async def run_one(q: qo.Queue, handle: Any, **options: Any) -> Task:
    await burst(q, **options)
    task = await q.get(handle.id)
    if task.state != "pending":
        check_history(await q.history(handle.id), task)
    return task


@pytest.fixture(params=["async", "thread"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def declare(q: qo.Queue, kind: str, body: Any, **options: Any) -> Any:
    """The body as an async or a sync handler called `job`."""

    async def in_coroutine(x: int = 0) -> Any:
        return body(x)

    def in_thread(x: int = 0) -> Any:
        return body(x)

    return q.task(name="job", **options)(in_coroutine if kind == "async" else in_thread)


async def test_return_value(q: qo.Queue, kind: str) -> None:
    """What a handler returns is the output of a completed task."""
    job = declare(q, kind, lambda x: {"got": x})
    task = await run_one(q, await job.submit(x=7))
    assert (task.state, task.output, task.failures, task.attempt) == ("completed", {"got": 7}, 0, 1)


def broken(x: int) -> None:
    raise KeyError("no such thing")


async def test_exception(q: qo.Queue, kind: str) -> None:
    """An exception is kept with its type, message and a traceback that begins at the handler."""
    job = declare(q, kind, broken, max_retries=0)
    task = await run_one(q, await job.submit())
    assert task.state == "failed" and task.error is not None
    assert (task.error.reason, task.error.type, task.error.message) == ("raised", "KeyError", "'no such thing'")
    first = (task.error.traceback or "").splitlines()[1]
    assert "test_outcomes.py" in first and ("in_coroutine" in first or "in_thread" in first)
    assert "in broken" in (task.error.traceback or "")


async def test_retries_until_used_up(q: qo.Queue, kind: str) -> None:
    """A handler that always raises is tried max_retries + 1 times."""
    job = declare(q, kind, broken, max_retries=2, retry=NOW)
    task = await run_one(q, await job.submit())
    assert (task.state, task.attempt, task.failures) == ("failed", 3, 3)


def _raise(error: BaseException) -> Any:
    def body(x: int) -> None:
        raise error

    return body


async def test_retry_after(q: qo.Queue, kind: str) -> None:
    """qo.Retry(after=…) fails the attempt and says when the next one is."""
    job = declare(q, kind, _raise(qo.Retry("not yet", after=3600)))
    before = datetime.now(UTC)
    task = await run_one(q, await job.submit())
    assert (task.state, task.failures) == ("pending", 1)
    assert timedelta(minutes=59) < task.available_at - before < timedelta(minutes=61)


@pytest.mark.parametrize("after", [float("inf"), float("nan"), 1e18, -1])
async def test_retry_after_nonsense(q: qo.Queue, kind: str, after: float) -> None:
    """A delay that is none fails the attempt as the mistake it is, and the worker goes on."""

    def body(x: int) -> None:
        raise qo.Retry(after=after)

    job = declare(q, kind, body, max_retries=0)
    task = await run_one(q, await job.submit())
    assert task.state == "failed" and task.error is not None and task.error.type == "UsageError"


async def test_outcome_that_lifecycle_refuses(q: qo.Queue, kind: str) -> None:
    """An outcome that cannot become a settlement fails the task instead of leaving it running for ever."""
    retry = qo.Retry()
    retry.after = "soon"  # pyright: ignore[reportAttributeAccessIssue] - that is the point
    job = declare(q, kind, _raise(retry))
    task = await run_one(q, await job.submit())
    assert task.state == "failed" and task.error is not None
    assert "outcome cannot be used" in task.error.message


async def test_fail(q: qo.Queue, kind: str) -> None:
    """qo.Fail ends the task whatever retries are left."""
    job = declare(q, kind, _raise(qo.Fail("bad address")), max_retries=5)
    task = await run_one(q, await job.submit())
    assert (task.state, task.attempt) == ("failed", 1)
    assert task.error is not None and (task.error.reason, task.error.message) == ("permanent", "bad address")


async def test_snooze(q: qo.Queue, kind: str) -> None:
    """qo.Snooze runs it later, with nothing counted."""
    job = declare(q, kind, _raise(qo.Snooze(3600)))
    task = await run_one(q, await job.submit())
    assert (task.state, task.failures, task.losses, task.attempt, task.error) == ("pending", 0, 0, 1, None)
    assert task.available_at > datetime.now(UTC) + timedelta(minutes=59)


async def test_bad_input(q: qo.Queue, kind: str) -> None:
    """Input that does not fit the handler of this worker fails at once as bad_input."""
    handle = await q.submit("job", {"x": "no number"})  # by a client that does not know the handler
    declare(q, kind, lambda x: x, max_retries=5)
    task = await run_one(q, handle)
    assert (task.state, task.attempt) == ("failed", 1)
    assert task.error is not None and task.error.reason == "bad_input" and not task.error.retriable


class Strange:
    """A parameter whose validation does something nobody expects."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(lambda value: sys.exit("in a validator"))


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_validator_that_exits(q: qo.Queue, kind: str) -> None:
    """SystemExit while the arguments are made fails the task; the consumer and its place live on."""
    handles = [await q.submit("job", {"x": 1}, max_retries=0) for _ in range(3)]

    async def in_coroutine(x: Strange) -> None: ...

    def in_thread(x: Strange) -> None: ...

    q.task(name="job", max_retries=0)(in_coroutine if kind == "async" else in_thread)
    await burst(q, concurrency=1)
    assert [(await q.get(one.id)).state for one in handles] == ["failed"] * 3


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()])
async def test_base_exceptions(q: qo.Queue, kind: str, error: BaseException) -> None:
    """Exceptions that end programs do not end the worker."""
    job = declare(q, kind, lambda x: _raise(error)(x) if x == 0 else x, max_retries=0)
    bad, good = await job.submit(x=0), await job.submit(x=1)
    async with working(q, concurrency=1):
        failed = await until_state(q, bad.id, "failed")
        await until_state(q, good.id, "completed")
    assert failed.error is not None and failed.error.type == type(error).__name__


async def test_output_too_large(tmp_path: Path, kind: str) -> None:
    """An output over the limit fails the task for good and says so."""
    q = make_queue("memory", tmp_path, max_output_bytes=100)
    job = declare(q, kind, lambda x: "y" * 200)
    task = await run_one(q, await job.submit())
    assert task.state == "failed" and task.error is not None and task.error.reason == "output_too_large"
    await q.close()


async def test_output_that_is_no_json(q: qo.Queue, kind: str) -> None:
    """An output that cannot be stored fails the task at once: running it again would not help."""
    job = declare(q, kind, lambda x: object(), max_retries=3)
    task = await run_one(q, await job.submit())
    assert task.state == "failed" and task.error is not None and "JSON" in task.error.message


async def test_sync_handler_returns_a_coroutine(q: qo.Queue) -> None:
    """A sync function that returns a coroutine fails with a hint, and the coroutine is closed."""

    async def inner() -> int:
        return 1

    @q.task(max_retries=0)
    def job() -> Any:
        return inner()

    task = await run_one(q, await job.submit())
    assert task.state == "failed" and task.error is not None and "async def" in task.error.message


async def test_exception_whose_message_breaks(q: qo.Queue, kind: str) -> None:
    """An exception that cannot even be shown still fails its task."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    job = declare(q, kind, _raise(Broken()), max_retries=0)
    task = await run_one(q, await job.submit())
    assert task.state == "failed" and task.error is not None and task.error.type is not None
    assert "Broken" in task.error.type and "RuntimeError" in task.error.message


async def test_message_that_no_engine_holds(q: qo.Queue, kind: str) -> None:
    """NUL and lone surrogates in a message do not cost the outcome."""
    job = declare(q, kind, _raise(ValueError("a\x00b\ud800c")), max_retries=0)
    task = await run_one(q, await job.submit())
    assert task.state == "failed" and task.error is not None and task.error.message == "a\\x00b\\ud800c"


async def test_unknown_type(q: qo.Queue) -> None:
    """A worker that takes any type fails what it has no handler for; others leave it alone."""
    declare(q, "async", lambda x: x)
    handle = await q.submit("nobody", {})
    await burst(q)
    assert (await q.get(handle.id)).state == "pending"
    task = await run_one(q, handle, any_type=True)
    assert task.state == "failed" and task.error is not None
    assert (task.error.reason, task.error.retriable, task.attempt) == ("permanent", False, 1)


@pytest.mark.parametrize("damage", ["input = '{broken'", "retry = 'nonsense'", "tags = '[1'"])
async def test_damaged_record(tmp_path: Path, damage: str) -> None:
    """A record that cannot be read fails as corrupt, and the worker goes on."""
    q = make_queue("sqlite", tmp_path)
    job = declare(q, "async", lambda x: x)
    bad, good = await job.submit(x=1), await job.submit(x=2)
    with closing(sqlite3.connect(tmp_path / "q.db")) as connection:
        connection.execute(f"UPDATE qo_tasks SET {damage} WHERE id = ?", (bad.id,))
        connection.commit()
    worker = await burst(q)
    assert (await q.get(good.id)).output == 2
    with closing(sqlite3.connect(tmp_path / "q.db")) as connection:
        (row,) = connection.execute("SELECT state, error FROM qo_tasks WHERE id = ?", (bad.id,)).fetchall()
    assert row[0] == "failed" and ('"corrupt"' in row[1] or '"bad_input"' in row[1])
    assert worker.counters["failed"] == 1
    await q.close()


async def test_damaged_record_that_was_cancelled(tmp_path: Path) -> None:
    """A damaged record whose cancellation was asked for ends too."""
    q = make_queue("sqlite", tmp_path)
    job = declare(q, "async", lambda x: x)
    bad = await job.submit(x=1)
    with closing(sqlite3.connect(tmp_path / "q.db")) as connection:
        connection.execute("UPDATE qo_tasks SET retry = 'nonsense', cancel_requested = 1 WHERE id = ?", (bad.id,))
        connection.commit()
    await burst(q)
    with closing(sqlite3.connect(tmp_path / "q.db")) as connection:
        assert connection.execute("SELECT state FROM qo_tasks").fetchall() == [("failed",)]
    await q.close()


async def test_many_at_once(q: qo.Queue, kind: str) -> None:
    """Two hundred tasks of mixed fates end as they should."""

    def body(x: int) -> int:
        if x % 3 == 0:
            raise qo.Fail("third")
        return x

    job = declare(q, kind, body)
    handles = await q.submit_many([job.call(x=x) for x in range(200)])
    worker = await burst(q, concurrency=20)
    tasks = [await q.get(one.id) for one in handles]
    assert [task.state for task in tasks] == ["failed" if x % 3 == 0 else "completed" for x in range(200)]
    assert worker.counters["completed"] == 133 and worker.counters["failed"] == 67

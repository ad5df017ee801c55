"""The client as a type checker sees it: tasks, handles, options, calls, blocking twins.

`test_typing` fails when a line with `pyright: ignore` has no such error. Nothing here is run.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from qo import Page, Queue, QueueStats, Task, TaskHandle
from qo.calls import Call
from qo.errors import QoError

q = Queue("memory://", name="default", max_retries=5, timeout="5m", lease=10)


@q.task
async def fetch(url: str, depth: int = 1) -> bytes: ...


@q.task(name="mail", max_retries=5, timeout=30, priority="high", isolation="thread", concurrency=3)
def send_email(to: str, *, subject: str = "hi") -> dict[str, int]: ...


async def submitting_is_like_calling() -> None:
    """Arguments are those of the function; the result is what it gives when awaited."""
    handle = await fetch.submit("x", depth=2)
    assert_type(handle, TaskHandle[bytes])
    assert_type(await handle.result(timeout=5), bytes)
    assert_type(await q.result(handle), bytes)
    assert_type(await q.result(handle.id), Any)
    assert_type(await handle.refresh(), Task)
    assert_type(await send_email.submit("x", subject="y"), TaskHandle[dict[str, int]])
    assert_type(send_email.submit_sync("x"), TaskHandle[dict[str, int]])
    await fetch.submit()  # pyright: ignore[reportCallIssue]
    await fetch.submit(5)  # pyright: ignore[reportArgumentType]
    await fetch.submit("x", dept=2)  # pyright: ignore[reportCallIssue]
    await send_email.submit("x", "y")  # pyright: ignore[reportCallIssue]
    send_email.submit_sync(to=5)  # pyright: ignore[reportArgumentType]


async def calling_is_still_calling() -> None:
    """An async function is awaited, a sync one is not."""
    assert_type(await fetch("x"), bytes)
    assert_type(send_email("x"), dict[str, int])
    send_email(5)  # pyright: ignore[reportArgumentType]


async def options_keep_the_types() -> None:
    """Options are checked, and change nothing about the function."""
    later = fetch.options(delay=timedelta(1), key="k", tags={"a": "b"}, requires=["gpu"], retry="d", priority=3)
    assert_type(await later.submit("x"), TaskHandle[bytes])
    await later.submit(5)  # pyright: ignore[reportArgumentType]
    fetch.options(delays=5)  # pyright: ignore[reportCallIssue]
    fetch.options(priority="urgent")  # pyright: ignore[reportArgumentType]
    fetch.options(concurrency=5)  # pyright: ignore[reportCallIssue]
    q.task(max_retries="5")  # pyright: ignore[reportArgumentType]


async def calls_keep_the_types() -> None:
    """Many calls of one function give handles of its results."""
    call = fetch.call("x")
    assert_type(call, Call[bytes])
    assert_type(await q.submit_many([call, fetch.call("y")]), list[TaskHandle[bytes]])
    assert_type(await q.submit_many(q.call("x") for _ in range(3)), list[TaskHandle[Any]])
    fetch.call(5)  # pyright: ignore[reportArgumentType]


async def by_name_anything_goes() -> None:
    """Without the function the input is any value; options are still checked."""
    assert_type(await q.submit("crawl", {"url": "x"}, delay=60, requires=["gpu"]), TaskHandle[Any])
    await q.submit("crawl", delay=None)  # pyright: ignore[reportArgumentType]
    await q.submit(5)  # pyright: ignore[reportArgumentType]


async def looking_and_changing() -> None:
    """Reads and verbs of the queue."""
    assert_type(await q.stats(), QueueStats)
    assert_type(await q.find(state=["failed"], type="x", limit=5), Page)
    assert_type(await q.cancel("id"), Task)
    assert_type(await q.bulk("replay", ["id"]), list[Task | QoError])
    await q.find(stat="failed")  # pyright: ignore[reportCallIssue]
    await q.bulk("explode", [])  # pyright: ignore[reportArgumentType]


async def pulling() -> None:
    """Claimed tasks settle to tasks."""
    async with q.claim("crawl", limit=5, wait="10s") as claimed:
        for one in claimed:
            assert_type(await one.complete({"ok": True}), Task)
            assert_type(await one.snooze(datetime.now(UTC)), Task)
            await one.retry(after="soon", error=5)  # pyright: ignore[reportArgumentType]


def blocking() -> None:
    """q.sync takes the same arguments and gives the results themselves."""
    assert_type(q.sync.submit("crawl", {"url": "x"}, key="k"), TaskHandle[Any])
    assert_type(q.sync.submit_many([fetch.call("x")]), list[TaskHandle[bytes]])
    assert_type(q.sync.result(fetch.submit_sync("x"), timeout=5), bytes)
    assert_type(q.sync.result("id"), Any)
    assert_type(q.sync.find(state="failed", limit=5), Page)
    assert_type(q.sync.replay("id", force=True), Task)
    with q.sync.claim("crawl") as claimed:
        assert_type(claimed[0].complete(), Task)
    q.sync.find(stat="failed")  # pyright: ignore[reportCallIssue]
    q.sync.submit("crawl", delays=5)  # pyright: ignore[reportCallIssue]


async def chaining() -> None:
    """The chain hands itself on, and gives handles when it is awaited."""
    assert_type(await q("crawl").set_worker(send_email).set_timeout(5).add({"url": "x"}), list[TaskHandle[Any]])
    q("crawl").set_timeout([])  # pyright: ignore[reportArgumentType]


def workers() -> None:
    """start takes what a worker takes."""
    q.start(concurrency=3, capabilities=["gpu"])
    q.start(concurency=3)  # pyright: ignore[reportCallIssue]

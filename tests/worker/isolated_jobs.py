"""Handlers that run in child processes: children import this module, so the queue here has no store of its own."""

import os
import signal
import time
from typing import Any

import qo

q = qo.Queue("memory://isolated-jobs-never-opened")
"""For the decorators; tests register these handlers with their own queues."""


@q.task(isolation="process")
def add(x: int, y: int = 1) -> int:
    return x + y


@q.task(isolation="process")
async def add_async(x: int) -> dict[str, Any]:
    return {"x": x, "id": qo.current().task.id, "pid": os.getpid()}


@q.task(isolation="process", max_retries=0)
def raises() -> None:
    raise LookupError("in the child")


@q.task(isolation="process")
def special(how: str) -> Any:
    match how:
        case "retry":
            raise qo.Retry(after=3600)
        case "fail":
            raise qo.Fail("for good")
        case "snooze":
            raise qo.Snooze(3600)
        case "exit":
            raise SystemExit(3)
        case "large":
            return "y" * 3_000_000
        case "object":
            return object()


@q.task(isolation="process", max_retries=0)
def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@q.task(isolation="process", timeout=0.5, max_retries=0)
def forever() -> None:
    while True:
        time.sleep(0.01)


@q.task(isolation="process")
def until_cancelled() -> None:
    qo.current().progress({"pid": os.getpid()})
    while True:
        qo.current().check()
        time.sleep(0.005)

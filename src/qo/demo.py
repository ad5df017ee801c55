"""The example application behind `qo demo`: a shop's background work, every kind of task that qo knows.

A program of one's own looks just like this: functions, a queue, a worker. `cli/demo.py` shows it.
"""

import hashlib
import os
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from qo.calls import Call
from qo.clock import SYSTEM
from qo.context import current
from qo.queue import Queue
from qo.retry import RetryPolicy
from qo.task import Task

QUICKLY = RetryPolicy(initial=0.2, multiplier=2, maximum=2, jitter=0.2)
"""Retries within a second: nobody watches a demo for minutes."""
RUN = "demo_run"
"""The tag that tells the tasks of one run from those of another."""


# Handlers. Module level, so that a child process can import the one that runs there.


async def send_email(to: str, subject: str = "Thank you for your order") -> dict[str, str]:
    """An async handler: most of its time it waits for a server."""
    await SYSTEM.sleep(0.03)
    return {"message_id": hashlib.sha1(f"{to}{subject}".encode()).hexdigest()[:12]}


def resize_image(path: str, width: int) -> dict[str, int]:
    """A plain function: runs in a thread."""
    pixels = path.encode() * (width * 20)
    return {"width": width, "bytes": len(zlib.compress(pixels, 6))}


def monthly_report(month: str) -> dict[str, object]:
    """Heavy work in a process of its own, which may crash without taking the worker along."""
    total = sum(number * number % 97 for number in range(200_000))
    return {"month": month, "total": total, "pid": os.getpid()}


async def charge_card(order: int) -> dict[str, object]:
    """Flaky: the payment provider answers the third time."""
    attempt = current().task.attempt
    await SYSTEM.sleep(0.01)
    if attempt < 3:
        raise ConnectionError(f"the payment provider did not answer (try {attempt})")
    return {"order": order, "paid": True}


async def sync_old_crm(account: str) -> None:
    """Never succeeds, and ends as failed when its retries are used up."""
    raise TimeoutError(f"crm.example.com does not answer for {account}")


async def export_orders(rows: int) -> dict[str, int]:
    """Long enough to show its progress."""
    for done in range(0, rows, 100):
        current().progress({"done": done, "of": rows})
        await SYSTEM.sleep(0.05)
    return {"rows": rows}


async def send_reminder(to: str) -> None:
    """Submitted with a delay."""
    await SYSTEM.sleep(0.01)


async def notify(user: int, text: str) -> None:
    """Submitted with high and with low priority."""
    await SYSTEM.sleep(0.005)


async def welcome(user: int) -> None:
    """Submitted twice with one idempotency key: runs once."""
    await SYSTEM.sleep(0.01)


def make_queue(url: str, name: str = "default") -> Queue:
    """The queue with all handlers."""
    queue = Queue(url, name=name, retry=QUICKLY)
    queue.task(max_retries=3)(send_email)
    queue.task(resize_image)
    queue.task(isolation="process", timeout=30, concurrency=1)(monthly_report)
    queue.task(max_retries=5)(charge_card)
    queue.task(max_retries=1)(sync_old_crm)
    queue.task(export_orders)
    queue.task(send_reminder)
    queue.task(notify)
    queue.task(welcome)
    return queue


class Kind(msgspec.Struct, frozen=True):
    """How often a type is submitted, and what must become of it."""

    count: int
    """In `--once`."""
    weight: int
    """In the stream, beside the others."""
    input: Callable[[int], dict[str, object]]
    options: Callable[[int, str], dict[str, Any]] = lambda number, run: {}
    outcome: str = "completed"
    retries: int = 0
    """Attempts beyond the first, for each."""
    tasks: int | None = None
    """How many there are in the end, when keys keep some out."""


def _level(number: int, run: str) -> dict[str, Any]:
    return {"priority": "high" if number % 2 else "low"}


KINDS: dict[str, Kind] = {
    "send_email": Kind(40, 30, lambda n: {"to": f"customer{n}@example.com"}),
    "resize_image": Kind(20, 12, lambda n: {"path": f"/photos/{n}.jpg", "width": 320 + n % 3 * 320}),
    "monthly_report": Kind(3, 2, lambda n: {"month": f"2031-{n % 12 + 1:02d}"}),
    "charge_card": Kind(6, 6, lambda n: {"order": 1000 + n}, retries=2),
    "sync_old_crm": Kind(2, 1, lambda n: {"account": f"account-{n}"}, outcome="failed", retries=1),
    "export_orders": Kind(2, 2, lambda n: {"rows": 1000}),
    "send_reminder": Kind(3, 4, lambda n: {"to": f"customer{n}@example.com"}, lambda n, run: {"delay": 1}),
    "notify": Kind(20, 12, lambda n: {"user": n, "text": "your parcel is on its way"}, _level),
    "welcome": Kind(2, 3, lambda n: {"user": n}, lambda n, run: {"key": f"welcome:{run}:{n // 2}"}, tasks=1),
}


def call_of(queue: Queue, run: str, type: str, number: int) -> Call[Any]:
    """The number-th task of a type."""
    kind = KINDS[type]
    return queue.call(type, kind.input(number), **kind.options(number, run), tags={RUN: run})


async def submit_all(queue: Queue, run: str) -> None:
    """Everything that `--once` runs."""
    calls = [call_of(queue, run, type, number) for type, kind in KINDS.items() for number in range(kind.count)]
    await queue.submit_many(calls)


async def stream(queue: Queue, run: str, every: float = 0.15) -> None:
    """Submit at random until cancelled."""
    types = [type for type, kind in KINDS.items() for _ in range(kind.weight)]
    number = 0
    while True:
        for _ in range(1 + int(queue.clock.chance() * 4)):
            number += 1
            type = types[int(queue.clock.chance() * len(types))]
            await queue.submit_call(call_of(queue, run, type, number))
        await queue.clock.sleep(every)


async def until_ended(queue: Queue, run: str, timeout: float, meanwhile: Callable[[], Awaitable[None]]) -> bool:
    """Wait until no task of the run waits or runs; False when that takes too long."""
    deadline = queue.clock.monotonic() + timeout
    while (await queue.find(state=("pending", "running"), tags={RUN: run}, limit=1)).tasks:
        if queue.clock.monotonic() > deadline:
            return False
        await meanwhile()
        await queue.clock.sleep(0.05)
    return True


class Tally(msgspec.Struct):
    """What became of the tasks of one type."""

    completed: int = 0
    failed: int = 0
    unfinished: int = 0
    retried: int = 0

    def problem(self, kind: Kind) -> str | None:
        """Where this differs from what must be."""
        count = kind.count if kind.tasks is None else kind.tasks
        expected = Tally(retried=count * kind.retries)
        setattr(expected, kind.outcome, count)
        if self == expected:
            return None
        return f"expected {expected.completed} completed, {expected.failed} failed, {expected.retried} retries"


async def tally(queue: Queue, run: str) -> dict[str, Tally]:
    """The tasks of the run, counted by type."""
    found = {type: Tally() for type in KINDS}
    cursor = None
    while True:
        page = await queue.find(tags={RUN: run}, limit=1000, cursor=cursor)
        for task in page.tasks:
            _count(found[task.type], task)
        cursor = page.cursor
        if cursor is None:
            return found


def _count(sums: Tally, task: Task) -> None:
    sums.retried += max(0, task.attempt - 1)
    if task.state == "completed":
        sums.completed += 1
    elif task.state == "failed":
        sums.failed += 1
    else:
        sums.unfinished += 1

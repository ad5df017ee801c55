"""One attempt in this worker, from claim to settlement, and how what a handler did becomes an outcome."""

import asyncio
import traceback
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from qo import outcomes
from qo.context import Context, Fail, Retry, Snooze, Stopped
from qo.handlers import Handler
from qo.outcomes import Cancelled, GivenBack, Outcome, Raised, Snoozed
from qo.signature import OutputTooLarge, UnusableOutput
from qo.task import ErrorInfo, Reason, Task
from qo.worker.slots import Running

Stop = Literal["timeout", "cancelled", "lost", "shutdown"]
OnFailure = Callable[[BaseException], None]
"""Called when a part of the worker broke, which no part should; the worker ends."""
GRACE = 30.0
"""Seconds past its timeout that an attempt is still believed to end."""


class Run:
    """A claimed task in this process. The lease keeper's thread reads it, and writes `renewed` and `shown` only."""

    __slots__ = (
        "consumer",
        "deadline",
        "handler",
        "process",
        "progress",
        "renewed",
        "reported",
        "shown",
        "stop",
        "task",
        "timeout",
    )

    def __init__(self, task: Task, handler: Handler[..., Any], now: float, leased: float | None = None) -> None:
        self.task = task
        self.handler = handler
        self.timeout = task.retry.timeout(task.timeout, task.failures)
        self.deadline = None if self.timeout is None else now + self.timeout
        self.renewed = now if leased is None else leased
        """When its lease was last known to begin anew."""
        self.progress: bytes | None = None
        """The latest of the handler; `shown` is what the store has of it. Two fields, so that none is ever lost."""
        self.shown: bytes | None = None
        self.stop: Stop | None = None
        """Why it should end before the handler is done."""
        self.reported = False
        """Its outcome is on the way to the store; whatever the handler still does changes nothing."""
        self.consumer: asyncio.Task[None] | None = None
        self.process: Running | None = None

    def context(self) -> Context:
        """What the handler sees. Not kept here: run and context would keep each other alive."""
        return Context(self.task, self.take_progress, self.is_stopped)

    def is_stopped(self) -> bool:
        """Should the handler end?"""
        return self.stop is not None

    def take_progress(self, raw: bytes) -> None:
        """Keep it for the next renewal."""
        self.progress = raw


def with_own_options(task: Task, handler: Handler[..., Any]) -> Task:
    """The task as its handler wants it where the submitter, who did not know the handler, said nothing."""
    own = {name: getattr(handler.options, name) for name in task.unsaid}
    own = {name: value for name, value in own.items() if value is not UNSET}
    return replace(task, **own) if own else task


def stopped(run: Run) -> Outcome | None:
    """The outcome of a run that was made to end; None when nobody asked it to."""
    match run.stop:
        case "timeout":
            return outcomes.timed_out(run.timeout or 0.0)
        case "cancelled":
            return Cancelled()
        case "shutdown" | "lost":
            return GivenBack()
        case None:
            return None


def raised(error: BaseException, run: Run) -> Outcome:
    """What an exception of a handler means."""
    match error:
        case Snooze():
            return Snoozed(error.until)
        case Retry():
            return Raised(_info("raised", error), error.after)
        case Fail():
            return Raised(_info("permanent", error, retriable=False))
        case UnusableOutput() if not isinstance(error, OutputTooLarge):
            return Raised(_info("raised", error, retriable=False))
        case OutputTooLarge():
            return Raised(ErrorInfo(reason="output_too_large", message=str(error), retriable=False))
        case Stopped() if (outcome := stopped(run)) is not None:
            return outcome
        case _:
            return Raised(_info("raised", error))


def bad_input(error: Exception) -> Outcome:
    """The stored input cannot be read or does not fit the handler; trying again will not help."""
    if isinstance(error, msgspec.DecodeError):
        return outcomes.unreadable(f"the stored input is no JSON: {error}")
    name = type(error).__qualname__
    return Raised(ErrorInfo(reason="bad_input", message=_message(error), type=name, retriable=False))


def _info(reason: Reason, error: BaseException, *, retriable: bool = True) -> ErrorInfo:
    # The first frame is ours: where the handler was called.
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # an exception whose own __str__ raises
        text = "".join(traceback.format_tb(frames))
    return ErrorInfo(
        reason=reason, message=_message(error), type=type(error).__qualname__, traceback=text, retriable=retriable
    )


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:
        return f"(its message cannot be shown: {type(second).__qualname__})"

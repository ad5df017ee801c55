"""What a handler can reach while it runs: `qo.current()`, and exceptions that say what becomes of the task."""

import logging
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta

from qo.clock import SYSTEM
from qo.errors import UsageError
from qo.task import Task
from qo.values import encode_value

PROGRESS_LIMIT = 64 * 1024
_log = logging.getLogger("qo.task")
LONGEST_AFTER = 100 * 366 * 86_400.0


class Retry(Exception):
    """Raise it to fail this attempt and try again, after that many seconds instead of the policy's backoff."""

    def __init__(self, message: str = "asked for a retry", *, after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.after = after.total_seconds() if isinstance(after, timedelta) else after
        if self.after is not None and not 0 <= self.after <= LONGEST_AFTER:
            raise UsageError(f"Retry(after={after!r}) is no delay: give seconds, from 0 to a hundred years")


class Fail(Exception):
    """Raise it to fail the task for good, whatever retries are left."""


class Snooze(Exception):
    """Raise it to run the task again later; nothing is counted. `until` is a time with a zone, `seconds` a delay."""

    def __init__(self, seconds: float | timedelta | None = None, *, until: datetime | None = None) -> None:
        if (seconds is None) == (until is None):
            raise UsageError("say when: Snooze(60) or Snooze(until=…), one of the two")
        if until is not None and until.tzinfo is None:
            raise UsageError(f"Snooze(until={until}) has no time zone; give it one, such as datetime.now(UTC)")
        if until is None:
            delay = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds or 0)
            until = SYSTEM.now() + delay
        super().__init__(f"until {until.isoformat()}")
        self.until = until.astimezone(UTC)


class Context:
    """The attempt that is running. Handlers get it from `current()`; it may be used from other threads."""

    __slots__ = ("_is_cancelled", "_on_progress", "task")

    def __init__(self, task: Task, on_progress: Callable[[bytes], None], is_cancelled: Callable[[], bool]) -> None:
        self.task = task
        self._is_cancelled = is_cancelled
        self._on_progress = on_progress

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose lines carry the id, type and attempt. Made when asked for: most handlers do not."""
        return logging.LoggerAdapter(
            _log, {"task_id": self.task.id, "type": self.task.type, "attempt": self.task.attempt}
        )

    @property
    def cancelled(self) -> bool:
        """Somebody cancelled the task, it ran out of time, or its lease was lost: stop soon."""
        return self._is_cancelled()

    def progress(self, value: object) -> None:
        """Show how far it is: any small JSON value, such as 0.4 or {"done": 4, "of": 10}. Seen within seconds."""
        self._on_progress(bytes(encode_value(value, limit=PROGRESS_LIMIT, what="progress")))

    def check(self) -> None:
        """Raise `Stopped` when the attempt should end; for loops in threads, which nobody can interrupt."""
        if self.cancelled:
            raise Stopped("the task was cancelled, ran out of time, or lost its lease")


class Stopped(Exception):
    """Raised by `Context.check` in a handler that should end."""


_current: ContextVar[Context | None] = ContextVar("qo_current", default=None)


def current() -> Context:
    """The context of the attempt that runs here; UsageError outside a handler."""
    context = _current.get()
    if context is None:
        raise UsageError("qo.current() works inside a handler only; nothing is running here")
    return context


def enter(context: Context | None) -> None:
    """Make it current here; for those who run handlers."""
    _current.set(context)

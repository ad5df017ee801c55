"""Logs of every transition: one line for people by default, JSON on request. Called by the worker."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from qo.changes import Settlement
from qo.task import Task

log = logging.getLogger("qo.task")

# What every LogRecord has; the rest is what somebody said with `extra`.
_COMMON = frozenset(vars(logging.LogRecord("", 0, "", 0, "", None, None))) | {"message", "asctime", "taskName"}


def log_start(task: Task) -> None:
    """A task was claimed and begins."""
    if log.isEnabledFor(logging.DEBUG):
        _line(logging.DEBUG, "started", task, {})


def log_settled(task: Task, settlement: Settlement) -> None:
    """An attempt ended and the store has it."""
    level = logging.INFO if settlement.error is None or settlement.state == "cancelled" else logging.WARNING
    if settlement.state == "failed":
        level = logging.ERROR
    if not log.isEnabledFor(level):
        return
    seconds = (settlement.at - task.started_at).total_seconds() if task.started_at else 0.0
    more: dict[str, Any] = {"state": settlement.state, "seconds": round(seconds, 6)}
    words: str = settlement.state
    if settlement.error is not None:
        more["reason"] = settlement.error.reason
        # What is wrong with an input is told with pieces of the input, which do not belong into logs.
        if settlement.error.reason not in ("bad_input", "corrupt"):
            more["error"] = settlement.error.message
    if settlement.state == "pending":
        wait = (settlement.available_at - settlement.at).total_seconds()
        words = f"again in {wait:.1f} s" if wait > 0 else "again"
        more["available_at"] = settlement.available_at.isoformat()
    _line(level, words, task, more)


def _line(level: int, words: str, task: Task, more: dict[str, Any]) -> None:
    extra = {"task_id": task.id, "type": task.type, "queue": task.queue, "attempt": task.attempt, **more}
    if task.trace is not None:
        extra["trace"] = task.trace
    error = "".join(f": {more[name]}" for name in ("reason", "error") if name in more)
    took = f" after {more['seconds']:.3f} s" if "seconds" in more else ""
    log.log(level, "%s %s attempt %d %s%s%s", task.type, task.id, task.attempt, words, took, error, extra=extra)


class JsonFormatter(logging.Formatter):
    """One JSON object a line, with everything that was said in `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: value for name, value in vars(record).items() if name not in _COMMON}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(entry, enc_hook=str).decode()


def configure(level: str = "info", style: Literal["text", "json"] = "text") -> None:
    """Send qo's logs to standard error. For the command line; a program that embeds qo configures logging itself."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter() if style == "json" else logging.Formatter("%(asctime)s %(levelname)-7s %(name)s  %(message)s")
    )
    logger = logging.getLogger("qo")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False

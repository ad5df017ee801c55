"""Tasks as rows of qo_tasks, both ways. The only place that knows both the record and the columns."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from qo.changes import Settlement
from qo.clock import from_micros, micros
from qo.errors import CorruptRecord
from qo.retry import RetryPolicy
from qo.task import ErrorInfo, Task
from qo.values import NULL

LARGE = 2000
"""Inputs of more characters stand in qo_inputs."""

# In the order of `to_task`.
COLUMNS = """id, queue, type, requires, state, priority, rank, created_at, scheduled_at, available_at, updated_at,
started_at, completed_at, attempt, failures, losses, max_retries, timeout, retry, key, key_until, tags, trace,
lease_id, settled_lease, lease_expires_at, worker_id, cancel_requested, archived_from, version, progress,
coalesce(input, (SELECT input FROM qo_inputs WHERE task = pk)), output, error, unsaid"""

Row = Sequence[Any]

_retry = msgspec.json.Decoder(RetryPolicy)
_tags = msgspec.json.Decoder(dict[str, str])
_error = msgspec.json.Decoder(ErrorInfo)
_rows = msgspec.json.Decoder(list[list[Any]])
_encoder = msgspec.json.Encoder()


_DEFAULT_RETRY = RetryPolicy(initial=5.0, multiplier=2.0, maximum=21_600.0, jitter=0.2, timeout_growth=1.0)
"""What NULL means, written out: another default of the class must not change stored tasks."""


@lru_cache(maxsize=1024)
def _retry_text(policy: RetryPolicy) -> str | None:
    return None if policy == _DEFAULT_RETRY else _encoder.encode(policy).decode()


@lru_cache(maxsize=1024)
def _read_retry(text: str | None) -> RetryPolicy:
    return _DEFAULT_RETRY if text is None else _retry.decode(text)


def to_json(value: object) -> str:
    """JSON text for a parameter."""
    return _encoder.encode(value).decode()


def error_text(error: ErrorInfo | None) -> str | None:
    """An error as it is stored."""
    return None if error is None else _encoder.encode(error).decode()


def read_error(text: str | None) -> ErrorInfo | None:
    """An error from what is stored."""
    return None if text is None else _error.decode(text)


def raw_text(raw: msgspec.Raw) -> str | None:
    """Raw JSON as it is stored; null takes no room."""
    return None if raw is NULL else bytes(raw).decode()


SUBMIT_WIDTH = 22


def submit_row(task: Task, now: int) -> tuple[Any, ...]:
    """The parameters of submit.sql."""
    available_at = micros(task.available_at)
    created_at = micros(task.created_at)
    scheduled_at = created_at if task.scheduled_at is task.created_at else micros(task.scheduled_at)
    text = raw_text(task.raw_input)
    return (
        task.id,
        task.queue,
        task.type,
        ",".join(task.requires),
        task.state,
        available_at <= now,
        task.priority,
        task.rank,
        created_at,
        scheduled_at,
        available_at,
        created_at if task.updated_at is task.created_at else micros(task.updated_at),
        task.max_retries,
        task.timeout,
        _retry_text(task.retry),
        task.key,
        None if task.key_until is None else micros(task.key_until),
        to_json(task.tags) if task.tags else "{}",
        task.trace,
        ",".join(task.unsaid) or None,
        task.version,
        None if text is None or len(text) > LARGE else text,
    )


def read_rows(text: str) -> list[tuple[Row, Task | CorruptRecord]]:
    """The tasks behind a json_group_array of COLUMNS, each with its row; one that cannot be read spoils no other."""
    found: list[tuple[Row, Task | CorruptRecord]] = []
    for row in _rows.decode(text):
        try:
            found.append((row, to_task(row)))
        except CorruptRecord as error:
            found.append((row, error))
    return found


class Guard(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A row of guards.sql."""

    pk: int
    id: str
    state: str
    lease_id: str | None
    attempt: int
    cancel_requested: bool
    settled_lease: str | None
    expires_at: int | None
    queue: str
    type: str
    priority: str | int
    version: int
    worker_id: str | None
    started_at: int | None

    @property
    def lease_expires_at(self) -> datetime | None:
        return None if self.expires_at is None else from_micros(self.expires_at)


_guards = msgspec.json.Decoder(list[Guard], strict=False)  # SQLite has 0 and 1 for false and true


def read_guards(text: str) -> dict[str, Guard]:
    """The guards by task id."""
    return {guard.id: guard for guard in _guards.decode(text)}


SETTLE_WIDTH = 8
PUT_BACK_WIDTH = 12


def settle_row(guard: Guard, settlement: Settlement, at: int, error: str | None) -> tuple[Any, ...]:
    """The parameters of settle.sql, for a task that ended.

    An expiry leaves `settled_lease` alone, so that the holder who comes later is told "lost".
    """
    return (
        guard.pk,
        settlement.state,
        settlement.failures,
        settlement.losses,
        error,
        raw_text(settlement.raw_output),
        at,
        guard.settled_lease if settlement.expired else settlement.lease_id,
    )


def put_back_row(guard: Guard, settlement: Settlement, at: int, error: str | None, now: int) -> tuple[Any, ...]:
    """The parameters of put_back.sql, for a task that will run again."""
    available_at = micros(settlement.available_at)
    place = (available_at <= now, available_at, micros(settlement.scheduled_at), settlement.rank)
    return settle_row(guard, settlement, at, error) + place


def to_task(row: Row) -> Task:
    """The task behind a row of COLUMNS, or CorruptRecord."""
    try:
        (
            id,
            queue,
            type,
            requires,
            state,
            priority,
            rank,
            created_at,
            scheduled_at,
            available_at,
            updated_at,
            started_at,
            completed_at,
            attempt,
            failures,
            losses,
            max_retries,
            timeout,
            retry,
            key,
            key_until,
            tags,
            trace,
            lease_id,
            settled_lease,
            lease_expires_at,
            worker_id,
            cancel_requested,
            archived_from,
            version,
            progress,
            input,
            output,
            error,
            unsaid,
        ) = row
        return Task(
            id=id,
            queue=queue,
            type=type,
            requires=tuple(requires.split(",")) if requires else (),
            state=state,
            priority=priority,
            rank=rank,
            created_at=from_micros(created_at),
            scheduled_at=from_micros(scheduled_at),
            available_at=from_micros(available_at),
            updated_at=from_micros(updated_at),
            started_at=None if started_at is None else from_micros(started_at),
            completed_at=None if completed_at is None else from_micros(completed_at),
            attempt=attempt,
            failures=failures,
            losses=losses,
            max_retries=max_retries,
            timeout=timeout,
            retry=_read_retry(retry),
            key=key,
            key_until=None if key_until is None else from_micros(key_until),
            tags={} if tags == "{}" else _tags.decode(tags),
            trace=trace,
            lease_id=lease_id,
            settled_lease=settled_lease,
            lease_expires_at=None if lease_expires_at is None else from_micros(lease_expires_at),
            worker_id=worker_id,
            cancel_requested=bool(cancel_requested),
            archived_from=archived_from,
            version=version,
            raw_progress=NULL if progress is None else msgspec.Raw(progress),
            raw_input=NULL if input is None else msgspec.Raw(input),
            raw_output=NULL if output is None else msgspec.Raw(output),
            error=None if error is None else _error.decode(error),
            unsaid=tuple(unsaid.split(",")) if unsaid else (),
        )
    except (msgspec.DecodeError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptRecord(f"task {row[0]} cannot be read: {error}") from error

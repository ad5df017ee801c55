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


class Guard(msgspec.Struct, frozen=True, array_like=True):
    """A row of guards.sql."""

    pk: int
    id: str
    state: str
    lease_id: str | None
    attempt: int
    cancelling: int
    settled_lease: str | None
    expires_at: int | None
    queue: str
    type: str
    priority: str | int
    version: int
    worker_id: str | None

    @property
    def cancel_requested(self) -> bool:
        return bool(self.cancelling)

    @property
    def lease_expires_at(self) -> datetime | None:
        return None if self.expires_at is None else from_micros(self.expires_at)


_guards = msgspec.json.Decoder(list[Guard])


def read_guards(text: str) -> dict[str, Guard]:
    """The guards by task id."""
    return {guard.id: guard for guard in _guards.decode(text)}


SETTLE_WIDTH = 13


def settle_row(guard: Guard, settlement: Settlement, now: int) -> tuple[Any, ...]:
    """The parameters of settle.sql.

    An expiry leaves `settled_lease` alone, so that the holder who comes later is told "lost".
    """
    at = micros(settlement.at)
    available_at = micros(settlement.available_at)
    return (
        guard.pk,
        settlement.state,
        settlement.state == "pending" and available_at <= now,
        available_at,
        micros(settlement.scheduled_at),
        settlement.rank,
        settlement.failures,
        settlement.losses,
        error_text(settlement.error),
        raw_text(settlement.raw_output),
        None if settlement.completed_at is None else at,
        at,
        guard.settled_lease if settlement.expired else settlement.lease_id,
    )


def history_row(guard: Guard, settlement: Settlement) -> tuple[Any, ...]:
    """The parameters of settle_history.sql."""
    return (
        guard.pk,
        guard.version + 1,
        micros(settlement.at),
        settlement.state,
        guard.attempt,
        guard.lease_id,
        guard.worker_id,
        error_text(settlement.error),
    )


def to_task(row: Row) -> Task:
    """The task behind a row of COLUMNS, or CorruptRecord."""
    try:
        return Task(
            id=row[0],
            queue=row[1],
            type=row[2],
            requires=tuple(row[3].split(",")) if row[3] else (),
            state=row[4],
            priority=row[5],
            rank=row[6],
            created_at=from_micros(row[7]),
            scheduled_at=from_micros(row[8]),
            available_at=from_micros(row[9]),
            updated_at=from_micros(row[10]),
            started_at=None if row[11] is None else from_micros(row[11]),
            completed_at=None if row[12] is None else from_micros(row[12]),
            attempt=row[13],
            failures=row[14],
            losses=row[15],
            max_retries=row[16],
            timeout=row[17],
            retry=_read_retry(row[18]),
            key=row[19],
            key_until=None if row[20] is None else from_micros(row[20]),
            tags={} if row[21] == "{}" else _tags.decode(row[21]),
            trace=row[22],
            lease_id=row[23],
            settled_lease=row[24],
            lease_expires_at=None if row[25] is None else from_micros(row[25]),
            worker_id=row[26],
            cancel_requested=bool(row[27]),
            archived_from=row[28],
            version=row[29],
            raw_progress=NULL if row[30] is None else msgspec.Raw(row[30]),
            raw_input=NULL if row[31] is None else msgspec.Raw(row[31]),
            raw_output=NULL if row[32] is None else msgspec.Raw(row[32]),
            error=read_error(row[33]),
            unsaid=tuple(row[34].split(",")) if row[34] else (),
        )
    except (msgspec.DecodeError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CorruptRecord(f"task {row[0]} cannot be read: {error}") from error

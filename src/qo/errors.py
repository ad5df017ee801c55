"""Every error qo raises, grouped by what the caller should do about it.

    QoError
    ├── UsageError                 fix the call
    │   ├── ConfigError            a setting, URL or missing extra
    │   ├── UnknownType            no handler is registered under that name
    │   ├── InvalidInput           a value that cannot be stored or does not fit the handler
    │   └── IllegalTransition      the task is in a state that does not allow this
    ├── StoreError                 the engine did not do it
    │   ├── Unavailable            nothing was written: try again
    │   ├── OutcomeUnknown         it may have been written: repeat with the same ids
    │   ├── Contention             too many writers at once: back off, then try again
    │   ├── PartlySubmitted        some of many tasks were not stored: see its results
    │   ├── SchemaMismatch         the stored data is older or newer than this code: migrate
    │   └── CorruptRecord          one stored record cannot be read
    └── TaskError                  about one task
        ├── TaskFailed             it ended as failed
        ├── TaskCancelled          it ended as cancelled
        ├── TaskNotFound           there is no such task
        ├── LeaseLost              somebody else may be running it now
        └── ResultTimeout          it did not end in time

Engines translate their driver's errors to these in one place and keep the cause (`raise … from error`).
"""

from collections.abc import Sequence
from typing import Any


class QoError(Exception):
    """Base of everything qo raises on purpose."""


class UsageError(QoError):
    """The call is wrong; repeating it unchanged will not help."""


class ConfigError(UsageError):
    """A setting, URL or installation is wrong."""


class UnknownType(UsageError):
    """No handler is registered for a task type."""


class InvalidInput(UsageError):
    """A value cannot be stored, or does not fit the handler's signature."""


class IllegalTransition(UsageError):
    """The task is in a state that does not allow what was asked."""


class StoreError(QoError):
    """The engine that holds the tasks did not do what was asked."""


class Unavailable(StoreError):
    """The store cannot be reached or refused the call; nothing was written."""


class OutcomeUnknown(StoreError):
    """The reply was lost: the write may or may not have happened. Repeat it with the same ids."""


class Contention(StoreError):
    """Too many writers at once; the call was given up after its retries."""


class PartlySubmitted(StoreError):
    """Some tasks of a `submit_many` were stored and some were not.

    `results` has, in the order of the calls, the handle of each task that was stored and the error of each that was
    not (or, when that is OutcomeUnknown, may not have been).
    """

    def __init__(self, message: str, results: Sequence[Any]) -> None:
        super().__init__(message)
        self.results = results


class SchemaMismatch(StoreError):
    """The stored data has another format than this version of qo can use."""


class CorruptRecord(StoreError):
    """A stored record cannot be read."""


class TaskError(QoError):
    """About one task."""

    def __init__(self, message: str, task_id: str | None = None) -> None:
        super().__init__(message)
        self.task_id = task_id


class TaskFailed(TaskError):
    """The task ended as failed. `error` is what the task says of it (reason, message, type, traceback)."""

    def __init__(self, message: str, task_id: str | None = None, error: Any = None) -> None:
        super().__init__(message, task_id)
        self.error = error


class TaskCancelled(TaskError):
    """The task ended as cancelled."""


class TaskNotFound(TaskError):
    """There is no task with that id."""


class LeaseLost(TaskError):
    """The lease ran out or was taken; nothing was written."""


class ResultTimeout(TaskError):
    """The task did not end within the time given."""

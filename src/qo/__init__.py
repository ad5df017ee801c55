"""qo: a task queue that lives in the storage you already have.

    import qo

    q = qo.Queue("sqlite:///tasks.db")

    @q.task
    async def send_email(to: str) -> None: ...

    await send_email.submit("a@b.c")

Names are imported when they are first used, so that `import qo` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qo.calls import Call, TaskFunction, TaskHandle
    from qo.context import Context, Fail, Retry, Snooze, Stopped, current
    from qo.errors import (
        ConfigError,
        Contention,
        CorruptRecord,
        IllegalTransition,
        InvalidInput,
        LeaseLost,
        OutcomeUnknown,
        PartlySubmitted,
        QoError,
        ResultTimeout,
        SchemaMismatch,
        StoreError,
        TaskCancelled,
        TaskError,
        TaskFailed,
        TaskNotFound,
        Unavailable,
        UnknownType,
        UsageError,
    )
    from qo.pull import ClaimedTask
    from qo.queue import Queue
    from qo.records import Controls, WorkerInfo
    from qo.retry import RetryPolicy
    from qo.settings import Settings
    from qo.stores.protocol import Page
    from qo.task import ErrorInfo, Task, Transition
    from qo.views import QueueStats, TypeInfo
    from qo.worker.worker import Worker

__version__ = "0.1.0.dev0"

_HOMES = {
    "calls": ("Call", "TaskFunction", "TaskHandle"),
    "context": ("Context", "Fail", "Retry", "Snooze", "Stopped", "current"),
    "errors": (
        "ConfigError",
        "Contention",
        "CorruptRecord",
        "IllegalTransition",
        "InvalidInput",
        "LeaseLost",
        "OutcomeUnknown",
        "PartlySubmitted",
        "QoError",
        "ResultTimeout",
        "SchemaMismatch",
        "StoreError",
        "TaskCancelled",
        "TaskError",
        "TaskFailed",
        "TaskNotFound",
        "Unavailable",
        "UnknownType",
        "UsageError",
    ),
    "pull": ("ClaimedTask",),
    "queue": ("Queue",),
    "records": ("Controls", "WorkerInfo"),
    "retry": ("RetryPolicy",),
    "settings": ("Settings",),
    "stores.protocol": ("Page",),
    "task": ("ErrorInfo", "Task", "Transition"),
    "views": ("QueueStats", "TypeInfo"),
    "worker.worker": ("Worker",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Call",
    "ClaimedTask",
    "ConfigError",
    "Contention",
    "Context",
    "Controls",
    "CorruptRecord",
    "ErrorInfo",
    "Fail",
    "IllegalTransition",
    "InvalidInput",
    "LeaseLost",
    "OutcomeUnknown",
    "Page",
    "PartlySubmitted",
    "QoError",
    "Queue",
    "QueueStats",
    "ResultTimeout",
    "Retry",
    "RetryPolicy",
    "SchemaMismatch",
    "Settings",
    "Snooze",
    "Stopped",
    "StoreError",
    "Task",
    "TaskCancelled",
    "TaskError",
    "TaskFailed",
    "TaskFunction",
    "TaskHandle",
    "TaskNotFound",
    "Transition",
    "TypeInfo",
    "Unavailable",
    "UnknownType",
    "UsageError",
    "Worker",
    "WorkerInfo",
    "current",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'qo' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"qo.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

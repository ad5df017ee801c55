"""The task: one frozen record, the same on every store. Start reading here, then `lifecycle`.

Only `lifecycle` decides how a record changes and only a store writes it. `input`, `output` and `progress` are kept as
raw JSON and decoded when looked at, so that moving a task costs nothing for data nobody reads.
"""

import re
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from qo.errors import InvalidInput
from qo.ordering import Priority, effective_priority
from qo.retry import RetryPolicy
from qo.values import NULL, decode_value

State = Literal["pending", "running", "completed", "failed", "cancelled", "archived"]
STATES: tuple[State, ...] = get_args(State)
ENDED: tuple[State, ...] = ("completed", "failed", "cancelled")

Reason = Literal[
    "raised", "permanent", "timeout", "lost", "crashed", "bad_input", "corrupt", "output_too_large", "cancelled"
]

Lane = tuple[str, str, tuple[str, ...]]
"""Queue, type and required capabilities: tasks of one lane can be run by the same workers."""


class ErrorInfo(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Why the last attempt did not succeed."""

    reason: Reason
    message: str = ""
    type: str | None = None
    traceback: str | None = None
    retriable: bool = True


class Task(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """One submitted unit of work. Made by `lifecycle.submit`; what a stored record must always say has no default.

    Records hold plain data and never each other, so the garbage collector need not look at them (`gc=False`).
    """

    id: str
    queue: str
    type: str
    raw_input: msgspec.Raw = msgspec.field(default=NULL, name="input")
    state: State
    priority: Priority
    requires: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    key: str | None = None
    key_until: datetime | None = None
    """Until when `key` keeps others with the same key out."""
    rank: int
    created_at: datetime
    scheduled_at: datetime
    """What rank is made from: when it was first meant to run."""
    available_at: datetime
    """The next time it may run."""
    updated_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    """Set at every end: completed, failed or cancelled."""
    attempt: int
    """Grows with every claim, never goes back."""
    failures: int
    """Attempts that raised, timed out or crashed; compared with max_retries."""
    losses: int
    """Leases that ran out; they have a limit of their own."""
    max_retries: int
    timeout: float | None
    retry: RetryPolicy
    lease_id: str | None = None
    settled_lease: str | None = None
    """The last lease whose holder settled; a repeated settle is recognised by it."""
    lease_expires_at: datetime | None = None
    worker_id: str | None = None
    cancel_requested: bool = False
    raw_progress: msgspec.Raw = msgspec.field(default=NULL, name="progress")
    raw_output: msgspec.Raw = msgspec.field(default=NULL, name="output")
    error: ErrorInfo | None = None
    archived_from: State | None = None
    unsaid: tuple[str, ...] = ()
    """Which of max_retries, timeout and retry the submitter neither said nor could know: the handler's own hold."""
    depends_on: tuple[str, ...] = ()
    """Reserved: no store keeps it yet, submit refuses anything in it."""
    trace: str | None = None
    """W3C traceparent of whoever submitted it."""
    version: int
    """Bumped by the engine with every write."""

    def __repr__(self) -> str:
        return f"Task({self.id} {self.queue}/{self.type} {self.state}, attempt {self.attempt}, version {self.version})"

    @property
    def input(self) -> Any:
        return decode_value(self.raw_input)

    @property
    def output(self) -> Any:
        return decode_value(self.raw_output)

    @property
    def progress(self) -> Any:
        return decode_value(self.raw_progress)

    @property
    def lane(self) -> Lane:
        return (self.queue, self.type, self.requires)

    @property
    def ended(self) -> bool:
        """Completed, failed, cancelled, or archived after one of these."""
        return self.state not in ("pending", "running")

    def effective_priority(self, now: datetime) -> Priority:
        """Its priority, raised by the time it has waited."""
        return effective_priority(self.priority, self.rank, now)


class Transition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a task's history."""

    at: datetime
    was: State | None = msgspec.field(default=None, name="from")
    became: State | None = msgspec.field(default=None, name="to")
    attempt: int = 0
    lease_id: str | None = None
    worker_id: str | None = None
    actor: str | None = None
    """Who asked, for what an administrator did."""
    error: ErrorInfo | None = None


_TEXT = r"[^\x00-\x1f\x7f\ud800-\udfff]"
_NAMES: dict[str, tuple[re.Pattern[str], str]] = {
    "id": (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "a UUID in lower case with hyphens"),
    "type": (re.compile(_TEXT + "{1,200}"), "1 to 200 characters, none of them control characters"),
    "queue": (re.compile(r"[A-Za-z0-9_.-]{1,100}"), "1 to 100 letters, digits, '_', '.' or '-'"),
    "key": (re.compile(_TEXT + "{1,500}"), "1 to 500 characters, none of them control characters"),
    "capability": (re.compile(r"[A-Za-z0-9_.:@/+-]{1,100}"), "1 to 100 letters, digits or any of '_.:@/+-'"),
    "worker": (re.compile(r"[A-Za-z0-9_.:@+-]{1,200}"), "1 to 200 letters, digits or any of '_.:@+-'"),
    "trace": (re.compile(r"[\x20-\x7e]{1,200}"), "a W3C traceparent: at most 200 printable ASCII characters"),
    "tag": (re.compile(_TEXT + "{1,100}"), "1 to 100 characters, none of them control characters"),
    "tag value": (re.compile(_TEXT + "{0,500}"), "at most 500 characters, none of them control characters"),
}
Name = Literal["id", "type", "queue", "key", "capability", "worker", "tag", "tag value", "trace"]


def check_name(what: Name, value: object) -> str:
    """The name as it is, or InvalidInput saying what such a name may look like."""
    pattern, allowed = _NAMES[what]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise InvalidInput(f"{value!r} is no {what}: {allowed}")
    return value

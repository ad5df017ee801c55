"""What can happen to a stored task, as small patches with their guards. Made by `lifecycle`, written by stores.

A settlement is what the holder of a lease changes (or upkeep, when the lease ran out); an amendment is what anybody
else does. Both are patches, never whole records: a whole record overwrites what happened meanwhile. The functions
below are the reference meaning of each patch and guard; record stores call them, engines with their own language
(SQL, Lua) repeat them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from qo.task import ENDED, ErrorInfo, State, Task, Transition
from qo.values import NULL

Settled = Literal["written", "lost", "cancel_asked"]
Renewed = Literal["held", "lost", "cancel_asked"]
Amended = Literal["written", "changed"]


class Settlement(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The end of one attempt. Guard: lease, attempt, and cancel_requested as the sender knew it."""

    id: str
    lease_id: str
    attempt: int
    cancel_requested: bool = False
    expired: bool = False
    """Made by upkeep: also guarded by lease_expires_at <= the engine's now."""
    at: datetime
    state: State
    available_at: datetime
    scheduled_at: datetime
    rank: int
    failures: int
    losses: int
    error: ErrorInfo | None = None
    raw_output: msgspec.Raw = msgspec.field(default=NULL, name="output")

    @property
    def completed_at(self) -> datetime | None:
        return self.at if self.state in ENDED else None


class Amendment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change from outside: cancel, replay, archive, delete. Guard: the version it was made from."""

    id: str
    version: int
    at: datetime
    actor: str | None = None
    delete: bool = False
    was: State
    state: State
    cancel_requested: bool = False
    available_at: datetime
    scheduled_at: datetime
    rank: int
    failures: int
    losses: int
    completed_at: datetime | None = None
    archived_from: State | None = None
    error: ErrorInfo | None = None
    raw_output: msgspec.Raw = msgspec.field(default=NULL, name="output")


class Lease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One lease to renew; `raw_progress` None leaves the stored progress alone."""

    id: str
    lease_id: str
    attempt: int
    worker_id: str = ""
    """Who holds it; a store that keeps leases with the worker finds them by it."""
    raw_progress: bytes | None = msgspec.field(default=None, name="progress")


class Guarded(Protocol):
    """What the guards look at; a task, or just these columns of one."""

    @property
    def state(self) -> str: ...
    @property
    def lease_id(self) -> str | None: ...
    @property
    def attempt(self) -> int: ...
    @property
    def cancel_requested(self) -> bool: ...
    @property
    def settled_lease(self) -> str | None: ...
    @property
    def lease_expires_at(self) -> datetime | None: ...


def judge_settlement(task: Guarded | None, settlement: Settlement, now: datetime) -> Settled | Literal["repeated"]:
    """What the store answers; "repeated" is a "written" that changes nothing."""
    if task is None:
        return "lost"
    if task.state != "running" or task.lease_id != settlement.lease_id or task.attempt != settlement.attempt:
        return "repeated" if task.settled_lease == settlement.lease_id and not settlement.expired else "lost"
    if settlement.expired and (task.lease_expires_at is None or task.lease_expires_at > now):
        return "lost"
    if task.cancel_requested != settlement.cancel_requested:
        return "cancel_asked"
    return "written"


def apply_settlement(task: Task, settlement: Settlement) -> Task:
    """The record after the settlement.

    An expiry leaves `settled_lease` alone: the worker that lost its lease must be told "lost", not "written", when it
    settles later. A task that ended keeps its place in the order; only one that will run again gets a new one.
    """
    place = settlement if settlement.state == "pending" else task
    return replace(
        task,
        state=settlement.state,
        available_at=place.available_at,
        scheduled_at=place.scheduled_at,
        rank=place.rank,
        failures=settlement.failures,
        losses=settlement.losses,
        error=settlement.error,
        raw_output=settlement.raw_output,
        completed_at=settlement.completed_at,
        updated_at=settlement.at,
        settled_lease=task.settled_lease if settlement.expired else settlement.lease_id,
        lease_id=None,
        lease_expires_at=None,
        version=task.version + 1,
    )


def apply_amendment(task: Task, amendment: Amendment) -> Task:
    """The record after an amendment that is no delete."""
    return replace(
        task,
        state=amendment.state,
        cancel_requested=amendment.cancel_requested,
        available_at=amendment.available_at,
        scheduled_at=amendment.scheduled_at,
        rank=amendment.rank,
        failures=amendment.failures,
        losses=amendment.losses,
        completed_at=amendment.completed_at,
        archived_from=amendment.archived_from,
        error=amendment.error,
        raw_output=amendment.raw_output,
        updated_at=amendment.at,
        version=task.version + 1,
    )


def apply_claim(task: Task, now: datetime, lease_id: str, worker_id: str, ttl: float) -> Task:
    """The record under a fresh lease."""
    return replace(
        task,
        state="running",
        attempt=task.attempt + 1,
        started_at=now,
        updated_at=now,
        lease_id=lease_id,
        lease_expires_at=now + timedelta(seconds=ttl),
        worker_id=worker_id,
        version=task.version + 1,
    )


def judge_renewal(task: Guarded | None, lease: Lease) -> Renewed:
    """A lease that ran out but was not collected is still held."""
    if task is None or task.state != "running" or task.lease_id != lease.lease_id or task.attempt != lease.attempt:
        return "lost"
    return "cancel_asked" if task.cancel_requested else "held"


def apply_renewal(task: Task, lease: Lease, now: datetime, ttl: float) -> Task:
    """The record with a later expiry and, when there is news, the handler's progress.

    The version stays: nothing that an amendment writes is touched, and a cancellation must not fight the lease keeper.
    """
    progress = task.raw_progress if lease.raw_progress is None else msgspec.Raw(lease.raw_progress)
    return replace(task, lease_expires_at=now + timedelta(seconds=ttl), raw_progress=progress)


def transition(
    before: Task | None, after: Task, *, actor: str | None = None, error: ErrorInfo | None = None
) -> Transition:
    """The line of history between two records of one task; `error` is that of the attempt that just ended."""
    holder = after if after.state == "running" or before is None else before
    return Transition(
        at=after.updated_at,
        was=before.state if before else None,
        became=after.state,
        attempt=after.attempt,
        lease_id=holder.lease_id,
        worker_id=holder.worker_id if holder.lease_id else None,
        actor=actor,
        error=error,
    )


def fits(requires: Sequence[str], capabilities: frozenset[str]) -> bool:
    """Can a worker with these capabilities run a task that requires those?"""
    return not requires or capabilities.issuperset(requires)

"""Every transition of a task, decided purely: facts and `now` in, a patch (or IllegalTransition) out.

    pending --claim--> running --settle--> completed | failed | cancelled | pending (retry, given back, snoozed)
                       running --expire--> pending | failed (lost too often) | cancelled (when that was asked)
    pending | running --cancel--> cancelled (running: asked for, settled by the worker)
    failed | cancelled | completed (force) --replay--> pending
    completed | failed | cancelled --archive--> archived --unarchive--> what it was

Decide in Python, guard in the engine: a store checks the guards of a patch in the atomic step that writes it and
decides nothing. `now` is always the store's time, `chance` a number from 0 to 1 for the jitter.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NoReturn

import msgspec

from qo.changes import Amendment, Settlement
from qo.clock import micros
from qo.errors import IllegalTransition, InvalidInput
from qo.ordering import Priority, check_priority, rank
from qo.outcomes import Cancelled, GivenBack, Outcome, Raised, Returned, Snoozed
from qo.retry import RetryPolicy
from qo.task import ENDED, ErrorInfo, State, Task, check_name
from qo.values import NULL, clean_text

DEFAULT_RETRY = RetryPolicy()
MAX_TAGS = 50
MAX_RETRIES = 1_000_000
LOSS_RETRY = RetryPolicy(initial=1.0, multiplier=2.0, maximum=300.0, jitter=0.5)
"""The least to wait after repeated losses. Spread out, so that tasks which were claimed together with one that kills
its worker do not come back together with it until all of them are given up."""
FOREVER = 100 * 366 * 86_400.0
"""Seconds; a longer wait or window than this century is a mistake, and no engine could hold its end."""


def submit(
    *,
    id: str,
    type: str,
    now: datetime,
    input: msgspec.Raw = NULL,
    queue: str = "default",
    priority: Priority = "medium",
    run_after: datetime | None = None,
    requires: Iterable[str] = (),
    tags: Mapping[str, str] | None = None,
    key: str | None = None,
    key_window: float = 86_400.0,
    max_retries: int = 3,
    timeout: float | None = 300.0,
    retry: RetryPolicy = DEFAULT_RETRY,
    trace: str | None = None,
    unsaid: tuple[str, ...] = (),
) -> Task:
    """A new pending task, or InvalidInput. `input` is encoded already (`values.encode_value`)."""
    scheduled_at = now
    if run_after is not None:
        if run_after.tzinfo is None:
            raise InvalidInput(f"run_after {run_after} has no time zone; give it one, such as datetime.now(UTC)")
        scheduled_at = max(now, run_after.astimezone(UTC))
    if not 0 <= max_retries <= MAX_RETRIES:
        raise InvalidInput(f"max_retries must be from 0 to {MAX_RETRIES:,}, not {max_retries}")
    if not -FOREVER <= key_window <= FOREVER:
        raise InvalidInput(f"key_window must be a number of seconds within a century, not {key_window}")
    if timeout is not None:
        # Microseconds are what every engine keeps exactly.
        timeout = round(float(timeout), 6)
        if not 0 < timeout <= 366 * 86_400:
            raise InvalidInput(f"timeout must be more than 0 s and at most a year, or None, not {timeout}")
    priority = check_priority(priority)
    return Task(
        id=check_name("id", id),
        queue=check_name("queue", queue),
        type=check_name("type", type),
        raw_input=input,
        state="pending",
        priority=priority,
        requires=tuple(sorted({check_name("capability", name) for name in requires})) if requires else (),
        tags=_check_tags(tags) if tags else {},
        key=check_name("key", key) if key is not None else None,
        key_until=now + timedelta(seconds=key_window) if key is not None else None,
        rank=rank(scheduled_at, priority),
        created_at=now,
        scheduled_at=scheduled_at,
        available_at=scheduled_at,
        updated_at=now,
        attempt=0,
        failures=0,
        losses=0,
        max_retries=max_retries,
        timeout=timeout,
        retry=retry,
        trace=check_name("trace", trace) if trace is not None else None,
        unsaid=unsaid,
        version=1,
    )


def settle(task: Task, outcome: Outcome, now: datetime, chance: float) -> Settlement:
    """What the outcome of this attempt changes.

    A cancellation that was asked for always wins, whatever the handler did meanwhile: who cancelled was told so. What
    it returned or raised is kept with the task.
    """
    if task.cancel_requested:
        return _end_cancelled(task, outcome, now)
    match outcome:
        case Returned(output):
            return _settlement(task, now, "completed", output=output)
        case Raised(error, after):
            return _fail(task, error, after, now, chance)
        case Cancelled():
            return _end_cancelled(task, outcome, now)
        case GivenBack():
            return _settlement(task, now, "pending")
        case Snoozed(until):
            until = min(max(now, until if until.tzinfo else until.replace(tzinfo=UTC)), _after(now, FOREVER))
            return _settlement(
                task, now, "pending", available_at=until, scheduled_at=until, new_rank=rank(until, task.priority)
            )


def expire(task: Task, now: datetime, chance: float, max_losses: int = 10) -> Settlement:
    """What upkeep does with a lease that ran out: a loss is not a failure, but too many of them are."""
    losses = task.losses + 1
    error = ErrorInfo(
        reason="lost", message=f"worker {task.worker_id} went silent; the lease of attempt {task.attempt} ran out"
    )
    if task.cancel_requested:
        return _settlement(task, now, "cancelled", losses=losses, error=_CANCELLED, expired=True)
    if losses > max_losses:
        error = msgspec.structs.replace(error, retriable=False)
        return _settlement(task, now, "failed", losses=losses, error=error, expired=True)
    # The first loss is most often a deployment or a reboot: run again at once. A second one may be the task's own
    # doing.
    wait = 0.0 if losses == 1 else max(task.retry.delay(losses - 1, chance), LOSS_RETRY.delay(losses - 1, chance))
    again = _after(now, wait)
    return _settlement(task, now, "pending", losses=losses, error=error, available_at=again, expired=True)


def give_up(id: str, lease_id: str, attempt: int, message: str, now: datetime, *, expired: bool = False) -> Settlement:
    """Fail a record that was claimed but cannot be read; all that is known of it is the lease."""
    error = _clean(ErrorInfo(reason="corrupt", message=message, retriable=False))
    return Settlement(
        id=id,
        lease_id=lease_id,
        attempt=attempt,
        expired=expired,
        at=now,
        state="failed",
        available_at=now,
        scheduled_at=now,
        rank=micros(now),
        failures=1,
        losses=0,
        error=error,
    )


def cancel(task: Task, now: datetime, actor: str | None = None) -> Amendment | None:
    """Pending: cancelled at once. Running: asked for. None when there is nothing left to do."""
    match task.state:
        case "pending":
            return _amendment(task, now, actor, state="cancelled", completed_at=now, error=_CANCELLED)
        case "running":
            return None if task.cancel_requested else _amendment(task, now, actor, cancel_requested=True)
        case "cancelled":
            return None
        case _:
            _refuse(task, "cancel", "only pending and running tasks can be cancelled")


def replay(task: Task, now: datetime, actor: str | None = None, *, force: bool = False) -> Amendment | None:
    """Run it again. An ended task starts anew behind those already waiting; a waiting one becomes available now."""
    if task.state == "pending":
        if task.available_at <= now:
            return None
        # A delayed task ranks by a time to come; one that is backing off keeps its old place.
        scheduled_at = min(task.scheduled_at, now)
        new_rank = min(task.rank, rank(now, task.priority))
        return _amendment(task, now, actor, available_at=now, scheduled_at=scheduled_at, rank=new_rank)
    if task.state in ("failed", "cancelled") or (task.state == "completed" and force):
        return _amendment(
            task,
            now,
            actor,
            state="pending",
            cancel_requested=False,
            available_at=now,
            scheduled_at=now,
            rank=rank(now, task.priority),
            failures=0,
            losses=0,
            completed_at=None,
            error=None,
            raw_output=NULL,
        )
    if task.state == "completed":
        _refuse(task, "replay", "it succeeded; use force to run it again all the same")
    if task.state == "archived":
        _refuse(task, "replay", "unarchive it first")
    _refuse(task, "replay", "wait until it ends, or cancel it first")


def archive(task: Task, now: datetime, actor: str | None = None) -> Amendment | None:
    """Put an ended task away; it keeps everything and leaves the lists."""
    if task.state == "archived":
        return None
    if task.state not in ENDED:
        _refuse(task, "archive", "only tasks that ended can be archived")
    return _amendment(task, now, actor, state="archived", archived_from=task.state)


def unarchive(task: Task, now: datetime, actor: str | None = None) -> Amendment:
    """Back to the state it had."""
    if task.state != "archived" or task.archived_from is None:
        _refuse(task, "unarchive", "it is not archived")
    return _amendment(task, now, actor, state=task.archived_from, archived_from=None)


def delete(task: Task, now: datetime, actor: str | None = None) -> Amendment:
    """Remove an ended task with its history."""
    if not task.ended:
        _refuse(task, "delete", "cancel it first")
    return _amendment(task, now, actor, delete=True)


_CANCELLED = ErrorInfo(reason="cancelled", message="cancelled on request", retriable=False)


def _fail(task: Task, error: ErrorInfo, after: float | None, now: datetime, chance: float) -> Settlement:
    failures = task.failures + 1
    error = _clean(error)
    if not error.retriable or failures > task.max_retries:
        return _settlement(task, now, "failed", failures=failures, error=error)
    wait = task.retry.delay(failures, chance) if after is None else after
    return _settlement(task, now, "pending", failures=failures, error=error, available_at=_after(now, wait))


def _end_cancelled(task: Task, outcome: Outcome, now: datetime) -> Settlement:
    output = outcome.output if isinstance(outcome, Returned) else NULL
    error = _clean(outcome.error) if isinstance(outcome, Raised) else _CANCELLED
    return _settlement(task, now, "cancelled", error=error, output=output)


def _settlement(
    task: Task,
    now: datetime,
    state: State,
    *,
    available_at: datetime | None = None,
    scheduled_at: datetime | None = None,
    new_rank: int | None = None,
    failures: int | None = None,
    losses: int | None = None,
    error: ErrorInfo | None = None,
    output: msgspec.Raw = NULL,
    expired: bool = False,
) -> Settlement:
    if task.state != "running" or task.lease_id is None:
        _refuse(task, "settle", "only a running task has an attempt to settle")
    return Settlement(
        id=task.id,
        lease_id=task.lease_id,
        attempt=task.attempt,
        cancel_requested=task.cancel_requested,
        expired=expired,
        at=now,
        state=state,
        available_at=task.available_at if available_at is None else available_at,
        scheduled_at=task.scheduled_at if scheduled_at is None else scheduled_at,
        rank=task.rank if new_rank is None else new_rank,
        failures=task.failures if failures is None else failures,
        losses=task.losses if losses is None else losses,
        error=error,
        raw_output=output,
    )


def _amendment(task: Task, now: datetime, actor: str | None, *, delete: bool = False, **changed: object) -> Amendment:
    same: dict[str, object] = {name: getattr(task, name) for name in _AMENDABLE}
    return Amendment(
        id=task.id,
        version=task.version,
        at=now,
        actor=None if actor is None else clean_text(actor, 200),
        delete=delete,
        was=task.state,
        **(same | changed),  # pyright: ignore[reportArgumentType] - names and types are those of the record
    )


_AMENDABLE = (
    "state",
    "cancel_requested",
    "available_at",
    "scheduled_at",
    "rank",
    "failures",
    "losses",
    "completed_at",
    "archived_from",
    "error",
    "raw_output",
)


def _clean(error: ErrorInfo) -> ErrorInfo:
    """Messages and tracebacks come from anywhere; what no engine can hold must not cost us the outcome."""
    return msgspec.structs.replace(
        error,
        message=clean_text(error.message, 10_000),
        type=clean_text(error.type, 500) if error.type else None,
        traceback=clean_text(error.traceback) if error.traceback else None,
    )


def _after(now: datetime, seconds: float) -> datetime:
    """An outcome must never be lost because somebody asked for an endless wait."""
    return now + timedelta(seconds=min(max(0.0, seconds), FOREVER))


def _check_tags(tags: Mapping[str, str]) -> dict[str, str]:
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"{len(tags)} tags; at most {MAX_TAGS} are allowed")
    return {check_name("tag", name): check_name("tag value", value) for name, value in tags.items()}


def _refuse(task: Task, verb: str, hint: str) -> NoReturn:
    raise IllegalTransition(f"cannot {verb} task {task.id}, which is {task.state}: {hint}")

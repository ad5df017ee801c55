"""What a queue shows of itself, and how one asks for some of its tasks. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, Unpack, cast

import msgspec

from qo.errors import InvalidInput
from qo.ordering import Priority, check_priority
from qo.records import WorkerInfo, WorkerState
from qo.stores.protocol import Filter, Stats
from qo.task import STATES, State
from qo.units import DURATION_OR_ZERO, Kind


class PriorityDepth(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks of one priority that could run now."""

    depth: int
    oldest_age: float
    """Seconds that the one that has waited longest has waited."""


class QueueStats(msgspec.Struct, frozen=True, kw_only=True):
    """One queue in numbers."""

    queue: str
    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int
    archived: int
    ready: int
    """Pending and available now."""
    delayed: int
    """Pending, not available yet: scheduled, backing off or snoozed."""
    by_type: dict[str, dict[State, int]]
    by_priority: dict[Priority, PriorityDepth]
    workers: dict[WorkerState, int]
    """How many workers of this queue are in each state."""
    throughput: int
    """Tasks that ended in the last minute."""
    paused: bool
    paused_types: tuple[str, ...]


class TypeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One task type: who knows it, and how many tasks it has."""

    name: str
    registered: bool
    """It has a handler in this process."""
    workers: int
    """Live workers that run it; 0 means that its tasks wait."""
    paused: bool
    counts: dict[State, int]
    schema: dict[str, Any] | None
    """JSON Schema of its input, if anybody said."""


class Where(TypedDict, total=False):
    """Which tasks: `q.find(state="failed", type="send_email")`. Several values mean any of them."""

    state: str | Iterable[str] | None
    states: str | Iterable[str] | None
    status: str | Iterable[str] | None
    type: str | Iterable[str] | None
    types: str | Iterable[str] | None
    priority: Priority | Iterable[Priority] | None
    tags: Mapping[str, str] | None
    key: str | None
    worker_id: str | None
    text: str | None
    created_from: datetime | None
    created_before: datetime | None
    completed_before: datetime | None


def make_filter(queue: str, **where: Unpack[Where]) -> Filter:
    """The filter behind those words, checked. `state`, `states` and `status` say the same, as do `type` and `types`."""
    if unknown := [name for name in where if name not in Where.__annotations__]:
        raise InvalidInput(f"tasks cannot be found by {unknown[0]!r}; there are {', '.join(Where.__annotations__)}")
    fields: dict[str, Any] = {"queue": queue, "states": tuple(_states(where))}
    fields["types"] = (*_many(where.get("type")), *_many(where.get("types")))
    fields["priorities"] = tuple(check_priority(one) for one in _many(where.get("priority")))
    fields["tags"] = dict(where.get("tags") or {})
    for name in ("key", "worker_id", "text"):
        fields[name] = where.get(name)
    for name in ("created_from", "created_before", "completed_before"):
        moment = where.get(name)
        if isinstance(moment, datetime) and moment.tzinfo is None:
            raise InvalidInput(f"{name}: {moment} has no time zone; give it one, such as datetime.now(UTC)")
        fields[name] = moment
    return Filter(**fields)


def _states(where: Where) -> Iterable[State]:
    for name in ("state", "states", "status"):
        for one in _many(where.get(name)):
            if one not in STATES:
                raise InvalidInput(f"no state {one!r}; there are {', '.join(STATES)}")
            yield one


def _many(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str | int) else tuple(value)


def queue_stats(
    queue: str, stats: Stats, workers: Iterable[WorkerInfo], paused: bool, paused_types: Iterable[str], now: datetime
) -> QueueStats:
    """The numbers of a store with those of the workers."""
    states: dict[WorkerState, int] = {"active": 0, "draining": 0, "dead": 0}
    for worker in workers:
        states[worker.state] += 1
    return QueueStats(
        queue=queue,
        pending=stats.pending,
        running=stats.running,
        completed=stats.completed,
        failed=stats.failed,
        cancelled=stats.cancelled,
        archived=stats.archived,
        ready=stats.ready,
        delayed=stats.delayed,
        by_type=stats.by_type,
        by_priority={
            priority: PriorityDepth(depth=one.depth, oldest_age=_age(one.oldest, now))
            for priority, one in stats.by_priority.items()
        },
        workers=states,
        throughput=stats.ended_last_minute,
        paused=paused,
        paused_types=tuple(sorted(paused_types)),
    )


def duration(name: str, value: object, kind: Kind = DURATION_OR_ZERO) -> float:
    """Seconds from what people write: 5, "10m", a timedelta; InvalidInput names it."""
    try:
        return cast("float", kind.parse(value.total_seconds() if isinstance(value, timedelta) else value))
    except ValueError:
        raise InvalidInput(f"{name}: {value!r} is not {kind.words}") from None


def _age(moment: datetime | None, now: datetime) -> float:
    return max(timedelta(0), now - moment).total_seconds() if moment else 0.0

"""Small helpers of the scenarios that need no store: answers, outcomes, comparing records."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import msgspec

from qo import lifecycle
from qo.changes import Settlement
from qo.errors import CorruptRecord, QoError
from qo.outcomes import Raised
from qo.stores.protocol import Corrupt, Page, Stats, Store
from qo.task import STATES, ErrorInfo, State, Task
from qo.values import NULL

T = TypeVar("T")
HOUR = 3600.0
SLACK = timedelta(minutes=1)
"""A store may announce a time to come a little early (it keeps them by the minute), never late."""


def only(answers: Sequence[T | QoError]) -> T:
    """The one answer to one item; raised when it is an error."""
    assert len(answers) == 1, f"{len(answers)} answers to one item"
    answer = answers[0]
    if isinstance(answer, QoError):
        raise answer
    return answer


def good(answers: Sequence[T | QoError]) -> list[T]:
    """The answers, none of which may be an error."""
    for answer in answers:
        if isinstance(answer, QoError):
            raise answer
    return cast("list[T]", list(answers))


def ids(found: Iterable[Task] | Page) -> list[str]:
    """The ids of tasks, in their order."""
    return [task.id for task in (found.tasks if isinstance(found, Page) else found)]


def raised(message: str = "boom", *, after: float | None = None) -> Raised:
    """An attempt that raised and may be tried again; `after` seconds from now instead of the backoff."""
    return Raised(ErrorInfo(reason="raised", message=message, type="ValueError"), after)


def failed_for_good(message: str = "no use") -> Raised:
    """An attempt that raised what no retry can mend."""
    return Raised(ErrorInfo(reason="permanent", message=message, retriable=False))


def give_up(corrupt: Corrupt, now: datetime, *, expired: bool = False) -> Settlement:
    """How the holder of an unreadable record settles it, or upkeep when the lease ran out."""
    return lifecycle.give_up(corrupt.id, corrupt.lease_id, corrupt.attempt, corrupt.message, now, expired=expired)


async def read(store: Store, ids: Sequence[str]) -> list[Task | None]:
    """What `get` answers, where every record can be read."""
    tasks: list[Task | None] = []
    for answer in await store.get(ids):
        if isinstance(answer, CorruptRecord):
            raise answer
        tasks.append(answer)
    return tasks


async def lost(store: Store, limit: int) -> list[Task]:
    """What `expired` answers, where every record can be read."""
    found = await store.expired(limit)
    tasks = [task for task in found if isinstance(task, Task)]
    assert len(tasks) == len(found), f"unreadable: {found}"
    return tasks


def same(one: Task, other: Task) -> bool:
    """Do two records say the same? An engine may write JSON in its own way, so data is compared by value."""
    plain = [msgspec.structs.replace(task, raw_input=NULL, raw_output=NULL, raw_progress=NULL) for task in (one, other)]
    return plain[0] == plain[1] and (one.input, one.output, one.progress) == (other.input, other.output, other.progress)


async def together(racers: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all at once; an error of one ends the race."""
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(racer) for racer in racers]
    return [task.result() for task in running]


def counts(stats: Stats) -> dict[State, int]:
    """The states that some task is in."""
    return {state: number for state in STATES if (number := getattr(stats, state))}


def by_type(stats: Stats) -> dict[str, dict[State, int]]:
    """The same for each type; whether a store names what is empty is its own affair."""
    types: dict[str, dict[State, int]] = {}
    for type, states in stats.by_type.items():
        for state, number in states.items():
            if number:
                types.setdefault(type, {})[state] = number
    return types


def plain_stats(stats: Stats, exact: bool) -> tuple[object, ...]:
    """Stats to compare with those of another store; without what depends on the moment, unless the clock is exact."""
    return (
        counts(stats),
        by_type(stats),
        {priority: (each.depth, each.oldest) for priority, each in stats.by_priority.items() if each.depth},
        (stats.ready, stats.delayed),
        stats.ended_last_minute if exact else 0,
    )

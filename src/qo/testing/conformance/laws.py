"""What must hold for any store at any moment, worked out from its records alone: the model checks it after every step.

Nothing here asks the reference, so that a mistake the reference shares is found as well. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from qo.changes import fits
from qo.records import NO_CONTROLS, Controls
from qo.stores.protocol import Stats, Want
from qo.task import ENDED, STATES, State, Task, Transition


def expected_claim(tasks: Iterable[Task], want: Want, controls: Mapping[str, Controls], now: datetime) -> list[str]:
    """Which of these tasks the claim must take: the smallest ranks that are available, allowed, and have room."""
    room = dict(want.room)
    chosen: list[str] = []
    for task in sorted(tasks, key=lambda task: (task.rank, task.id)):
        if len(chosen) == want.limit:
            break
        if task.state == "pending" and task.available_at <= now and may_run(task, want, controls):
            if room.get(task.type, 1) <= 0:
                continue
            if task.type in room:
                room[task.type] -= 1
            chosen.append(task.id)
    return chosen


def may_run(task: Task, want: Want, controls: Mapping[str, Controls]) -> bool:
    """Is the task in a lane of this worker that nobody paused?"""
    return (
        task.queue in want.queues
        and (want.types is None or task.type in want.types)
        and fits(task.requires, want.capabilities)
        and not controls.get(task.queue, NO_CONTROLS).stops(task.type)
    )


def check_record(task: Task) -> None:
    """A record never contradicts itself."""
    if task.state == "running":
        assert task.lease_id and task.lease_expires_at and task.worker_id and task.started_at, f"{task} has no lease"
        assert task.attempt >= 1
    else:
        assert task.lease_id is None and task.lease_expires_at is None, f"{task} has a lease and does not run"
    if task.state == "pending":
        assert task.failures <= task.max_retries, f"{task} waits after {task.failures} failures"
        assert not task.cancel_requested, f"{task} waits although it was cancelled"
    assert (task.completed_at is not None) == task.ended, f"{task} and its end disagree"
    assert task.failures <= task.max_retries + 1
    if task.state == "failed" and task.error and task.error.retriable:
        assert task.failures == task.max_retries + 1, f"{task} failed after {task.failures} failures"
    assert (task.state == "archived") == (task.archived_from is not None)
    assert task.failures + task.losses <= task.attempt


def check_history(task: Task, lines: Sequence[Transition]) -> None:
    """History is one chain from the submit to the record as it is, and the counters are what it tells."""
    assert lines, f"{task} has no history"
    assert lines[0].was is None and lines[-1].became == task.state, f"history of {task} does not lead to it"
    for before, after in pairwise(lines):
        assert before.became == after.was, f"history of {task} has a gap"
        assert before.attempt <= after.attempt, f"an attempt of {task} went back"
        if after.became == "running" and after.was == "pending":
            assert after.attempt == before.attempt + 1
            assert after.lease_id and after.worker_id
    assert lines[-1].attempt == task.attempt
    failures = losses = 0
    for line in lines:
        if line.became == "pending" and line.was in ENDED:
            failures = losses = 0
        elif line.was == "running" and line.error is not None:
            lost = line.error.reason == "lost"
            losses += lost
            failures += not lost and line.became != "cancelled"
    if task.state != "cancelled" and task.archived_from != "cancelled":
        assert (task.failures, task.losses) == (failures, losses), f"counters of {task} differ from its history"


def check_stats(tasks: Sequence[Task], stats: Stats, now: datetime) -> None:
    """The numbers are those of the records."""
    counts: dict[State, int] = {state: sum(task.state == state for task in tasks) for state in STATES}
    assert {state: getattr(stats, state) for state in STATES} == counts
    ready = sum(task.state == "pending" and task.available_at <= now for task in tasks)
    assert (stats.ready, stats.delayed) == (ready, counts["pending"] - ready)
    for type in {task.type for task in tasks}:
        told = {state: number for state, number in stats.by_type[type].items() if number}
        assert told == {
            state: number for state in STATES if (number := sum((t.type, t.state) == (type, state) for t in tasks))
        }

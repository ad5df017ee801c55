"""Every verb on every state, as a table, and what each transition leaves behind."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from qo import lifecycle
from qo.changes import Amendment, Settlement, apply_amendment, apply_claim, apply_settlement, judge_settlement
from qo.clock import ManualClock, micros
from qo.errors import IllegalTransition, InvalidInput
from qo.ordering import rank
from qo.outcomes import Cancelled, GivenBack, Raised, Returned, Snoozed, crashed, timed_out, unreadable
from qo.retry import PRESETS, RetryPolicy
from qo.task import STATES, ErrorInfo, State, Task
from qo.values import NULL, encode_value

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
BOOM = Raised(ErrorInfo(reason="raised", message="boom"))
ids = ManualClock()


def submit(**options) -> Task:
    return lifecycle.submit(id=ids.new_id(), type="job", now=options.pop("now", NOW), **options)


def claimed(task: Task, ttl: float = 20) -> Task:
    return apply_claim(task, NOW, ids.new_id(), "w", ttl)


def settled(task: Task, outcome) -> Task:
    return apply_settlement(task, lifecycle.settle(task, outcome, NOW, 0.5))


def amended(task: Task, amendment: Amendment | None) -> Task:
    assert amendment is not None
    return apply_amendment(task, amendment)


def task_in(state: State, **options) -> Task:
    match state:
        case "pending":
            return submit(**options)
        case "running":
            return claimed(submit(**options))
        case "completed":
            return settled(claimed(submit(**options)), Returned(encode_value(1)))
        case "failed":
            return settled(claimed(submit(max_retries=0, **options)), BOOM)
        case "cancelled":
            task = submit(**options)
            return amended(task, lifecycle.cancel(task, NOW))
        case "archived":
            task = task_in("completed")
            return amended(task, lifecycle.archive(task, NOW))


VERBS = {
    "settle": lambda task: lifecycle.settle(task, Returned(), LATER, 0.5),
    "expire": lambda task: lifecycle.expire(task, LATER, 0.5),
    "cancel": lambda task: lifecycle.cancel(task, LATER, "ann"),
    "replay": lambda task: lifecycle.replay(task, LATER, "ann"),
    "force": lambda task: lifecycle.replay(task, LATER, "ann", force=True),
    "archive": lambda task: lifecycle.archive(task, LATER, "ann"),
    "unarchive": lambda task: lifecycle.unarchive(task, LATER, "ann"),
    "delete": lambda task: lifecycle.delete(task, LATER, "ann"),
}
NO = "illegal"
# The state after each verb; None: nothing to do.
TABLE: dict[str, dict[State, str | None]] = {
    # in the order of STATES: pending, running, completed, failed, cancelled, archived
    "settle": dict(zip(STATES, (NO, "completed", NO, NO, NO, NO), strict=True)),
    "expire": dict(zip(STATES, (NO, "pending", NO, NO, NO, NO), strict=True)),
    "cancel": dict(zip(STATES, ("cancelled", "running", NO, NO, None, NO), strict=True)),
    "replay": dict(zip(STATES, (None, NO, NO, "pending", "pending", NO), strict=True)),
    "force": dict(zip(STATES, (None, NO, "pending", "pending", "pending", NO), strict=True)),
    "archive": dict(zip(STATES, (NO, NO, "archived", "archived", "archived", None), strict=True)),
    "unarchive": dict(zip(STATES, (NO, NO, NO, NO, NO, "completed"), strict=True)),
    "delete": dict(zip(STATES, (NO, NO, "deleted", "deleted", "deleted", "deleted"), strict=True)),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_on_every_state(verb: str, state: State) -> None:
    """Each verb does on each state what the table says, and refuses the rest with the state in the message."""
    task, expected = task_in(state), TABLE[verb][state]
    if expected == NO:
        with pytest.raises(IllegalTransition, match=f"which is {state}"):
            VERBS[verb](task)
        return
    change = VERBS[verb](task)
    if expected is None:
        assert change is None
    elif expected == "deleted":
        assert isinstance(change, Amendment) and change.delete and change.version == task.version
    elif isinstance(change, Settlement):
        assert change.state == expected
        assert (change.id, change.lease_id, change.attempt) == (task.id, task.lease_id, task.attempt)
    else:
        assert isinstance(change, Amendment)
        assert (change.state, change.version, change.was, change.actor) == (expected, task.version, state, "ann")
        assert change.at == LATER


def test_table_is_complete() -> None:
    """No verb and no state is left out of the table."""
    assert set(TABLE) == set(VERBS)
    assert all(set(row) == set(STATES) for row in TABLE.values())


# Settle.


@pytest.mark.parametrize("max_retries", [0, 1, 3])
def test_retries(max_retries: int) -> None:
    """A task is tried max_retries times again, and not once more."""
    task = submit(max_retries=max_retries, retry=RetryPolicy(initial=0))
    for attempt in range(1, max_retries + 2):
        assert task.state == "pending"
        task = settled(claimed(task), BOOM)
        assert (task.failures, task.attempt) == (attempt, attempt)
    assert task.state == "failed"
    assert task.completed_at == NOW


def test_backoff_grows_and_keeps_the_rank() -> None:
    """Each failure waits longer; the place in the order stays."""
    task = submit(max_retries=5)
    waits = []
    for _ in range(3):
        back = settled(claimed(task), BOOM)
        assert (back.rank, back.scheduled_at) == (task.rank, task.scheduled_at)
        waits.append((back.available_at - NOW).total_seconds())
        task = back
    assert waits == [5, 10, 20]


@pytest.mark.parametrize(("after", "wait"), [(0, 0), (30, 30), (-5, 0)])
def test_asked_wait(after: float, wait: float) -> None:
    """A handler that asks for a wait gets it instead of the backoff; it counts as a failure all the same."""
    settlement = lifecycle.settle(claimed(submit()), Raised(ErrorInfo(reason="raised"), after), NOW, 0.5)
    assert settlement.available_at == NOW + timedelta(seconds=wait)
    assert settlement.failures == 1


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        (timed_out(3), "pending", "timeout"),
        (crashed("segfault"), "pending", "crashed"),
        (unreadable("no JSON"), "failed", "corrupt"),
        (Raised(ErrorInfo(reason="permanent", retriable=False)), "failed", "permanent"),
    ],
)
def test_reasons(outcome: Raised, state: State, reason: str) -> None:
    """What can be mended is tried again, what cannot fails at once."""
    settlement = lifecycle.settle(claimed(submit()), outcome, NOW, 0.5)
    assert settlement.state == state
    assert settlement.error is not None and settlement.error.reason == reason


def test_given_back_counts_nothing() -> None:
    """Giving back leaves every counter, the rank and the time alone."""
    task = claimed(submit())
    settlement = lifecycle.settle(task, GivenBack(), LATER, 0.5)
    assert (settlement.state, settlement.failures, settlement.losses, settlement.error) == ("pending", 0, 0, None)
    assert (settlement.rank, settlement.available_at) == (task.rank, task.available_at)


@pytest.mark.parametrize(("until", "expected"), [(LATER, LATER), (NOW - timedelta(hours=1), NOW)])
def test_snooze_takes_a_new_rank(until: datetime, expected: datetime) -> None:
    """A snoozed task ranks by the time it asked for, never by one that has passed."""
    settlement = lifecycle.settle(claimed(submit(now=NOW - timedelta(days=1))), Snoozed(until), NOW, 0.5)
    assert (settlement.available_at, settlement.scheduled_at) == (expected, expected)
    assert settlement.rank == rank(expected, "medium")


@pytest.mark.parametrize("outcome", [Returned(encode_value(7)), BOOM, GivenBack(), Snoozed(LATER), Cancelled()])
def test_cancellation_wins(outcome) -> None:
    """When cancellation was asked for, every outcome ends as cancelled; output or error are kept."""
    task = replace(claimed(submit()), cancel_requested=True)
    settlement = lifecycle.settle(task, outcome, NOW, 0.5)
    assert (settlement.state, settlement.cancel_requested, settlement.failures) == ("cancelled", True, 0)
    assert settlement.completed_at == NOW
    assert settlement.raw_output == (outcome.output if isinstance(outcome, Returned) else NULL)
    assert settlement.error is not None
    assert settlement.error.reason == ("raised" if outcome is BOOM else "cancelled")


def test_errors_are_cleaned() -> None:
    """No message or traceback can hold what an engine cannot."""
    error = ErrorInfo(reason="raised", message="a\x00b\ud800", type="T\x00", traceback="x" * 300_000)
    kept = lifecycle.settle(claimed(submit()), Raised(error), NOW, 0.5).error
    assert kept is not None and kept.traceback is not None
    assert (kept.message, kept.type) == ("a\\x00b\\ud800", "T\\x00")
    assert len(kept.traceback) < 101_000


# Expire.


def test_losses() -> None:
    """The first loss goes back at once, later ones wait, the one past the limit fails; none is a failure."""
    task, waits = submit(max_retries=0), []
    for _ in range(3):
        task = claimed(task)
        task = apply_settlement(task, lifecycle.expire(task, NOW, 0.5, max_losses=3))
        waits.append((task.available_at - NOW).total_seconds())
    assert (task.state, task.losses, task.failures, waits) == ("pending", 3, 0, [0, 5, 10])
    task = claimed(task)
    settlement = lifecycle.expire(task, NOW, 0.5, max_losses=3)
    assert (settlement.state, settlement.losses, settlement.failures) == ("failed", 4, 0)
    assert settlement.error is not None
    assert (settlement.error.reason, settlement.error.retriable) == ("lost", False)
    assert settlement.expired


def test_default_limit_of_losses() -> None:
    """Ten losses are survived, the eleventh is not."""
    tenth = replace(claimed(submit()), losses=9)
    assert lifecycle.expire(tenth, NOW, 0.5).state == "pending"
    assert lifecycle.expire(replace(tenth, losses=10), NOW, 0.5).state == "failed"


def test_lost_and_cancelled() -> None:
    """A lost task whose cancellation was asked for is cancelled, however often it was lost."""
    task = replace(claimed(submit()), cancel_requested=True, losses=99)
    settlement = lifecycle.expire(task, NOW, 0.5)
    assert (settlement.state, settlement.expired) == ("cancelled", True)


def test_give_up() -> None:
    """A record that cannot be read is failed for good, under the lease that is known of it."""
    settlement = lifecycle.give_up("i", "l", 4, "no\x00JSON", NOW)
    assert (settlement.id, settlement.lease_id, settlement.attempt, settlement.state) == ("i", "l", 4, "failed")
    assert settlement.error == ErrorInfo(reason="corrupt", message="no\\x00JSON", retriable=False)


# Amendments.


def test_cancel_twice() -> None:
    """A running task whose cancellation was asked for has nothing left to ask."""
    assert lifecycle.cancel(replace(claimed(submit()), cancel_requested=True), NOW) is None


@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_replay_starts_anew(state: State) -> None:
    """Replay resets counters, error and output, takes a new rank and keeps the attempt."""
    old = replace(task_in(state), losses=2, cancel_requested=True)
    new = amended(old, lifecycle.replay(old, LATER))
    assert (new.state, new.failures, new.losses, new.cancel_requested) == ("pending", 0, 0, False)
    assert (new.error, new.completed_at, new.output, new.attempt) == (None, None, None, old.attempt)
    assert (new.available_at, new.scheduled_at, new.rank) == (LATER, LATER, rank(LATER, old.priority))
    assert new.version == old.version + 1


def test_replay_of_a_delayed_task() -> None:
    """A delayed task becomes available and ranks as if submitted now; a waiting retry keeps its older rank."""
    delayed = submit(run_after=NOW + timedelta(days=1))
    new = amended(delayed, lifecycle.replay(delayed, LATER))
    assert (new.available_at, new.rank) == (LATER, rank(LATER, "medium"))
    waiting = settled(claimed(submit()), Raised(ErrorInfo(reason="raised"), 86_400))
    again = amended(waiting, lifecycle.replay(waiting, LATER))
    assert (again.available_at, again.rank, again.failures) == (LATER, waiting.rank, 1)


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled"])
def test_archive_and_back(state: State) -> None:
    """Unarchive brings back the state and everything else."""
    task = task_in(state)
    away = amended(task, lifecycle.archive(task, LATER))
    assert (away.state, away.archived_from, away.completed_at) == ("archived", state, task.completed_at)
    back = amended(away, lifecycle.unarchive(away, LATER))
    assert replace(back, version=task.version, updated_at=task.updated_at) == task


# Submit.


def test_submitted_task() -> None:
    """A new task is pending, available when scheduled, with nothing counted."""
    task = submit(priority="low", run_after=LATER, key="k", key_window=60, requires=["b", "a", "a"])
    assert (task.state, task.attempt, task.failures, task.losses, task.version) == ("pending", 0, 0, 0, 1)
    assert (task.created_at, task.scheduled_at, task.available_at) == (NOW, LATER, LATER)
    assert task.rank == micros(LATER) + 30 * 60 * 1_000_000
    assert task.key_until == NOW + timedelta(minutes=1)
    assert task.requires == ("a", "b")


def test_run_after_in_the_past() -> None:
    """A time that has passed does not let a task overtake others."""
    assert submit(run_after=NOW - timedelta(days=1)).rank == submit().rank


@pytest.mark.parametrize(
    "options",
    [
        {"run_after": datetime(2030, 1, 1)},  # noqa: DTZ001 - a time without a zone is the point
        {"max_retries": -1},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": 400 * 86_400},
        {"priority": "urgent"},
        {"priority": True},
        {"priority": 2**31},
        {"priority": 1.5},
        {"queue": "a b"},
        {"queue": ""},
        {"key": ""},
        {"key": "a\nb"},
        {"requires": ["a b"]},
        {"tags": {"": "x"}},
        {"tags": {"a": "\ud800"}},
        {"tags": {"a": 1}},
        {"tags": {f"t{n}": "" for n in range(51)}},
    ],
)
def test_refused(options) -> None:
    """What no task may be is refused before it reaches a store."""
    with pytest.raises(InvalidInput):
        submit(**options)


@pytest.mark.parametrize("id", ["", "x", "01B8DAC5-B400-7001-9944-C9C3269E0D37", "01b8dac5b40070019944c9c3269e0d37"])
def test_ids_refused(id: str) -> None:
    """An id is a UUID in lower case with hyphens."""
    with pytest.raises(InvalidInput):
        lifecycle.submit(id=id, type="job", now=NOW)


# The guard of settle, whose order of questions matters.


def test_second_attempt_under_the_same_lease() -> None:
    """A lease id that settled before and runs again is judged as running, not as a repeat."""
    task = claimed(submit())
    back = settled(task, GivenBack())
    again = replace(apply_claim(back, NOW, task.lease_id or "", "w", 20))
    settlement = lifecycle.settle(again, Returned(), NOW, 0.5)
    assert judge_settlement(again, settlement, NOW) == "written"
    assert judge_settlement(again, lifecycle.settle(task, GivenBack(), NOW, 0.5), NOW) == "repeated"


def test_losses_are_spread_out_whatever_the_policy_says() -> None:
    """Tasks lost together do not come back together, even when their retries have neither delay nor jitter."""
    task = replace(task_in("running", retry=PRESETS["b"]), losses=1)
    waits = {lifecycle.expire(task, NOW, chance).available_at - NOW for chance in (0.0, 0.3, 0.9)}
    assert len(waits) == 3
    assert min(waits) > timedelta(0)

"""Planted bugs in the functions stores are made of: guards, patches, what lifecycle decides."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace
from tests.conformance.planted import patched

from qo import changes, lifecycle
from qo.changes import Amendment, Lease, Settlement, apply_amendment, apply_renewal, apply_settlement, judge_settlement
from qo.ordering import rank
from qo.task import Task
from qo.values import NULL

# Guards of settle, expire, renew and amend.


def no_lease_guard(task: Task | None, settlement: Settlement, now: datetime) -> str:
    if task is not None and task.state == "running":
        settlement = replace(settlement, lease_id=task.lease_id or "", attempt=task.attempt)
    return judge_settlement(task, settlement, now)


def no_attempt_guard(task: Task | None, settlement: Settlement, now: datetime) -> str:
    return judge_settlement(task, replace(settlement, attempt=task.attempt) if task else settlement, now)


def no_cancel_guard(task: Task | None, settlement: Settlement, now: datetime) -> str:
    answer = judge_settlement(task, settlement, now)
    return "written" if answer == "cancel_asked" else answer


def no_expiry_guard(task: Task | None, settlement: Settlement, now: datetime) -> str:
    return judge_settlement(task, settlement, now + timedelta(days=1000))


def repeat_is_lost(task: Task | None, settlement: Settlement, now: datetime) -> str:
    answer = judge_settlement(task, settlement, now)
    return "lost" if answer == "repeated" else answer


def repeat_is_written_again(task: Task | None, settlement: Settlement, now: datetime) -> str:
    answer = judge_settlement(task, settlement, now)
    return "written" if answer == "repeated" else answer


def expiry_counts_as_settled(task: Task, settlement: Settlement) -> Task:
    return replace(apply_settlement(task, settlement), settled_lease=settlement.lease_id)


def settle_leaves_the_lease(task: Task, settlement: Settlement) -> Task:
    return replace(apply_settlement(task, settlement), lease_expires_at=task.lease_expires_at)


def settle_resets_progress(task: Task, settlement: Settlement) -> Task:
    return replace(apply_settlement(task, settlement), raw_progress=NULL)


def retry_takes_a_new_rank(task: Task, settlement: Settlement) -> Task:
    return replace(apply_settlement(task, settlement), rank=rank(settlement.at, task.priority))


def renewal_revives(task: Task | None, lease: Lease) -> str:
    if task is not None and task.state == "pending" and task.attempt == lease.attempt:
        return "held"
    return changes.judge_renewal(task, lease)


def renewal_ignores_the_lease(task: Task | None, lease: Lease) -> str:
    if task is not None and task.state == "running":
        return "held"
    return changes.judge_renewal(task, lease)


def renewal_hides_cancellation(task: Task | None, lease: Lease) -> str:
    answer = changes.judge_renewal(task, lease)
    return "held" if answer == "cancel_asked" else answer


def renewal_clears_progress(task: Task, lease: Lease, now: datetime, ttl: float) -> Task:
    after = apply_renewal(task, lease, now, ttl)
    return replace(after, raw_progress=NULL) if lease.raw_progress is None else after


def replay_resets_the_attempt(task: Task, amendment: Amendment) -> Task:
    after = apply_amendment(task, amendment)
    return replace(after, attempt=0) if task.ended and after.state == "pending" else after


def replay_keeps_the_rank(task: Task, amendment: Amendment) -> Task:
    return replace(apply_amendment(task, amendment), rank=task.rank)


def replay_keeps_the_request(task: Task, amendment: Amendment) -> Task:
    return replace(
        apply_amendment(task, amendment), cancel_requested=task.cancel_requested or amendment.cancel_requested
    )


JUDGE = "qo.stores.state.judge_settlement"
APPLY = "qo.stores.state.apply_settlement"
patched(
    "no lease guard",
    JUDGE,
    no_lease_guard,
    "fencing.wrong_lease",
    "fencing.stale_after_two_attempts",
    "races.stale_settle",
)
patched("no attempt guard", JUDGE, no_attempt_guard, "fencing.wrong_attempt")
patched(
    "settle overwrites a cancellation",
    JUDGE,
    no_cancel_guard,
    "settle.cancellation_not_known",
    "expire.cancellation_not_known",
    "races_outside.cancel_against_settle",
)
patched(
    "expire of a renewed lease",
    JUDGE,
    no_expiry_guard,
    "expire.renewed_meanwhile",
    "expire.not_run_out",
    "renew.seen_by_others",
    "races.renew_against_expire",
)
patched("repeated settle is lost", JUDGE, repeat_is_lost, "fencing.repeated", "races.settle_repeated_at_once")
patched("repeated settle is written again", JUDGE, repeat_is_written_again, "fencing.repeated")
patched(
    "expiry tells the old holder written",
    APPLY,
    expiry_counts_as_settled,
    "expire.old_holder_is_told",
    "fencing.stale_after_two_attempts",
    "expire.remembers_who_settled_before",
)
patched("settle leaves the lease", APPLY, settle_leaves_the_lease, "settle.completes", "expire.first_loss")
patched("settle writes whole records", APPLY, settle_resets_progress, "renew.progress_stays_after_the_end")
patched("a retry goes to the end", APPLY, retry_takes_a_new_rank, "order.a_retry_keeps_its_place")
patched("renew revives a lost lease", "qo.stores.state.judge_renewal", renewal_revives, "renew.lost_to_another")
patched(
    "renew ignores the lease",
    "qo.stores.state.judge_renewal",
    renewal_ignores_the_lease,
    "renew.wrong_lease",
    "renew.wrong_attempt",
)
patched(
    "renew hides a cancellation",
    "qo.stores.state.judge_renewal",
    renewal_hides_cancellation,
    "renew.tells_of_a_cancellation",
)
patched("renew clears progress", "qo.stores.state.apply_renewal", renewal_clears_progress, "renew.carries_progress")
patched(
    "attempt reset on replay",
    "qo.stores.state.apply_amendment",
    replay_resets_the_attempt,
    "amend.replays_an_ended_task",
    "read.history_is_a_chain",
)
patched(
    "replay keeps its rank", "qo.stores.state.apply_amendment", replay_keeps_the_rank, "order.a_replay_goes_to_the_end"
)
patched(
    "replay keeps the cancellation",
    "qo.stores.state.apply_amendment",
    replay_keeps_the_request,
    "amend.replay_forgets_the_cancellation",
)
patched("capabilities ignored", "qo.stores.state.fits", lambda *_: True, "claim.only_what_it_is_capable_of")
patched(
    "capabilities must be equal",
    "qo.stores.state.fits",
    lambda requires, has: set(requires) == has,
    "claim.only_what_it_is_capable_of",
)


# What lifecycle decides.


def _retries(limit: Callable[[Task], int]) -> Callable[..., Settlement]:
    def fail(task: Task, *rest: Any) -> Settlement:
        return _right_fail(replace(task, max_retries=limit(task)), *rest)

    return fail


def loss_is_a_failure(task: Task, now: datetime, chance: float, max_losses: int = 10) -> Settlement:
    return replace(_right_expire(task, now, chance, max_losses), failures=task.failures + 1)


def expiry_forgets_cancellation(task: Task, now: datetime, chance: float, max_losses: int = 10) -> Settlement:
    settlement = _right_expire(replace(task, cancel_requested=False), now, chance, max_losses)
    return replace(settlement, cancel_requested=task.cancel_requested)


_right_fail, _right_expire = lifecycle._fail, lifecycle.expire  # pyright: ignore[reportPrivateUsage]
RETRIES = "settle.fails_when_retries_are_used_up"
patched("one retry too many", "qo.lifecycle._fail", _retries(lambda task: task.max_retries + 1), RETRIES)
patched("one retry too few", "qo.lifecycle._fail", _retries(lambda task: task.max_retries - 1), RETRIES)
patched("loss counted as failure", "qo.lifecycle.expire", loss_is_a_failure, "expire.first_loss")
patched(
    "expiry forgets a cancellation", "qo.lifecycle.expire", expiry_forgets_cancellation, "expire.cancelled_while_lost"
)

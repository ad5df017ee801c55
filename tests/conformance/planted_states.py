"""Planted bugs in the verbs of a store, as states with one method changed."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace
from tests.conformance.planted import PlantedHarness, planted

from qo.changes import Amendment
from qo.clock import micros
from qo.errors import CorruptRecord
from qo.ordering import patience
from qo.records import NO_CONTROLS, Controls, Kind
from qo.stores.paging import matches
from qo.stores.protocol import Claimed, Corrupt, Filter, Page, Sort, Stats, Store, Submitted, Want
from qo.stores.state import QueueState
from qo.task import STATES, Lane, Task

# Submit and keys.


@planted("submit.key_window_passed", "races.one_free_key_for_many", "submit.deleting_a_former_holder")
class KeyWindowIgnored(QueueState):
    def _submit_one(self, task, now):
        return super()._submit_one(task, now - timedelta(days=1000))


@planted("submit.key_outlives_the_run")
class KeyGoneWithTheRun(QueueState):
    def _submit_one(self, task, now):
        holder = self.tasks.get(self.keys.get((task.queue, task.key or ""), ""))
        if holder and holder.ended:
            del self.keys[task.queue, task.key or ""]
        return super()._submit_one(task, now)


@planted("submit.keys_belong_to_a_queue")
class KeysOfAllQueues(QueueState):
    def _submit_one(self, task, now):
        for (_, key), id in list(self.keys.items()):
            if key == task.key:
                self.keys.setdefault((task.queue, key), id)
        return super()._submit_one(task, now)


@planted("submit.deleting_frees_the_key", "purge.with_all_that_belongs_to_them")
class DeleteKeepsTheKey(QueueState):
    def _submit_one(self, task, now):
        if task.key and (task.queue, task.key) in self.keys and self.keys[task.queue, task.key] not in self.tasks:
            return Submitted(task, "key_held")
        return super()._submit_one(task, now)

    def _remove(self, task):
        keys = dict(self.keys)
        super()._remove(task)
        self.keys = keys


@planted("submit.repeated_late", "submit.one_id_twice_in_a_call")
class SubmitOverwrites(QueueState):
    def _submit_one(self, task, now):
        answer = super()._submit_one(task, now)
        if answer.outcome == "id_exists":
            self.tasks[task.id] = task
        return answer


# Claim.


class Choosy(QueueState):
    """Chooses by a key of its own among all that may run."""

    def key(self, task: Task) -> Any:
        return task.rank, task.id

    def _choose(self, lanes: list[Lane], want: Want) -> Iterator[Task]:
        found = sorted(super()._choose(lanes, replace(want, limit=10**6)), key=self.key)
        for task in found[want.limit :]:
            self._make_ready(task)
        return iter(found[: want.limit])


@planted("order.higher_levels_first", "order.low_overtakes_high_after_30_minutes", "order.smallest_rank_first")
class FirstInFirstOut(Choosy):
    def key(self, task):
        return task.created_at, task.id


@planted("order.low_overtakes_high_after_30_minutes", "order.medium_overtakes_high_after_20_minutes")
class NoAgeing(Choosy):
    def key(self, task):
        return patience(task.priority), task.rank, task.id


@planted("order.first_in_first_out")
class LastInFirstOut(Choosy):
    def key(self, task):
        return -task.rank, task.id


@planted("order.ties_by_id")
class TiesByInsertion(Choosy):
    def key(self, task):
        return task.rank, list(self.tasks).index(task.id)


@planted("order.across_lanes")
class LaneAfterLane(Choosy):
    def key(self, task):
        return task.lane, task.rank, task.id


@planted("claim.at_most_the_limit")
class LimitIgnored(QueueState):
    def _choose(self, lanes, want):
        return super()._choose(lanes, replace(want, limit=want.limit + 1))


@planted("claim.room_by_type", "claim.room_is_shared_by_the_lanes_of_a_type")
class RoomIgnored(QueueState):
    def _choose(self, lanes, want):
        return super()._choose(lanes, replace(want, room={}))


@planted("claim.room_is_shared_by_the_lanes_of_a_type")
class RoomOfEachLane(QueueState):
    def _choose(self, lanes, want):
        left = want.limit
        for lane in lanes:
            for task in super()._choose([lane], replace(want, limit=left)):
                left -= 1
                yield task


@planted("claim.only_types_asked_for")
class TypesIgnored(QueueState):
    def claim(self, want, now):
        return super().claim(replace(want, types=None), now)


@planted("claim.only_queues_asked_for")
class QueuesIgnored(QueueState):
    def claim(self, want, now):
        return super().claim(replace(want, queues=tuple({task.queue for task in self.tasks.values()})), now)


@planted("claim.paused_queue", "claim.paused_type", "claim.pause_reaches_every_store")
class PauseIgnored(QueueState):
    def _controls(self, queue: str) -> Controls:
        return NO_CONTROLS


@planted("claim.paused_type")
class PausedTypesIgnored(QueueState):
    def _controls(self, queue: str) -> Controls:
        return replace(super()._controls(queue), paused_types=frozenset())


@planted("claim.repeated_with_the_same_lease", "claim.repeated_by_another_store")
class RepeatTakesMore(QueueState):
    def claim(self, want, now):
        held = self.running.pop(want.lease_id, set())
        claimed = super().claim(want, now)
        self.running[want.lease_id] |= held
        return replace(claimed, tasks=[*(self.tasks[id] for id in sorted(held)), *claimed.tasks])


@planted("due.delayed_is_not_claimed", "due.backing_off_is_not_claimed", "due.snoozed_is_not_claimed")
class ClaimedEarly(QueueState):
    def _write(self, before, after, now, **rest):
        super()._write(before, after, now + timedelta(days=1), **rest)


@planted("due.backing_off_is_not_in_the_way", "due.delayed_is_not_in_the_way")
class WaitingInTheWay(QueueState):
    def _choose(self, lanes, want):
        for task in super()._choose(lanes, want):
            waiting = [t.rank for t in self.tasks.values() if t.state == "pending" and t.available_at > t.updated_at]
            if waiting and min(waiting) < task.rank:
                self._make_ready(task)
                return
            yield task


@planted("due.becomes_ready_when_due", "due.a_retry_that_is_due_keeps_its_rank")
class NeverDue(QueueState):
    def _promote(self, lanes, now):
        pass


@planted("due.says_when_the_next_is_due", "due.says_it_beside_ready_tasks")
class NextDueMissing(QueueState):
    def _next_due(self, lanes):
        return None


@planted("due.only_what_this_worker_can_run")
class NextDueOfOthers(QueueState):
    def _next_due(self, lanes):
        return super()._next_due(list(self.delayed))


# Amend, history, reading.


@planted("amend.changed_by_a_claim", "amend.wrong_version", "races_outside.amendments_at_once")
class VersionIgnored(QueueState):
    def amend(self, amendments, now):
        known = [
            replace(each, version=task.version) if (task := self.tasks.get(each.id)) else each for each in amendments
        ]
        return super().amend(known, now)


@planted("settle.many_at_once")
class OneSpoilsTheBatch(QueueState):
    def settle(self, settlements, now):
        answers = []
        for each in settlements:
            answers.append("lost" if "lost" in answers else super().settle([each], now)[0])
        return answers


@planted("amend.writes_history", "read.history_is_a_chain")
class HistoryLineMissing(QueueState):
    def _write(self, before, after, now, **rest):
        super()._write(before, after, now, **rest)
        if before is not None and before.state == after.state:
            self.histories[after.id].pop()


@planted("settle.keeps_the_whole_error", "expire.writes_history")
class HistoryWithoutErrors(QueueState):
    def _write(self, before, after, now, *, actor=None, error=None):
        super()._write(before, after, now, actor=actor)


@planted("amend.deletes", "amend.id_of_a_deleted_task")
class HistoryStays(QueueState):
    def _remove(self, task):
        lines = self.histories[task.id]
        super()._remove(task)
        self.histories[task.id] = lines


@planted("read.stats_follow_every_verb", "read.stats_by_state_and_type")
class StatsDrift(QueueState):
    def stats(self, queue: str, now: datetime) -> Stats:
        stats = super().stats(queue, now)
        return replace(stats, completed=stats.completed + stats.archived)


@planted("read.stats_ready_and_delayed")
class StatsForgetDelays(QueueState):
    def stats(self, queue: str, now: datetime) -> Stats:
        return super().stats(queue, now + timedelta(days=1))


@planted("purge.never_live_tasks")
class PurgeTakesLiveTasks(QueueState):
    def purge(self, filter: Filter, limit: int) -> int:
        gone = [task for task in self.tasks.values() if matches(task, filter)][:limit]
        for task in gone:
            self._remove(task)
        return len(gone)


@planted("purge.ended_tasks", "find.everything")
class ArchivedIsListed(QueueState):
    def purge(self, filter, limit):
        return super().purge(_with_archived(filter), limit)

    def find(self, filter, sort, limit, cursor, offset, total):
        return super().find(_with_archived(filter), sort, limit, cursor, offset, total)


def _with_archived(filter: Filter) -> Filter:
    return filter if filter.states else replace(filter, states=STATES)


@planted("find.pages_under_ties")
class CursorSkipsTies(QueueState):
    def find(self, filter: Filter, sort: Sort, limit: int, cursor: str | None, offset: int, total: bool) -> Page:
        page = super().find(filter, sort, limit, cursor, offset, total)
        if sort != "ended" or not cursor:
            return page
        moment = int(cursor.split(":")[1])
        return replace(page, tasks=[t for t in page.tasks if t.completed_at and micros(t.completed_at) < moment])


@planted("find.page_by_page", "find.offset_and_total")
class CursorRepeats(QueueState):
    def find(self, filter, sort, limit, cursor, offset, total):
        page = super().find(filter, sort, limit, cursor, max(0, offset - 1) if cursor else offset, total)
        return page if not cursor or offset else replace(page, tasks=[self.tasks[cursor.split(":")[-1]], *page.tasks])


@planted("records.only_from_the_version_known", "records.create_only", "races_outside.records_at_once")
class RecordVersionIgnored(QueueState):
    def put_record(self, kind: Kind, key, value, version, now):
        return super().put_record(kind, key, value, -1, now)


# A damaged record: a state that handles it, and one that does not.


class Damaged(QueueState):
    """Can hold records that cannot be read."""

    damaged: set[str]

    def __init__(self) -> None:
        super().__init__()
        self.damaged = set()

    def claim(self, want: Want, now: datetime) -> Claimed:
        claimed = super().claim(want, now)
        bad = [self._unreadable(task) for task in claimed.tasks if task.id in self.damaged]
        return replace(claimed, tasks=[t for t in claimed.tasks if t.id not in self.damaged], corrupt=bad)

    def expired(self, limit: int, now: datetime) -> list[Task | Corrupt]:
        found = super().expired(limit, now)
        return [self._unreadable(task) if task.id in self.damaged else task for task in found]

    def get(self, ids: Sequence[str]) -> list[Task | CorruptRecord | None]:
        return [CorruptRecord("no JSON") if id in self.damaged else self.tasks.get(id) for id in ids]

    def find(self, filter: Filter, sort: Sort, limit: int, cursor: str | None, offset: int, total: bool) -> Page:
        page = super().find(filter, sort, limit, cursor, offset, total)
        good, bad = ([t for t in page.tasks if (t.id in self.damaged) == flag] for flag in (False, True))
        return replace(page, tasks=good, corrupt=[task.id for task in bad])

    def _unreadable(self, task: Task | Corrupt) -> Corrupt:
        return Corrupt(id=task.id, lease_id=task.lease_id or "", attempt=task.attempt, message="no JSON")


class DamagedAndHidden(Damaged):
    """Keeps silent about damaged records, and loses them."""

    def claim(self, want: Want, now: datetime) -> Claimed:
        return replace(super().claim(want, now), corrupt=[])

    def expired(self, limit: int, now: datetime) -> list[Task | Corrupt]:
        return [each for each in super().expired(limit, now) if isinstance(each, Task)]

    def find(self, filter: Filter, sort: Sort, limit: int, cursor: str | None, offset: int, total: bool) -> Page:
        return replace(super().find(filter, sort, limit, cursor, offset, total), corrupt=[])


class DamagingHarness(PlantedHarness):
    """Can damage a record."""

    async def corrupt(self, store: Store, task_id: str) -> bool:
        state = store._shared.state  # pyright: ignore
        state.damaged.add(task_id)
        return True


# Only the model finds these: they need a history no scenario has.


class LossesSurviveReplay(QueueState):
    def amend(self, amendments: Sequence[Amendment], now: datetime):
        kept = [replace(each, losses=task.losses) if (task := self.tasks.get(each.id)) else each for each in amendments]
        return super().amend(kept, now)


class ThirdAttemptJumpsTheQueue(Choosy):
    def key(self, task):
        return (0 if task.attempt >= 2 and task.failures else 1), task.rank, task.id


class SnoozeAfterLossCounts(QueueState):
    def settle(self, settlements, now):
        changed = [
            replace(each, failures=each.failures + 1)
            if each.losses and each.error is None and each.state == "pending"
            else each
            for each in settlements
        ]
        return super().settle(changed, now)


MODEL_BUGS = (LossesSurviveReplay, ThirdAttemptJumpsTheQueue, SnoozeAfterLossCounts)

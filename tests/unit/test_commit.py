"""Group commit: what is batched, who is answered when, and what an error of one does to the others."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from tests.unit.commit_tools import (
    NOW,
    After,
    Before,
    QuickClock,
    ScriptedStore,
    completed,
    lease,
    running,
    task,
    turns,
)

from qo import commit as commit_module
from qo import lifecycle
from qo.clock import SYSTEM
from qo.commit import MOST_BYTES, MOST_ITEMS, REPEATS, GroupCommit
from qo.errors import Contention, InvalidInput, OutcomeUnknown, QoError, SchemaMismatch, StoreError, Unavailable
from qo.stores.memory import MemoryStore
from qo.stores.protocol import Submitted
from qo.task import Task


def grouped(store: ScriptedStore) -> GroupCommit:
    return GroupCommit(store.store, QuickClock())


def outcomes(answers: Sequence[Submitted | QoError]) -> list[str]:
    return [answer.outcome if isinstance(answer, Submitted) else type(answer).__name__ for answer in answers]


async def start(group: GroupCommit, tasks: Sequence[Task]) -> list["asyncio.Task[Submitted]"]:
    """A caller for each task, all of them waiting."""
    callers = [asyncio.create_task(group.submit(each)) for each in tasks]
    await turns()
    return callers


# Batches.


async def test_first_goes_at_once_the_rest_together() -> None:
    """The first call goes alone and at once; what arrives meanwhile shares the next one, in the order of arrival."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    tasks = [task() for _ in range(6)]
    (first,) = await start(group, tasks[:1])
    call = await store.next_call()
    assert call.ids == [tasks[0].id]
    rest = await start(group, tasks[1:])
    assert len(store.calls) == 1
    call.let_go()
    assert (await first).task.id == tasks[0].id
    call = await store.next_call()
    assert call.ids == [each.id for each in tasks[1:]]
    call.let_go()
    answers = await asyncio.gather(*rest)
    assert [answer.task.id for answer in answers] == [each.id for each in tasks[1:]]
    assert set(outcomes(answers)) == {"created"}


async def test_no_added_latency_when_alone() -> None:
    """One call after the other: each is a store call of its own, and no clock is asked to wait."""
    clock = QuickClock()
    store = ScriptedStore()
    group = GroupCommit(store.store, clock)
    for _ in range(3):
        await group.submit(task())
    assert [len(call.items) for call in store.calls] == [1, 1, 1]
    assert clock.sleeps == 0


async def test_answered_only_after_the_store_call_returned() -> None:
    """Nobody is answered while the call that carries the item is under way."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    (first,) = await start(group, [task()])
    others = await start(group, [task(), task()])
    (await store.next_call()).let_go()
    await first
    call = await store.next_call()
    await turns(50)
    assert not any(caller.done() for caller in others)
    call.let_go()
    await asyncio.gather(*others)


async def test_capped_by_count() -> None:
    """A batch holds at most MOST_ITEMS; the rest go in the next."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    callers = await start(group, [task() for _ in range(MOST_ITEMS * 2 + 11)])
    sizes: list[int] = []
    while sum(sizes) < len(callers):
        call = await store.next_call()
        sizes.append(len(call.items))
        call.let_go()
        await turns()
    await asyncio.gather(*callers)
    assert sizes == [MOST_ITEMS, MOST_ITEMS, 11]


async def test_capped_by_bytes() -> None:
    """A batch holds at most MOST_BYTES of data; one item larger than that goes alone."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    third, huge = MOST_BYTES // 3, MOST_BYTES + 1
    callers = await start(group, [task(size=size) for size in (third, third, third, huge, third, 10)])
    sizes: list[int] = []
    while sum(sizes) < len(callers):
        call = await store.next_call()
        sizes.append(len(call.items))
        call.let_go()
        await turns()
    await asyncio.gather(*callers)
    assert sizes == [2, 1, 1, 2]


async def test_many_from_one_caller_are_cut_and_keep_their_order() -> None:
    """submit_many of more than fit is written in several calls and answered in the order given."""
    store = ScriptedStore()
    tasks = [task() for _ in range(MOST_ITEMS + 5)]
    answers = await grouped(store).submit_many(tasks)
    assert [answer.task.id for answer in answers if isinstance(answer, Submitted)] == [each.id for each in tasks]
    assert [len(call.items) for call in store.calls] == [MOST_ITEMS, 5]


async def test_nothing_to_do_asks_nobody() -> None:
    """Empty lists are answered without a store call."""
    store = ScriptedStore()
    group = grouped(store)
    assert await group.submit_many([]) == []
    assert await group.settle_many([]) == []
    assert await group.renew([], 20.0) == []
    assert store.calls == []


# Callers that leave.


@pytest.mark.parametrize("when", ["waiting", "under way"])
async def test_cancelled_caller_takes_nothing_from_the_others(when: str) -> None:
    """A caller that is cancelled ends at once; its item is written, and the others are answered as ever."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    tasks = [task() for _ in range(4)]
    (first,) = await start(group, tasks[:1])
    rest = await start(group, tasks[1:])
    call = await store.next_call()
    gone = rest[1]
    if when == "under way":
        call.let_go()
        call = await store.next_call()
    gone.cancel()
    await turns()
    assert gone.cancelled()
    if when == "waiting":
        call.let_go()
        call = await store.next_call()
    assert call.ids == [each.id for each in tasks[1:]]
    call.let_go()
    answers = await asyncio.gather(first, rest[0], rest[2])
    assert outcomes(answers) == ["created"] * 3
    assert store.created == [each.id for each in tasks]


async def test_first_caller_does_not_own_the_call() -> None:
    """Cancelling the caller that started the runner leaves the runner alone."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    (first,) = await start(group, [task()])
    (second,) = await start(group, [task()])
    first.cancel()
    (await store.next_call()).let_go()
    (await store.next_call()).let_go()
    assert (await second).outcome == "created"
    assert len(store.created) == 2


# Errors.


async def test_item_errors_reach_only_their_callers() -> None:
    """An item that the store refuses fails its own caller and nobody else."""
    store = ScriptedStore()
    group = grouped(store)
    tasks = [task() for _ in range(5)]
    store.bad_items[tasks[3].id] = InvalidInput("not this one")
    answers = await asyncio.gather(*(group.submit(each) for each in tasks), return_exceptions=True)
    assert [isinstance(answer, InvalidInput) for answer in answers] == [False, False, False, True, False]
    assert store.created == [tasks[index].id for index in (0, 1, 2, 4)]


@pytest.mark.parametrize("culprits", [{0}, {7}, {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8}])
async def test_spoiled_batch_is_bisected(culprits: set[int]) -> None:
    """Data that spoils a whole call fails its own caller; every other item is written exactly once."""
    store = ScriptedStore()
    tasks = [task() for _ in range(9)]
    store.spoilers = {tasks[index].id for index in culprits}
    answers = await grouped(store).submit_many(tasks)
    assert {index for index, answer in enumerate(answers) if isinstance(answer, InvalidInput)} == culprits
    assert sorted(store.created) == sorted(each.id for each in tasks if each.id not in store.spoilers)
    assert {answer.outcome for answer in answers if isinstance(answer, Submitted)} <= {"created"}


async def test_bisecting_takes_few_calls() -> None:
    """One culprit among 500 is found in two calls for each halving."""
    store = ScriptedStore()
    tasks = [task() for _ in range(500)]
    store.spoilers = {tasks[321].id}
    await grouped(store).submit_many(tasks)
    assert len(store.calls) <= 1 + 2 * 9


async def test_store_error_while_bisecting_is_that_half_s() -> None:
    """A store that goes away between the halves fails only the half that was not written."""
    store = ScriptedStore()
    tasks = [task() for _ in range(4)]
    store.spoilers = {tasks[0].id}
    # Whole, first half, culprit, its neighbour, then the second half.
    store.script.extend([None, None, None, None, Before(Unavailable("gone"))])
    answers = await grouped(store).submit_many(tasks)
    assert outcomes(answers) == ["InvalidInput", "created", "Unavailable", "Unavailable"]
    assert store.created == [tasks[1].id]


@pytest.mark.parametrize("error", [Unavailable("away"), Contention("busy"), SchemaMismatch("new"), OSError("odd")])
async def test_store_error_goes_to_all_of_its_batch(error: Exception) -> None:
    """What fails the call fails every caller of that batch, once, and the next batch goes on."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    (first,) = await start(group, [task()])
    second = await start(group, [task(), task()])
    store.script.extend([None, Before(error), None])
    (await store.next_call()).let_go()
    await first
    call = await store.next_call()
    third = await start(group, [task()])
    call.let_go()
    failed = await asyncio.gather(*second, return_exceptions=True)
    assert [type(each) for each in failed] == [type(error)] * 2
    (await store.next_call()).let_go()
    assert outcomes(await asyncio.gather(*third)) == ["created"]
    assert len(store.calls) == 3


async def test_failed_later_piece_does_not_hide_the_first() -> None:
    """When the second batch of a submit_many fails, its items say so and those of the first say created."""
    store = ScriptedStore()
    store.script.extend([None, Before(Unavailable("away"))])
    answers = await grouped(store).submit_many([task() for _ in range(MOST_ITEMS * 2 + 1)])
    assert outcomes(answers) == ["created"] * MOST_ITEMS + ["Unavailable"] * (MOST_ITEMS + 1)
    assert len(store.calls) == 2


async def test_failed_first_piece_is_raised() -> None:
    """When nothing was written the error is raised."""
    store = ScriptedStore()
    store.script.append(Before(Unavailable("away")))
    with pytest.raises(Unavailable, match="away"):
        await grouped(store).submit_many([task() for _ in range(3)])


# Unknown outcomes.


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("fate", [After(OutcomeUnknown("cut")), Before(OutcomeUnknown("cut"))])
async def test_unknown_outcome_is_repeated(fate: Before, key: str | None) -> None:
    """A submit whose reply was lost is repeated with the same ids and answered "created", written or not."""
    store = ScriptedStore()
    one = task(key)
    store.script.extend([fate, fate])
    answer = await grouped(store).submit(one)
    assert (answer.outcome, answer.task.id) == ("created", one.id)
    assert [call.ids for call in store.calls] == [[one.id]] * 3


async def test_existing_id_without_a_lost_reply_is_told() -> None:
    """A task that was there before the first try is answered "id_exists"."""
    store = ScriptedStore()
    one = task()
    group = grouped(store)
    await group.submit(one)
    assert (await group.submit(one)).outcome == "id_exists"


async def test_held_key_after_a_lost_reply_is_told() -> None:
    """A repeat does not turn "key_held" by another task into "created"."""
    store = ScriptedStore()
    group = grouped(store)
    holder = (await group.submit(task("k"))).task
    store.script.append(After(OutcomeUnknown("cut")))
    answer = await group.submit(task("k"))
    assert (answer.outcome, answer.task.id) == ("key_held", holder.id)


async def test_unknown_outcome_is_told_in_the_end() -> None:
    """After REPEATS repeats the callers are told that the outcome is unknown."""
    store = ScriptedStore()
    store.script.extend([Before(OutcomeUnknown("cut"))] * 99)
    with pytest.raises(OutcomeUnknown):
        await grouped(store).submit(task())
    assert len(store.calls) == REPEATS + 1


@pytest.mark.parametrize("error", [Unavailable("refused"), Contention("busy")])
async def test_unavailable_after_unknown_is_no_promise(error: StoreError) -> None:
    """A repeat that fails for certain does not make the first try's unknown outcome certain: it is repeated too, and in
    the end the callers hear OutcomeUnknown."""
    store = ScriptedStore()
    store.script.extend([After(OutcomeUnknown("cut")), Before(error)])
    assert (await grouped(store).submit(task())).outcome == "created"
    store.script.extend([After(OutcomeUnknown("cut")), *[Before(error)] * 99])
    with pytest.raises(OutcomeUnknown):
        await grouped(store).submit(task())


async def test_unknown_outcome_of_the_other_verbs_is_repeated() -> None:
    """settle, amend and renew are repeated too, and answered as if nothing had happened."""
    store = ScriptedStore()
    group = grouped(store)
    first, second = await running(store, 2)
    pending = task()
    await store.inner.submit([pending])
    cancellation = lifecycle.cancel(pending, NOW)
    assert cancellation is not None
    store.script.append(After(OutcomeUnknown("cut")))
    assert await group.settle(completed(first)) == "written"
    store.script.append(After(OutcomeUnknown("cut")))
    assert await group.renew([lease(second)], 20.0) == ["held"]
    store.script.append(Before(OutcomeUnknown("cut")))
    assert await group.amend(cancellation) == "written"
    assert [call.verb for call in store.calls] == ["settle"] * 2 + ["renew 20"] * 2 + ["amend"] * 2


# Keys.


async def test_keyed_submits_go_apart_and_sorted() -> None:
    """Tasks with keys go in batches of their own, in the order of queue and key; plain ones do not wait for them."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    opener = task("z")
    (first,) = await start(group, [opener])
    keyed = [task("b"), task("c", queue="a"), task("a"), task("b", queue="a")]
    callers = await start(group, keyed)
    plain = await start(group, [task()])
    first_call, plain_call = await store.next_call(), await store.next_call()
    assert first_call.ids == [opener.id]
    assert plain_call.items[0].key is None
    plain_call.let_go()
    await asyncio.gather(*plain)  # answered while a keyed call is under way
    first_call.let_go()
    call = await store.next_call()
    assert [(each.queue, each.key) for each in call.items] == [
        ("a", "b"),
        ("a", "c"),
        ("default", "a"),
        ("default", "b"),
    ]
    call.let_go()
    answers = await asyncio.gather(first, *callers)
    assert [answer.task.id for answer in answers] == [opener.id, *(each.id for each in keyed)]


async def test_twins_share_the_answer() -> None:
    """Of several tasks with one key the first goes to the store; the others are told that it holds the key."""
    store = ScriptedStore()
    twins = [task("k") for _ in range(4)]
    answers = await grouped(store).submit_many(twins)
    assert outcomes(answers) == ["created", "key_held", "key_held", "key_held"]
    assert {answer.task.id for answer in answers if isinstance(answer, Submitted)} == {twins[0].id}
    assert [call.ids for call in store.calls] == [[twins[0].id]]


async def test_same_key_in_two_queues_is_no_twin() -> None:
    """Keys are a queue's own."""
    answers = await grouped(ScriptedStore()).submit_many([task("k"), task("k", queue="other")])
    assert outcomes(answers) == ["created", "created"]


async def test_twin_of_bad_data_is_written() -> None:
    """What the store has against the first of two twins it does not have against the second."""
    store = ScriptedStore()
    bad, fine, late = task("k"), task("k"), task("k")
    store.bad_items[bad.id] = InvalidInput("not this one")
    answers = await grouped(store).submit_many([bad, fine, late, task("other")])
    assert outcomes(answers) == ["InvalidInput", "created", "key_held", "created"]
    assert isinstance(answers[2], Submitted) and answers[2].task.id == fine.id


async def test_twins_of_a_spoiled_batch() -> None:
    """Bisecting keyed tasks ends with the culprit refused and its twin created."""
    store = ScriptedStore()
    bad, fine, other = task("k"), task("k"), task("a")
    store.spoilers = {bad.id}
    assert outcomes(await grouped(store).submit_many([bad, other, fine])) == ["InvalidInput", "created", "created"]
    assert sorted(store.created) == sorted([fine.id, other.id])


async def test_mixed_keyed_and_plain_keep_their_order() -> None:
    """submit_many answers in the order given, whichever way each task went."""
    store = ScriptedStore()
    tasks = [task(), task("b"), task(), task("a"), task("b"), task()]
    answers = await grouped(store).submit_many(tasks)
    assert outcomes(answers) == ["created", "created", "created", "created", "key_held", "created"]
    held = {4: tasks[1].id}
    assert [answer.task.id for answer in answers if isinstance(answer, Submitted)] == [
        held.get(index, each.id) for index, each in enumerate(tasks)
    ]


@pytest.mark.parametrize(("failing", "expected"), [(0, "plain"), (1, "keyed")])
async def test_mixed_with_one_half_failing(failing: int, expected: str) -> None:
    """When the store fails one half of a mixed submit_many, the other half still gets its answers."""
    store = ScriptedStore()
    fates: list[Before | None] = [None, None]
    fates[failing] = Before(Unavailable("away"))
    store.script.extend(fates)
    answers = await grouped(store).submit_many([task(), task("a"), task()])
    bad, fine = "Unavailable", "created"
    assert outcomes(answers) == ([bad, fine, bad] if expected == "plain" else [fine, bad, fine])


async def test_mixed_with_both_halves_failing() -> None:
    """When nothing was written the error is raised."""
    store = ScriptedStore()
    store.script.extend([Before(Unavailable("away"))] * 2)
    with pytest.raises(Unavailable):
        await grouped(store).submit_many([task(), task("a")])


# Several verbs.


async def test_verbs_do_not_wait_for_each_other() -> None:
    """A call of one verb under way holds up no other verb, nor a renewal with another time."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    tasks = await running(store, 3)
    pending = task()
    await store.inner.submit([pending])
    cancellation = lifecycle.cancel(pending, NOW)
    assert cancellation is not None
    callers = [
        asyncio.create_task(group.submit(task())),
        asyncio.create_task(group.submit(task("k"))),
        asyncio.create_task(group.settle(completed(tasks[0]))),
        asyncio.create_task(group.renew([lease(tasks[1])], 20.0)),
        asyncio.create_task(group.renew([lease(tasks[2])], 5.0)),
        asyncio.create_task(group.amend(cancellation)),
    ]
    calls = [await store.next_call() for _ in callers]
    assert sorted(call.verb for call in calls) == ["amend", "renew 20", "renew 5", "settle", "submit", "submit"]
    for call in calls:
        call.let_go()
    await asyncio.gather(*callers)


async def test_settlements_share_a_call() -> None:
    """Outcomes that arrive together are settled together, each caller getting the answer to its own."""
    store = ScriptedStore()
    group = grouped(store)
    tasks = await running(store, 4)
    stale = msgspec.structs.replace(completed(tasks[2]), lease_id="somebody else's")
    answers = await asyncio.gather(
        group.settle(completed(tasks[0])),
        group.settle_many([completed(tasks[1]), stale]),
        group.settle(completed(tasks[3])),
    )
    assert answers == ["written", ["written", "lost"], "written"]
    assert [len(call.items) for call in store.calls] == [4]


async def test_renewals_with_any_ttl_leave_nothing_behind() -> None:
    """Times are arbitrary numbers: a thousand different ones do not pile up."""
    store = ScriptedStore()
    group = grouped(store)
    (one,) = await running(store, 1)
    for ttl in range(1000):
        await group.renew([lease(one)], 20.0 + ttl / 7)
    assert len(group._renewals) == 0


# Closing.


async def test_close_writes_what_waits() -> None:
    """close returns when everything that was taken is written, also what waited behind a call under way."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    callers = await start(group, [task()])
    callers += await start(group, [task(), task("k")])
    closing = asyncio.create_task(group.close())
    await turns()
    assert not closing.done()
    for _ in range(3):
        (await store.next_call()).let_go()
    await closing
    assert all(caller.done() for caller in callers)
    assert len(store.created) == 3


async def test_closed_refuses_every_verb() -> None:
    """After close nothing is taken any more, by no verb and with no ttl, and nothing reaches the store."""
    store = ScriptedStore()
    group = grouped(store)
    one, two = await running(store, 2)
    cancellation = lifecycle.cancel(one, NOW)
    assert cancellation is not None
    await group.renew([lease(one)], 20.0)
    await group.close()
    await group.close()
    before = len(store.calls)
    for refused in (
        group.submit(task()),
        group.submit(task("k")),
        group.submit_many([task(), task("k")]),
        group.settle(completed(one)),
        group.settle_many([completed(two)]),
        group.renew([lease(one)], 20.0),
        group.renew([lease(one)], 21.0),
        group.amend(cancellation),
    ):
        with pytest.raises(Unavailable, match="closed"):
            await refused
    assert len(store.calls) == before


async def test_close_in_the_middle_of_many() -> None:
    """A submit_many that close cuts off says for each item whether it was written."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    tasks = [task() for _ in range(MOST_ITEMS + 2)]
    caller = asyncio.ensure_future(group.submit_many(tasks))
    call = await store.next_call()
    closing = asyncio.create_task(group.close())
    await turns()
    call.let_go()
    answers, _ = await asyncio.gather(caller, closing)
    assert outcomes(answers) == ["created"] * MOST_ITEMS + ["Unavailable"] * 2


async def test_torn_down_loop_cancels_the_callers() -> None:
    """When the runner itself is cancelled, as at the end of a loop, no caller waits for ever."""
    store = ScriptedStore(held=True)
    group = grouped(store)
    callers = await start(group, [task()])
    callers += await start(group, [task()])
    for running_task in asyncio.all_tasks():
        if running_task.get_name() == "qo-group-commit":
            running_task.cancel()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers)
    await group.close()


# Against a real store.


async def test_with_the_memory_store() -> None:
    """100 concurrent callers over the reference store: every task is created once and answered to its own caller."""
    store = MemoryStore()
    group = GroupCommit(store)
    tasks = [task(f"k{index % 7}" if index % 3 == 0 else None) for index in range(100)]
    answers = await asyncio.gather(*(group.submit(each) for each in tasks))
    for each, answer in zip(tasks, answers, strict=True):
        if each.key is None or answer.outcome == "created":
            assert (answer.outcome, answer.task.id) == ("created", each.id)
        else:
            assert (answer.outcome, answer.task.key) == ("key_held", each.key)
    created = {answer.task.id for answer in answers if answer.outcome == "created"}
    stats = await store.stats("default")
    assert stats.pending == len(created)
    await group.close()


def test_limits_are_sane() -> None:
    """The caps stay far below what an engine takes in one statement."""
    assert commit_module.MOST_ITEMS <= 1000
    assert commit_module.MOST_BYTES <= 16 * 1024 * 1024


async def test_key_without_a_window_has_no_twins() -> None:
    """Two tasks of a key that holds nothing are both created, in one batch as in two."""
    store = MemoryStore()
    commit = GroupCommit(store)
    now = store.now()
    pair = [
        lifecycle.submit(id=SYSTEM.new_id(), type="job", now=now, key="k", key_window=window) for window in (0.0, 0.0)
    ]
    answers = await commit.submit_many(pair)
    assert [answer.outcome for answer in answers if isinstance(answer, Submitted)] == ["created", "created"]
    await commit.close()

"""Amend: cancel, replay, archive, unarchive, delete; each only from the version it was decided on."""

from msgspec.structs import replace

from qo import lifecycle
from qo.changes import Amendment
from qo.outcomes import Returned
from qo.stores.protocol import Filter
from qo.task import Task
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, good, ids, raised, same
from qo.values import encode_value


@scenario
async def cancels_a_pending_task(bench: Bench) -> None:
    """A pending task is cancelled at once and never claimed."""
    task = await bench.submit()
    now = bench.now()
    assert await bench.amend(lifecycle.cancel(task, now, "ann")) == "written"
    ended = await bench.get(task.id)
    assert (ended.state, ended.completed_at, ended.updated_at) == ("cancelled", now, now)
    assert ended.error is not None and ended.error.reason == "cancelled"
    assert ended.version > task.version
    assert await bench.claim(5) == []


@scenario
async def cancels_waiting_tasks(bench: Bench) -> None:
    """Delayed and backing-off tasks are cancelled like ready ones."""
    delayed = await bench.submit("a", delay=HOUR)
    waiting = await bench.running("b")
    await bench.settle(waiting, raised(after=HOUR))
    for id in (delayed.id, waiting.id):
        assert await bench.cancel(id) == "written"
        assert (await bench.get(id)).state == "cancelled"
    claimed = await bench.ask(bench.want(5))
    assert (claimed.tasks, claimed.next_due) == ([], None)


@scenario
async def asks_a_running_task(bench: Bench) -> None:
    """Cancelling a running task is asked for; the attempt goes on under its lease."""
    task = await bench.running()
    assert await bench.cancel(task.id) == "written"
    asked = await bench.get(task.id)
    assert (asked.state, asked.cancel_requested) == ("running", True)
    assert (asked.lease_id, asked.attempt, asked.worker_id) == (task.lease_id, 1, task.worker_id)
    assert asked.lease_expires_at == task.lease_expires_at
    assert asked.completed_at is None


@scenario
async def replays_an_ended_task(bench: Bench) -> None:
    """A failed or cancelled task starts anew: counters reset, attempt and history kept."""
    for state in ("failed", "cancelled"):
        old = await bench.make(state, age=HOUR)
        steps = await bench.steps(old.id)
        now = bench.now()
        assert await bench.amend(lifecycle.replay(old, now)) == "written"
        new = await bench.get(old.id)
        assert (new.state, new.failures, new.losses, new.attempt) == ("pending", 0, 0, old.attempt)
        assert (new.error, new.completed_at, new.output) == (None, None, None)
        assert (new.available_at, new.scheduled_at, new.created_at) == (now, now, old.created_at)
        assert await bench.steps(old.id) == [*steps, (state, "pending")]
        again = await bench.claim_one()
        assert (again.id, again.attempt) == (old.id, old.attempt + 1)


@scenario
async def replays_a_completed_task_by_force(bench: Bench) -> None:
    """A completed task replayed by force loses its output and runs again."""
    old = await bench.make("completed")
    assert await bench.amend(lifecycle.replay(old, bench.now(), force=True)) == "written"
    assert (await bench.get(old.id)).output is None
    assert (await bench.claim_one()).attempt == 2


@scenario
async def replay_forgets_the_cancellation(bench: Bench) -> None:
    """A task cancelled while it ran and then replayed runs without the old request."""
    task = await bench.running()
    await bench.cancel(task.id)
    await bench.settle(await bench.get(task.id), Returned())
    assert await bench.amend(lifecycle.replay(await bench.get(task.id), bench.now())) == "written"
    again = await bench.claim_one()
    assert not again.cancel_requested
    assert await bench.settle(again, Returned()) == "written"
    assert (await bench.get(task.id)).state == "completed"


@scenario
async def replays_a_waiting_task(bench: Bench) -> None:
    """A delayed or backing-off task becomes available now; its counters stay."""
    delayed = await bench.submit("a", delay=HOUR)
    waiting = await bench.running("b")
    await bench.settle(waiting, raised(after=HOUR))
    for id in (delayed.id, waiting.id):
        assert await bench.amend(lifecycle.replay(await bench.get(id), bench.now())) == "written"
    claimed = {task.id: task for task in await bench.claim(5)}
    assert set(claimed) == {delayed.id, waiting.id}
    assert claimed[waiting.id].failures == 1


@scenario
async def archives_and_brings_back(bench: Bench) -> None:
    """An archived task keeps everything and comes back as what it was."""
    for state in ("completed", "failed", "cancelled"):
        task = await bench.make(state)
        assert await bench.amend(lifecycle.archive(task, bench.now())) == "written"
        away = await bench.get(task.id)
        assert (away.state, away.archived_from) == ("archived", state)
        assert (away.output, away.error, away.completed_at) == (task.output, task.error, task.completed_at)
        assert await bench.amend(lifecycle.unarchive(away, bench.now())) == "written"
        back = await bench.get(task.id)
        assert (back.state, back.archived_from) == (state, None)
        assert (back.output, back.error, back.completed_at) == (task.output, task.error, task.completed_at)
        assert (await bench.steps(task.id))[-2:] == [(state, "archived"), ("archived", state)]


@scenario
async def deletes(bench: Bench) -> None:
    """A deleted task is gone with its history, from every way of reading."""
    for state in ("completed", "failed", "cancelled", "archived"):
        task = await bench.make(state)
        assert await bench.amend(lifecycle.delete(task, bench.now())) == "written"
        assert await bench.gone(task.id)
        assert await bench.history(task.id) == []
        assert (await bench.store.find(Filter(states=(state,)))).tasks == []
        stats = await bench.store.stats("default")
        assert (stats.completed, stats.failed, stats.cancelled, stats.archived) == (0, 0, 0, 0)
    assert await bench.claim(5) == []


@scenario
async def id_of_a_deleted_task(bench: Bench) -> None:
    """After a delete the id is free, and the new task starts its own history."""
    task = await bench.make("completed")
    assert await bench.amend(lifecycle.delete(task, bench.now())) == "written"
    assert (await bench.send(bench.task(id=task.id))).outcome == "created"
    assert await bench.steps(task.id) == [(None, "pending")]
    assert (await bench.claim_one()).attempt == 1


@scenario
async def writes_history(bench: Bench) -> None:
    """Every amendment is a line of history that names who asked."""
    task = await bench.running()
    await bench.amend(lifecycle.cancel(task, bench.now(), "ann"))
    await bench.settle(await bench.get(task.id), Returned())
    await bench.amend(lifecycle.replay(await bench.get(task.id), bench.now(), "bob"))
    await bench.amend(lifecycle.cancel(await bench.get(task.id), bench.now()))
    lines = (await bench.history(task.id))[2:]
    assert [(line.was, line.became, line.actor) for line in lines] == [
        ("running", "running", "ann"),
        ("running", "cancelled", None),
        ("cancelled", "pending", "bob"),
        ("pending", "cancelled", None),
    ]
    assert [line.attempt for line in lines] == [1, 1, 1, 1]
    assert (lines[0].lease_id, lines[0].worker_id) == (task.lease_id, task.worker_id)
    assert (lines[2].lease_id, lines[3].lease_id) == (None, None)


async def refused(bench: Bench, amendment: Amendment | None) -> None:
    """The amendment must be answered by changed and change nothing."""
    assert amendment is not None
    before, steps = await bench.get(amendment.id), await bench.steps(amendment.id)
    assert await bench.amend(amendment) == "changed"
    assert same(await bench.get(amendment.id), before)
    assert await bench.steps(amendment.id) == steps


@scenario
async def changed_by_a_claim(bench: Bench) -> None:
    """A cancellation decided before the task was claimed is answered by changed: it must be decided anew."""
    task = await bench.submit()
    await bench.claim_one()
    await refused(bench, lifecycle.cancel(task, bench.now()))


@scenario
async def changed_by_a_settlement(bench: Bench) -> None:
    """A cancellation decided before the attempt was settled is answered by changed."""
    task = await bench.running()
    await bench.settle(task, Returned(encode_value(1)))
    await refused(bench, lifecycle.cancel(task, bench.now()))


@scenario
async def changed_by_an_expiry(bench: Bench) -> None:
    """A cancellation decided before the lease was expired is answered by changed."""
    task = await bench.running(ttl=0)
    await bench.expire(task)
    await refused(bench, lifecycle.cancel(task, bench.now()))


@scenario
async def changed_by_another(bench: Bench) -> None:
    """Of two amendments decided on the same version one is written, in any pair of verbs."""

    def verbs(task: Task) -> list[Amendment]:
        now = bench.now()
        replay, archive = lifecycle.replay(task, now), lifecycle.archive(task, now)
        assert replay is not None and archive is not None
        return [replay, archive]

    for first in (0, 1):
        for second in (0, 1):
            both = verbs(await bench.make("failed", f"type-{first}-{second}"))
            assert await bench.amend(both[first]) == "written"
            await refused(bench, both[second])
    task = await bench.make("failed", "last")
    delete = lifecycle.delete(task, bench.now())
    assert await bench.amend(verbs(task)[0]) == "written"
    await refused(bench, delete)


@scenario
async def wrong_version(bench: Bench) -> None:
    """A version that is not the stored one, older or newer, is answered by changed."""
    task = await bench.submit()
    amendment = lifecycle.cancel(task, bench.now())
    assert amendment is not None
    for version in (-1, task.version - 1, task.version + 1):
        await refused(bench, replace(amendment, version=version))


@scenario
async def unknown_task(bench: Bench) -> None:
    """An amendment of a task that is not there is answered by changed and makes none."""
    task = await bench.make("completed")
    for amendment in (lifecycle.delete(task, bench.now()), lifecycle.archive(task, bench.now())):
        assert amendment is not None
        ghost = replace(amendment, id=bench.ids.new_id())
        assert await bench.amend(ghost) == "changed"
        assert await bench.gone(ghost.id)


@scenario
async def many_at_once(bench: Bench) -> None:
    """Each amendment of a batch is answered in its place; a refused one does not spoil the others."""
    tasks = [await bench.submit() for _ in range(4)]
    batch = [lifecycle.cancel(task, bench.now(), "ann") for task in tasks]
    (taken,) = await bench.claim()
    assert taken.id == tasks[0].id
    assert all(batch)
    answers = good(await bench.store.amend([each for each in batch if each]))
    assert answers == ["changed", "written", "written", "written"]
    states = [(await bench.get(task.id)).state for task in tasks]
    assert states == ["running", "cancelled", "cancelled", "cancelled"]
    assert await bench.store.amend([]) == []
    assert ids(await bench.claim(5)) == []

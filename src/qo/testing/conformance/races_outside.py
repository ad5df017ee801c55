"""Races with those who change tasks from outside (cancel, replay, delete, purge); see `races` for the rest."""

from collections.abc import Coroutine
from typing import Any

from qo import lifecycle
from qo.changes import Amended, Settled
from qo.outcomes import Returned
from qo.stores.protocol import Filter
from qo.task import Task
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, failed_for_good, ids, raised, together
from qo.values import encode_value


@scenario
async def cancel_against_claim(bench: Bench) -> None:
    """A task is either cancelled or claimed; who cancelled too late is told to look again."""
    one, two = await bench.open_others(2)
    for _ in range(bench.harness.rounds):
        task = await bench.submit()
        racers: list[Coroutine[Any, Any, Amended | list[Task]]] = [
            bench.amend(lifecycle.cancel(task, bench.now()), store=one),
            bench.claim(store=two),
        ]
        cancelled, claimed = await together(racers)
        stored = await bench.get(task.id)
        if cancelled == "written":
            assert (claimed, stored.state) == ([], "cancelled")
        else:
            assert (cancelled, stored.state) == ("changed", "running")
            assert isinstance(claimed, list) and ids(claimed) == [task.id]
            assert await bench.cancel(task.id) == "written"
            assert await bench.renew(stored) == "cancel_asked"


@scenario
async def cancel_against_settle(bench: Bench) -> None:
    """A cancellation is never lost: it is there before the settlement, or told that the task has changed."""
    one, two = await bench.open_others(2)
    for number in range(bench.harness.rounds):
        task = await bench.running()
        outcome = (Returned(), raised(after=HOUR), failed_for_good())[number % 3]
        racers: list[Coroutine[Any, Any, Amended | Settled]] = [
            bench.amend(lifecycle.cancel(task, bench.now()), store=one),
            bench.settle(task, outcome, store=two),
        ]
        cancelled, settled = await together(racers)
        stored = await bench.get(task.id)
        if cancelled == "written":
            assert (settled, stored.state, stored.cancel_requested) == ("cancel_asked", "running", True)
            assert await bench.settle(stored, outcome) == "written"
            assert (await bench.get(task.id)).state == "cancelled"
        else:
            assert (cancelled, settled) == ("changed", "written")
            assert stored.state == ("completed", "pending", "failed")[number % 3]


@scenario
async def cancel_against_expire(bench: Bench) -> None:
    """A cancellation asked for while the lease is collected is not lost either."""
    one, two = await bench.open_others(2)
    for _ in range(bench.harness.rounds):
        task = await bench.running(ttl=0)
        racers: list[Coroutine[Any, Any, Amended | Settled]] = [
            bench.amend(lifecycle.cancel(task, bench.now()), store=one),
            bench.expire(task, store=two),
        ]
        cancelled, expired = await together(racers)
        if cancelled == "written":
            assert expired == "cancel_asked"
            assert await bench.expire(await bench.get(task.id)) == "written"
        else:
            assert (cancelled, expired) == ("changed", "written")
            assert await bench.cancel(task.id) == "written"
        assert (await bench.get(task.id)).state == "cancelled"
        assert await bench.claim() == []


@scenario
async def amendments_at_once(bench: Bench) -> None:
    """Of several amendments decided on one version, one is written: replays, a replay and a delete, an archive."""
    stores = await bench.open_others(3)
    for _ in range(bench.harness.rounds):
        for verbs in (("replay", "replay", "replay"), ("delete", "replay", "archive")):
            task = await bench.make("failed")
            amendments = [getattr(lifecycle, verb)(task, bench.now(), verb) for verb in verbs]
            racers = [bench.amend(each, store=store) for each, store in zip(amendments, stores, strict=True)]
            answers = await together(racers)
            assert sorted(answers) == ["changed", "changed", "written"]
            winner = verbs[answers.index("written")]
            if winner == "delete":
                assert await bench.gone(task.id)
            else:
                stored = await bench.get(task.id)
                assert stored.state == {"replay": "pending", "archive": "archived"}[winner]
                assert len(await bench.history(task.id)) == 4
            assert len(await bench.claim(5)) == (1 if winner == "replay" else 0)


@scenario
async def purge_against_replay(bench: Bench) -> None:
    """A task is either purged or replayed; a task that lives again is not purged."""
    one, two = await bench.open_others(2)
    for _ in range(bench.harness.rounds):
        task = await bench.make("failed")
        racers: list[Coroutine[Any, Any, int | Amended]] = [
            one.purge(Filter(), 10),
            bench.amend(lifecycle.replay(task, bench.now()), store=two),
        ]
        purged, replayed = await together(racers)
        if replayed == "written":
            assert purged == 0
            assert ids(await bench.claim()) == [task.id]
        else:
            assert (purged, replayed) == (1, "changed")
            assert await bench.gone(task.id)
            assert await bench.claim() == []


@scenario
async def records_at_once(bench: Bench) -> None:
    """Of many that create a record, or write it from one version, one does."""
    stores = await bench.open_others(4)
    for turn in range(bench.harness.rounds):
        for version in (0, 1):
            races = [
                store.put_record("schedule", f"{turn}", encode_value(number), version)
                for number, store in enumerate(stores)
            ]
            answers = await together(races)
            winners = [number for number, record in enumerate(answers) if record is not None]
            assert len(winners) == 1
            stored = {record.key: record for record in await bench.store.records("schedule")}[f"{turn}"]
            assert (stored.version, bytes(stored.value)) == (version + 1, str(winners[0]).encode())

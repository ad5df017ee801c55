"""Races between several stores on one place, run many times: whoever wins, there is one winner and nothing is lost.

Each race starts everybody at once and then checks that the answers fit together and that the stored task agrees.
"""

from collections import Counter
from collections.abc import Coroutine
from typing import Any

from qo import lifecycle
from qo.changes import Renewed, Settled
from qo.outcomes import Returned
from qo.retry import RetryPolicy
from qo.stores.protocol import Filter, Store
from qo.task import Task
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.testing.conformance.tools import HOUR, good, ids, lost, raised, read, same, together
from qo.values import encode_value


@scenario
async def claimers_share_nothing(bench: Bench) -> None:
    """Many claimers at once take every task, each exactly once."""
    stores = await bench.open_others(4)

    async def claimer(store: Store) -> list[Task]:
        got: list[Task] = []
        while tasks := await bench.claim(4, store=store):
            got += tasks
        return got

    for _ in range(bench.harness.rounds):
        tasks = [bench.task(f"type-{n % 3}") for n in range(30)]
        good(await bench.store.submit(tasks))
        got = [task for each in await together([claimer(store) for store in stores]) for task in each]
        # Whoever was passed over because others were busy with it is still there, and nobody else's.
        got += await claimer(bench.store)
        assert Counter(ids(got)) == Counter(ids(tasks))
        assert {task.attempt for task in got} == {1}
        for task in got:
            assert (await bench.get(task.id)).lease_id == task.lease_id


@scenario
async def one_task_for_many(bench: Bench) -> None:
    """Of many that want the only task, one gets it."""
    stores = await bench.open_others(4)
    for _ in range(bench.harness.rounds):
        task = await bench.submit()
        got = [each for tasks in await together([bench.claim(store=s) for s in stores]) for each in tasks]
        if not got:
            got = await bench.claim()
        assert [(each.id, each.attempt) for each in got] == [(task.id, 1)]
        assert await bench.steps(task.id) == [(None, "pending"), ("pending", "running")]


@scenario
async def claim_repeated_at_once(bench: Bench) -> None:
    """A claim repeated while the first try is still under way loses nothing: one more repeat answers all it holds."""
    stores = await bench.open_others(2)
    for _ in range(bench.harness.rounds):
        tasks = [bench.task() for _ in range(9)]
        good(await bench.store.submit(tasks))
        want = bench.want(3)
        tries = await together([bench.ask(want, store=store) for store in stores])
        held = (await bench.ask(want)).tasks
        assert {id for each in tries for id in ids(each.tasks)} <= set(ids(held))
        assert 3 <= len(held) <= 6
        rest = await bench.claim(9)
        assert sorted(ids(held) + ids(rest)) == ids(tasks)
        assert {task.attempt for task in (*held, *rest)} == {1}


@scenario
async def one_submit_many_times(bench: Bench) -> None:
    """Of many submits of the same tasks, each task is created once; all others are answered by id_exists."""
    stores = await bench.open_others(4)
    for _ in range(bench.harness.rounds):
        tasks = [bench.task() for _ in range(5)]
        batches = [tasks, tasks[::-1], tasks[2:] + tasks[:2], tasks]
        races = [store.submit(batch) for store, batch in zip(stores, batches, strict=True)]
        answers = [answer for each in await together(races) for answer in good(each)]
        created = Counter(answer.task.id for answer in answers if answer.outcome == "created")
        assert created == Counter(ids(tasks))
        assert {answer.outcome for answer in answers} == {"created", "id_exists"}
        for task in tasks:
            assert await bench.steps(task.id) == [(None, "pending")]


@scenario
async def one_key_for_many(bench: Bench) -> None:
    """Of many submits with the same keys, in any order, one task gets each key and the others are answered with it."""
    stores = await bench.open_others(4)
    for turn in range(bench.harness.rounds):
        keys = [f"{turn}-{n}" for n in range(4)]
        orders = [keys, keys[::-1], keys[2:] + keys[:2], keys]
        batches = [[bench.task(key=key) for key in order] for order in orders]
        races = [store.submit(batch) for store, batch in zip(stores, batches, strict=True)]
        answers = [answer for each in await together(races) for answer in good(each)]
        winners = {answer.task.key: answer.task.id for answer in answers if answer.outcome == "created"}
        assert sum(answer.outcome == "created" for answer in answers) == len(winners) == 4
        assert all(winners[answer.task.key] == answer.task.id for answer in answers)
        assert {answer.outcome for answer in answers} == {"created", "key_held"}
        stored = [task for batch in await read(bench.store, [t.id for b in batches for t in b]) if (task := batch)]
        assert sorted(ids(stored)) == sorted(winners.values())


@scenario
async def one_free_key_for_many(bench: Bench) -> None:
    """A key whose window has passed is taken over by one of many."""
    stores = await bench.open_others(4)
    for turn in range(bench.harness.rounds):
        await bench.submit(key=f"{turn}", age=HOUR, key_window=60)
        races = [bench.send(bench.task(key=f"{turn}"), store=store) for store in stores]
        answers = await together(races)
        assert sorted(answer.outcome for answer in answers) == ["created", "key_held", "key_held", "key_held"]
        assert len({answer.task.id for answer in answers}) == 1


@scenario
async def settle_repeated_at_once(bench: Bench) -> None:
    """One settlement sent many times is written once; all are answered by written."""
    stores = await bench.open_others(4)
    for _ in range(bench.harness.rounds):
        task = await bench.running()
        settlement = lifecycle.settle(task, Returned(), bench.now(), 0.5)
        assert await together([bench.write(settlement, store=store) for store in stores]) == ["written"] * 4
        assert await bench.steps(task.id) == [(None, "pending"), ("pending", "running"), ("running", "completed")]


@scenario
async def stale_settle(bench: Bench) -> None:
    """The holder of a lost lease and the holder of the new one settle at once: only the new one counts."""
    one, two = await bench.open_others(2)
    for _ in range(bench.harness.rounds):
        old = await bench.running(ttl=0)
        assert await bench.expire(old) == "written"
        new = await bench.claim_one()
        answers = await together(
            [
                bench.settle(old, Returned(encode_value("old")), store=one),
                bench.settle(new, Returned(encode_value("new")), store=two),
            ]
        )
        assert answers == ["lost", "written"]
        assert (await bench.get(old.id)).output == "new"


@scenario
async def settle_against_expire(bench: Bench) -> None:
    """Either the holder settles or upkeep expires the lease, never both."""
    one, two = await bench.open_others(2)
    for _ in range(bench.harness.rounds):
        task = await bench.running(ttl=0)
        settled, expired = await together(
            [bench.settle(task, Returned(), store=one), bench.expire(task, store=two, max_losses=0)]
        )
        assert sorted([settled, expired]) == ["lost", "written"]
        assert (await bench.get(task.id)).state == ("completed" if settled == "written" else "failed")
        assert len(await bench.history(task.id)) == 3


@scenario
async def expire_by_many(bench: Bench) -> None:
    """Of many that expire one lease, one does, and one loss is counted."""
    stores = await bench.open_others(4)
    for _ in range(bench.harness.rounds):
        task = await bench.running(ttl=0)
        answers = await together([bench.expire(task, store=store) for store in stores])
        assert sorted(answers) == ["lost", "lost", "lost", "written"]
        again = await bench.claim_one()
        assert (again.id, again.losses, again.attempt) == (task.id, 1, 2)


@scenario
async def renew_against_expire(bench: Bench) -> None:
    """Either the lease is renewed or it is expired: what was renewed is never expired."""
    one, two = await bench.open_others(2)
    for _ in range(bench.harness.rounds):
        task = await bench.running(ttl=0)
        racers: list[Coroutine[Any, Any, Renewed | Settled]] = [
            bench.renew(task, HOUR, store=one),
            bench.expire(task, store=two, max_losses=0),
        ]
        renewed, expired = await together(racers)
        stored = await bench.get(task.id)
        if renewed == "held":
            assert (expired, stored.state, stored.lease_id) == ("lost", "running", task.lease_id)
            assert await bench.settle(task, Returned()) == "written"
        else:
            assert (renewed, expired, stored.state) == ("lost", "written", "failed")


@scenario
async def a_storm(bench: Bench) -> None:
    """Workers that succeed, fail, give back and die, with upkeep beside them: every task ends once, nothing is lost."""
    stores = await bench.open_others(3)
    tasks = [bench.task(f"type-{n % 2}", max_retries=1, retry=RetryPolicy(initial=0)) for n in range(40)]
    good(await bench.store.submit(tasks))
    accepted: Counter[str] = Counter()

    async def worker(store: Store) -> None:
        for _ in range(1000):
            for held in await bench.claim(3, store=store, ttl=0 if bench.ids.chance() < 0.2 else HOUR):
                luck = bench.ids.chance()
                if luck < 0.15:
                    continue  # it died and left its lease behind
                outcome = Returned() if luck < 0.6 else raised(after=0)
                answer = await bench.settle(held, outcome, store=store)
                accepted[held.id] += answer == "written" and outcome == Returned()
            for silent in await lost(store, 5):
                await bench.expire(silent, store=store, max_losses=1)
            if not (await store.find(Filter(states=("pending", "running")), limit=1)).tasks:
                return
            # Nobody can wait for an hour here, so leases end early, those of live workers too.
            for dead in (await store.find(Filter(states=("running",)), limit=5)).tasks:
                await bench.renew(dead, 0, store=store)

    await together([worker(store) for store in stores])
    ended = (await bench.store.find(Filter(), sort="oldest")).tasks
    assert ids(ended) == ids(tasks)
    assert all(task.ended for task in ended)
    for task in ended:
        lines = await bench.history(task.id)
        assert [line.was for line in lines[1:]] == [line.became for line in lines[:-1]]
        assert task.attempt == sum(line.became == "running" for line in lines)
        assert (task.state == "completed") == (accepted[task.id] == 1), f"{task} was accepted {accepted[task.id]} times"
        assert task.failures == sum(line.error is not None and line.error.reason == "raised" for line in lines)
        assert task.losses == sum(line.error is not None and line.error.reason == "lost" for line in lines)
        assert same(task, await bench.get(task.id))

"""A process that is killed at any moment loses nothing it was promised, and leaves nothing half-written."""

import random
from pathlib import Path

import pytest
from tests.stores.processes import Child, children
from tests.stores.tools import check_file, completed, opened, rows, task, want

from qo import lifecycle
from qo.clock import SYSTEM
from qo.stores.protocol import Filter
from qo.task import Task

ROUNDS = 6


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(100, marks=pytest.mark.soak)])
async def test_acknowledged_tasks_survive_a_kill(tmp_path: Path, rounds: int) -> None:
    """Every id that a killed process acknowledged is there with its history, and the counters are right."""
    path = tmp_path / "qo.db"
    luck = random.Random(1)
    acknowledged: list[str] = []
    for _ in range(rounds):
        with children(Child("submit_for_ever", path, 20)) as (child,):
            assert child.line() == "ready"
            acknowledged += [child.line() for _ in range(luck.randrange(1, 400))]
            child.kill()
            acknowledged += child.lines()
        check_file(path)
    stored = {id for (id,) in rows(path, "SELECT id FROM qo_tasks")}
    assert len(acknowledged) >= rounds and set(acknowledged) <= stored
    assert len(acknowledged) == len(set(acknowledged))
    async with opened(path) as store:
        assert (await store.stats("default")).pending == len(stored)
        for id in acknowledged[-20:]:
            assert [line.became for line in await store.history(id)] == ["pending"]


@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(50, marks=pytest.mark.soak)])
async def test_killed_worker_leaves_nothing_half_written(tmp_path: Path, rounds: int) -> None:
    """After a kill every task is pending, running with lease and history, or settled as acknowledged; all can end."""
    path = tmp_path / "qo.db"
    luck = random.Random(2)
    settled: list[str] = []
    async with opened(path) as store:
        await store.submit([task(input="x" * 3000 if n % 9 == 0 else n) for n in range(3000)])
        for number in range(rounds):
            with children(Child("claim_and_settle_for_ever", path, f"w{number}")) as (child,):
                assert child.line() == "ready"
                settled += [child.line() for _ in range(luck.randrange(1, 60))]
                child.kill()
                settled += child.lines()
            check_file(path)
            lost = [each for each in await store.expired(1000) if isinstance(each, Task)]
            assert {each.worker_id for each in lost} <= {f"w{number}"}
            running = await store.find(Filter(states=("running",)), limit=1000)
            assert {each.id for each in running.tasks} == {each.id for each in lost}
            settlements = [lifecycle.expire(each, SYSTEM.now(), 0.5) for each in lost]
            assert set(await store.settle(settlements)) <= {"written"}
        ended = await store.find(Filter(states=("completed",)), limit=5000)
        assert set(settled) - {"empty"} <= {each.id for each in ended.tasks}
        # Those that were lost twice wait for their backoff; a replay makes them available.
        waiting = (await store.find(Filter(states=("pending",)), limit=5000)).tasks
        replays = [lifecycle.replay(each, SYSTEM.now()) for each in waiting]
        await store.amend([replay for replay in replays if replay is not None])
        while claimed := (await store.claim(want(500))).tasks:
            assert set(await store.settle([completed(each) for each in claimed])) == {"written"}
        assert (await store.stats("default")).completed == 3000
    check_file(path)

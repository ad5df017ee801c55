"""Workers killed by -9 in the middle of tasks: everything still ends once, and the file tells a consistent story."""

import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.faults import jobs
from tests.faults.children import started
from tests.stores.tools import check_file, rows
from tests.worker.worker_tools import check_history, until, until_state

import qo

LONG = ("lease=3600", "renew=1")
"""Leases that nobody waits for: only certain death brings the tasks back."""


async def test_tasks_of_a_killed_worker_run_again_promptly(tmp_path: Path) -> None:
    """A living worker on the same file notices the death at once, however long the leases are."""
    path, flag = tmp_path / "q.db", tmp_path / "flag"
    q = jobs.make(str(path))
    handles = [await q.submit("until_file", {"name": str(flag)}) for _ in range(4)]
    with started("nursery", path, *LONG) as nursery:
        first = nursery.hatch()
        for _ in handles:
            nursery.until("until_file 1")
        nursery.hatch()
        nursery.kill(first)
        for _ in handles:
            nursery.until("until_file 2")
        flag.touch()
        for handle in handles:
            task = await until_state(q, handle.id, "completed")
            assert (task.output, task.losses, task.failures) == (2, 1, 0)
    await q.close()
    check_file(path)


async def test_poison_ends_as_lost(tmp_path: Path) -> None:
    """A task that kills its worker every time fails as lost after max_losses, and the next ones run."""
    path = tmp_path / "q.db"
    q = jobs.make(str(path))
    poison = await q.submit("poison", {})
    with started("nursery", path, *LONG, "max_losses=2") as nursery:
        for _ in range(3):
            nursery.hatch()
            nursery.until("poison")
        nursery.hatch()
        task = await until_state(q, poison.id, "failed")
        await until_state(q, (await q.submit("short", {"x": 1})).id, "completed")
    assert task.error is not None and (task.error.reason, task.losses, task.failures) == ("lost", 3, 0)
    check_history(await q.history(poison.id), task)
    await q.close()
    check_file(path)


async def killed_in_rounds(path: Path, rounds: int, seed: int) -> None:
    """Two workers at a time; each round adds tasks, lets some run, kills one of the two and starts another."""
    chance = random.Random(seed)
    q = jobs.make(str(path))
    handles: list[Any] = []
    with started("nursery", path, *LONG) as nursery:
        nursery.hatch()
        nursery.hatch()
        for _ in range(rounds):
            calls = [q.call(chance.choice(["short", "threaded"]), {"x": x}) for x in range(30)]
            handles += await q.submit_many(calls)
            for _ in range(chance.randrange(1, 30)):
                nursery.line()
            nursery.kill(chance.choice(nursery.pids))
            nursery.hatch()

        async def ended() -> bool:
            nursery.swallow()
            return (await q.stats()).completed == len(handles)

        await until(ended)
    for handle in handles:
        task = await q.get(handle.id)
        assert (task.state, task.failures, task.output) == ("completed", 0, task.input["x"])
        assert task.attempt == task.losses + 1
        history = await q.history(handle.id)
        check_history(history, task)
        assert [line.became for line in history].count("completed") == 1
        assert sum(line.error is not None and line.error.reason == "lost" for line in history) == task.losses
    await q.close()
    check_file(path)
    (lost,) = rows(path, "SELECT sum(losses) FROM qo_tasks")[0]
    assert lost > rounds / 4, "the kills hit nothing"


@pytest.mark.slow
async def test_ten_rounds_of_kills(tmp_path: Path) -> None:
    """Ten kills in the middle of tasks: every task completes exactly once."""
    await killed_in_rounds(tmp_path / "q.db", 10, seed=1)


@pytest.mark.soak
async def test_two_hundred_rounds_of_kills(tmp_path: Path) -> None:
    """Two hundred of them."""
    await killed_in_rounds(tmp_path / "q.db", 200, seed=2)


def _works(prefix: list[str]) -> bool:
    try:
        return subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


async def test_living_worker_in_another_pid_namespace(tmp_path: Path) -> None:
    """A worker in a container is not taken for dead while it lives, and is when it was killed."""
    prefix = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if not _works(prefix):
        pytest.skip("no pid namespaces here")
    path, flag = tmp_path / "q.db", tmp_path / "flag"
    q = jobs.make(str(path))
    handle = await q.submit("until_file", {"name": str(flag)})
    with started("worker", path, *LONG, "upkeep_interval=3600", prefix=prefix) as inside:
        assert int(inside.until("worker").split()[1]) < 20  # a pid that means nothing out here
        inside.until("until_file 1")
        for _ in range(20):
            assert await q.expire() == 0
        assert (await q.get(handle.id)).state == "running"
        inside.process.kill()
        inside.process.wait()
        await until(q.expire)
    task = await q.get(handle.id)
    assert (task.state, task.losses) == ("pending", 1)
    flag.touch()
    assert await qo.Worker(q).run_once() == 1
    await q.close()
    check_file(path)

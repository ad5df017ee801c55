"""When a part of the worker breaks, which no part should, the worker says so and ends; it never hangs."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.worker.worker_tools import PATIENCE, Wrapped, burst, make_queue, until, until_state, working

import qo
from qo.worker import settler as settler_module
from qo.worker.heartbeat import Heartbeat
from qo.worker.runner import Runner
from qo.worker.shift import Shift


class Bug(Exception):
    """What nobody expects."""


class Breaks(Wrapped):
    """A store with a bug in one verb."""

    def __init__(self, store: Any, verb: str, times: list[int]) -> None:
        super().__init__(store)
        self._verb = verb
        self._times = times

    def __getattr__(self, name: str) -> Any:
        if name != self._verb:
            return super().__getattr__(name)

        async def broken(*args: Any, **kwargs: Any) -> Any:
            self._times.append(1)
            raise Bug(f"in {name}")

        return broken


async def fails_with_bug(q: qo.Queue) -> None:
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Bug):
            await qo.Worker(q).run(signals=False)


@pytest.mark.parametrize("verb", ["claim", "settle", "renew", "put_record", "records", "expired", "stats", "attach"])
async def test_bug_in_a_verb(tmp_path: Path, verb: str, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected exception behind any verb ends the worker with that exception, loudly."""
    real = make_queue("memory", tmp_path)
    times: list[int] = []
    q = make_queue("memory", tmp_path, store=lambda: Breaks(real.open_store(), verb, times), shutdown_deadline=0.1)
    release = asyncio.Event()

    @q.task
    async def job(x: int) -> None:
        if verb != "settle":
            await release.wait()

    await real.submit("job", {"x": 1})
    await fails_with_bug(q)
    assert times
    if verb != "attach":
        assert any(record.levelname == "CRITICAL" for record in caplog.records)
    await q.close()
    await real.close()


@pytest.mark.parametrize("verb", ["claim", "settle"])
async def test_bug_in_a_burst(tmp_path: Path, verb: str) -> None:
    """The same for a burst and for run_once."""
    real = make_queue("memory", tmp_path)
    q = make_queue("memory", tmp_path, store=lambda: Breaks(real.open_store(), verb, []))

    @q.task
    async def job(x: int) -> None: ...

    await real.submit("job", {"x": 1})
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Bug):
            await qo.Worker(q).run(burst=True, signals=False)
    await real.submit("job", {"x": 1})
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Bug):
            await qo.Worker(q).run_once()
    await q.close()
    await real.close()


@pytest.mark.parametrize(
    ("where", "name"),
    [(Shift, "_take"), (Shift, "_on_settled"), (Shift, "_on_outcome"), (Runner, "start"), (Heartbeat, "show")],
)
async def test_bug_in_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
    """A bug in the worker's own code ends it too."""
    q = make_queue("memory", tmp_path)

    @q.task
    async def job() -> None: ...

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise Bug(name)

    monkeypatch.setattr(where, name, broken)
    await job.submit()
    await fails_with_bug(q)
    await q.close()


async def test_what_runs_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that broke gives back what it was running."""
    q = make_queue("memory", tmp_path)
    started = asyncio.Event()

    @q.task
    async def job() -> None:
        started.set()
        await asyncio.Event().wait()

    async def broken(self: Heartbeat) -> None:
        await started.wait()
        raise Bug("heartbeat")

    monkeypatch.setattr(Heartbeat, "read_controls", broken)
    handle = await job.submit()
    await fails_with_bug(q)
    assert (await q.get(handle.id)).state == "pending"
    await q.close()


async def test_lifecycle_that_always_raises(q: qo.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """When not even a failure can be settled the worker ends instead of keeping the lease for ever."""

    def broken(*args: Any) -> Any:
        raise Bug("lifecycle")

    monkeypatch.setattr(settler_module.lifecycle, "settle", broken)

    @q.task
    async def job() -> None: ...

    await job.submit()
    await fails_with_bug(q)


async def test_records_of_another_version(tmp_path: Path) -> None:
    """Worker and control records that cannot be read do not stop a worker."""
    q = make_queue("memory", tmp_path, heartbeat=0.05)
    store = q.open_store()
    await store.put_record("worker", "alien", msgspec.Raw(b'{"from": "the future"}'))
    await q.submit("unknown", {})  # so that the worker looks who handles it

    @q.task
    async def job() -> None: ...

    async with working(q) as worker:
        await until_state(q, (await job.submit()).id, "completed")

        async def shown() -> bool:
            return any(record.key == worker.id and record.version > 3 for record in await store.records("worker"))

        await until(shown)
    await q.close()


async def test_nothing_is_left(q: qo.Queue) -> None:
    """After run() there is no asyncio task and no thread of the worker."""
    before = asyncio.all_tasks()

    @q.task
    async def job() -> None: ...

    @q.task
    def sync_job() -> None: ...

    await job.submit()
    await sync_job.submit()
    await burst(q)
    assert asyncio.all_tasks() == before
    await until(lambda: not [one for one in threading.enumerate() if one.name.startswith(("qo-lease", "qo-handler"))])

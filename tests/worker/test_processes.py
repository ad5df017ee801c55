"""Handlers in child processes: what goes in, what comes out, and what is said meanwhile."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker import process_jobs as jobs
from tests.worker.process_tools import ECHO, PATIENCE, PID, answer, begun, job, wait_for_death

from qo.clock import ManualClock
from qo.errors import ConfigError
from qo.worker.jobs import Answered, Crashed, EntryRaised, Job, Stopped, TimedOut, refer
from qo.worker.processes import ProcessPool


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(1)
    await pool.start()
    yield pool
    await pool.close(0)


async def test_bytes_in_bytes_out(pool: ProcessPool) -> None:
    """A job's answer is what its function returned."""
    assert await pool.run(ECHO) == Answered(b"hello")


async def test_children_are_reused(pool: ProcessPool) -> None:
    """The next job runs in the same process, which is not the worker's."""
    first, second = answer(await pool.run(PID)), answer(await pool.run(PID))
    assert first == second != str(os.getpid()).encode()


async def test_nothing_starts_before_the_first_job(pool: ProcessPool) -> None:
    """A worker that never needs a child has none."""
    assert pool.pids == ()


async def test_exception_keeps_the_child(pool: ProcessPool) -> None:
    """An exception comes back as type, message and the user's part of the traceback, as text any store can hold."""
    before = await pool.run(PID)
    reply = await pool.run(Job(function=refer(jobs.raise_error)))
    assert isinstance(reply, EntryRaised)
    assert reply.type == "KeyError" and "no such" in reply.message
    assert "in raise_error" in reply.traceback and "_serve" not in reply.traceback
    reply.traceback.encode()
    assert await pool.run(PID) == before


async def test_sys_exit_is_an_exception(pool: ProcessPool) -> None:
    """sys.exit() in a handler ends the handler, not the process."""
    before = await pool.run(PID)
    reply = await pool.run(Job(function=refer(jobs.sys_exit)))
    assert isinstance(reply, EntryRaised) and (reply.type, reply.message) == ("SystemExit", "enough")
    assert await pool.run(PID) == before


async def test_unprintable_exception(pool: ProcessPool) -> None:
    """An exception that cannot be shown is still reported."""
    reply = await pool.run(Job(function=refer(jobs.raise_unprintable)))
    assert isinstance(reply, EntryRaised) and reply.type == "Unprintable"


async def test_entry_must_return_bytes(pool: ProcessPool) -> None:
    """A wrong entry is told so."""
    reply = await pool.run(Job(function=refer(jobs.echo), entry=refer(jobs.not_bytes)))
    assert isinstance(reply, EntryRaised) and "must return bytes, not str" in reply.message


async def test_cancel_is_seen(pool: ProcessPool) -> None:
    """cancel() sets the flag of the running job, and of no later one."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    running = pool.begin(job(jobs.until_cancelled), heard.put_nowait)
    await heard.get()
    running.cancel()
    assert await running.reply() == Answered(b"stopped")
    running.cancel()
    assert await pool.run(job(jobs.was_cancelled)) == Answered(b"0")


async def test_cancel_and_kill_in_line(pool: ProcessPool) -> None:
    """A job that waits for a child and is cancelled or killed never begins."""
    busy, _ = await begun(pool, job(jobs.busy))
    first, second = pool.begin(ECHO), pool.begin(ECHO)
    first.cancel()
    second.kill()
    assert await first.reply() == await second.reply() == Stopped(began=False)
    busy.kill()
    assert await busy.reply() == Stopped(began=True)
    assert await pool.run(ECHO) == Answered(b"hello")


async def test_cancelled_waiter_kills(pool: ProcessPool) -> None:
    """Cancelling the coroutine that waits frees the child for the next job."""
    started = asyncio.Event()
    waiter = asyncio.create_task(pool.run(job(jobs.busy), lambda raw: started.set()))
    await started.wait()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert await pool.run(ECHO) == Answered(b"hello")


async def test_progress_in_order(pool: ProcessPool) -> None:
    """Every progress arrives, in order, before the answer; the context is handed through."""
    heard: list[bytes] = []
    assert await pool.run(job(jobs.count, b"1000", context=b"context"), heard.append) == Answered(b"context")
    assert heard == [b"%d" % step for step in range(1000)]


async def test_progress_callback_that_raises(pool: ProcessPool) -> None:
    """A broken callback does not break the run."""
    assert await pool.run(job(jobs.count, b"3"), lambda raw: 1 / 0) == Answered(b"")  # type: ignore[arg-type]


async def test_late_progress_goes_nowhere(pool: ProcessPool) -> None:
    """A thread that a handler left behind cannot speak for the next job."""
    heard: list[bytes] = []
    await pool.run(job(jobs.leave_thread), heard.append)
    await pool.run(job(jobs.hear_thread), heard.append)
    assert heard == []


async def test_megabytes_both_ways() -> None:
    """8 MB in and 16 MB out, four at a time on two children, neither block nor mix."""
    pool = ProcessPool(2)
    await pool.start()
    inputs = [bytes([number]) * 8_000_000 for number in range(4)]
    replies = await asyncio.gather(
        *(pool.run(Job(function=refer(jobs.double), raw_input=raw, timeout=60)) for raw in inputs)
    )
    assert [answer(reply) == raw + raw for reply, raw in zip(replies, inputs, strict=True)] == [True] * 4
    await pool.close(5)


async def test_concurrent_runs() -> None:
    """Jobs share the children; crashes and timeouts among them do not reach the others."""
    pool = ProcessPool(3)
    await pool.start()
    good = [pool.run(Job(function=refer(jobs.echo), raw_input=b"%d" % number)) for number in range(200)]
    bad = [pool.run(Job(function=refer(jobs.exit_3))) for _ in range(3)] + [pool.run(job(jobs.busy, timeout=0.1))]
    replies = await asyncio.gather(*good[:100], *bad, *good[100:])
    assert replies[100:104] == [Crashed("exited with code 3")] * 3 + [TimedOut(0.1)]
    assert [answer(reply) for reply in replies[:100] + replies[104:]] == [b"%d" % number for number in range(200)]
    assert len(pool.pids) <= 3
    await pool.close(5)
    assert pool.pids == ()


async def test_close_lets_jobs_end(tmp_path: Path) -> None:
    """close() waits for what runs, sends back what waits, and takes nothing new."""
    pool = ProcessPool(1)
    await pool.start()
    os.mkfifo(tmp_path / "fifo")
    running, _ = await begun(pool, job(jobs.read_path, bytes(tmp_path / "fifo")))
    waiting = pool.begin(ECHO)
    closing = asyncio.create_task(pool.close(PATIENCE))
    assert await waiting.reply() == Stopped(began=False)
    assert await pool.run(ECHO) == Stopped(began=False)
    await asyncio.to_thread((tmp_path / "fifo").write_bytes, b"done")
    assert await running.reply() == Answered(b"done")
    await closing
    assert pool.pids == ()


async def test_close_kills_at_the_deadline() -> None:
    """What has not ended by the deadline is killed; a second close can hurry the first."""
    for deadlines in ([0.1], [1000.0, 0.0]):
        pool = ProcessPool(1)
        await pool.start()
        running, child = await begun(pool, job(jobs.busy))
        process = os.pidfd_open(child)
        await asyncio.gather(*(pool.close(deadline) for deadline in deadlines))
        assert await running.reply() == Stopped(began=True)
        wait_for_death(process)


async def test_close_while_a_child_starts() -> None:
    """A child that is just being started does not outlive the pool."""
    pool = ProcessPool(1)
    await pool.start()
    running = pool.begin(ECHO)
    await pool.close(5)
    assert await running.reply() == Stopped(began=False)


async def test_preload_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preload that raises or dies is a clear reply for one job, and the next start waits."""
    starts = tmp_path / "starts"
    count = f"open({str(starts)!r}, 'a').write('x')\n"
    (tmp_path / "raises.py").write_text(count + "raise ValueError('no database')")
    (tmp_path / "dies.py").write_text(count + "import os; os._exit(7)")
    monkeypatch.syspath_prepend(tmp_path)

    clock = ManualClock()
    pool = ProcessPool(4, preload=["json", "raises"], clock=clock)
    await pool.start()
    first = await pool.run(ECHO)
    assert isinstance(first, Crashed)
    assert first.message == "the child process could not start: ValueError: no database while importing raises"
    assert "raises.py" in (first.traceback or "")
    second, third = pool.begin(ECHO), pool.begin(ECHO)
    assert starts.read_text() == "x"
    clock.advance(1)
    assert await second.reply() == first
    third.cancel()
    await pool.close(0)

    pool = ProcessPool(1, preload=["dies"])
    await pool.start()
    assert await pool.run(ECHO) == Crashed("exited with code 7 while importing dies")
    await pool.close(0)


async def test_start_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preload that hangs is killed after a minute, and the job is told."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "hangs.py").write_text(
        f"open({str(tmp_path / 'fifo')!r}, 'w').write('x'); import time; time.sleep(1000)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    clock = ManualClock()
    pool = ProcessPool(1, preload=["hangs"], clock=clock)
    await pool.start()
    running = pool.begin(ECHO)
    await asyncio.to_thread((tmp_path / "fifo").read_bytes)
    clock.advance(60)
    assert await running.reply() == Crashed("the child process did not start within 60 s")
    await pool.close(0)


async def test_no_interpreter(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """When no process can be started at all, the job is told."""
    monkeypatch.setattr("multiprocessing.spawn.get_executable", lambda: "/nowhere/python")
    reply = await pool.run(ECHO)
    assert isinstance(reply, Crashed) and "/nowhere/python" in reply.message


async def test_prints_reach_the_worker(pool: ProcessPool, capfd: Any) -> None:
    """What a handler prints is on the worker's stdout and stderr when it ends."""
    await pool.run(Job(function=refer(jobs.say), raw_input=b"hello"))
    assert capfd.readouterr() == ("said hello\n", "complained hello\n")


async def test_nothing_of_the_worker_is_inherited(pool: ProcessPool) -> None:
    """A child has none of the worker's files and sockets, nor qo's variable in its environment."""
    ours, theirs = socket.socketpair()
    with socket.create_server(("127.0.0.1", 0)) as server, ours, theirs:
        theirs.set_inheritable(True)
        seen = json.loads(answer(await pool.run(Job(function=refer(jobs.open_files)))))
        for mine in (server, ours, theirs):
            assert os.fstat(mine.fileno()).st_ino not in seen["files"]
    assert "QO_CHILD" not in seen["environ"]


async def test_use_before_start() -> None:
    """A pool that was not started, or has no room for a process, says so."""
    with pytest.raises(RuntimeError, match="not been started"):
        await ProcessPool(1).run(ECHO)
    with pytest.raises(ConfigError, match="at least one"):
        ProcessPool(0)

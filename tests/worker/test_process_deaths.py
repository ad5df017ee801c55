"""However a child process ends, the worker goes on; however the worker ends, no child does."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker import process_jobs as jobs
from tests.worker.process_tools import ECHO, PATIENCE, PID, answer, begun, job, wait_for_death

from qo.worker.children import Spawner
from qo.worker.jobs import Answered, Crashed, Job, TimedOut, refer
from qo.worker.processes import ProcessPool

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(1)
    await pool.start()
    yield pool
    await pool.close(0)


@pytest.mark.parametrize("function", [jobs.busy, jobs.sleep_in_c, jobs.sleep_with_the_lock, jobs.talk_for_ever])
async def test_timeout_kills(pool: ProcessPool, function: Any) -> None:
    """Whatever a handler is busy with, it is killed at its timeout and the pool works on."""
    await pool.run(ECHO)
    assert await pool.run(job(function, timeout=0.1)) == TimedOut(0.1)
    assert await pool.run(ECHO) == Answered(b"hello")


async def test_time_in_line_does_not_count(pool: ProcessPool) -> None:
    """A timeout is the time of the run, not of the wait for a child."""
    first = pool.begin(job(jobs.busy, timeout=0.2))
    second = pool.begin(Job(function=refer(jobs.echo), timeout=0.15))
    assert await first.reply() == TimedOut(0.2)
    assert await second.reply() == Answered(b"")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (jobs.segfault, "killed by SIGSEGV"),
        (jobs.exit_3, "exited with code 3"),
        (jobs.kill_itself, "killed by SIGKILL (out of memory?)"),
        (jobs.close_everything, "it closed its connection to the worker"),
    ],
)
async def test_crash_is_said_in_words(pool: ProcessPool, function: Any, words: str) -> None:
    """A dead child is a reply that says how it died; the next job has a new one."""
    assert await pool.run(Job(function=refer(function))) == Crashed(words)
    assert await pool.run(ECHO) == Answered(b"hello")


@pytest.mark.parametrize("way", [b"hang", b"crash"])
async def test_grandchildren_die_too(pool: ProcessPool, way: bytes) -> None:
    """What a handler started ends with it, killed or crashed."""
    await pool.run(ECHO)
    running, started = await begun(pool, job(jobs.grandchild, way, timeout=0.5))
    process = os.pidfd_open(started)
    assert await running.reply() == (TimedOut(0.5) if way == b"hang" else Crashed("exited with code 3"))
    wait_for_death(process)


def start_worker(source: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("function", ["busy", "sleep_in_c", "sleep_with_the_lock", None])
def test_killed_worker_takes_its_children(function: str | None) -> None:
    """kill -9 of the worker alone ends its children, busy, blocked in C or idle."""
    with start_worker(jobs.WORKER if function else jobs.IDLE_WORKER, function or "") as worker:
        assert worker.stdout
        process = os.pidfd_open(int(worker.stdout.readline()))
        worker.kill()
        wait_for_death(process)


def test_ctrl_c_reaches_only_the_worker() -> None:
    """SIGINT to the worker's group ends it as it likes; no child adds a traceback of its own."""
    with start_worker(jobs.WORKER, "sleep_in_c") as worker:
        assert worker.stdout and worker.stderr
        child = int(worker.stdout.readline())
        process = os.pidfd_open(child)
        os.kill(child, signal.SIGINT)
        os.killpg(worker.pid, signal.SIGINT)
        wait_for_death(process)
        complaints = worker.stderr.read()
    assert "KeyboardInterrupt" in complaints and "process_jobs.py" not in complaints


async def test_signals_are_left_to_the_worker(pool: ProcessPool, tmp_path: Path, capfd: Any) -> None:
    """SIGINT and SIGTERM to a child, as from a terminal or systemd, do not disturb its job."""
    os.mkfifo(tmp_path / "fifo")
    running, child = await begun(pool, job(jobs.read_path, bytes(tmp_path / "fifo")))
    os.kill(child, signal.SIGINT)
    os.kill(child, signal.SIGTERM)
    await asyncio.to_thread((tmp_path / "fifo").write_bytes, b"done")
    assert await running.reply() == Answered(b"done")
    assert capfd.readouterr().err == ""


async def test_signals_of_what_a_handler_starts(pool: ProcessPool) -> None:
    """A handler can end its own subprocesses and multiprocessing workers as anywhere else."""
    assert await pool.run(Job(function=refer(jobs.terminate_program))) == Answered(b"-15")
    assert await pool.run(Job(function=refer(jobs.terminate_fork))) == Answered(b"-15")


async def test_handler_that_forks_and_returns_twice(pool: ProcessPool) -> None:
    """Only the process that got the job answers."""
    for _ in range(3):
        assert answer(await pool.run(Job(function=refer(jobs.fork_and_return)))) == str(pool.pids[0]).encode()


async def test_idle_death(pool: ProcessPool) -> None:
    """A child that dies between jobs costs no job, even when nobody has noticed yet."""
    for _ in range(20):
        child = int(answer(await pool.run(PID)))
        os.kill(child, signal.SIGKILL)
        assert int(answer(await pool.run(PID))) != child


async def test_idle_death_is_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replacement starts without waiting for a job."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "says_hello.py").write_text(f"open({str(tmp_path / 'fifo')!r}, 'w').write('hello\\n')")
    monkeypatch.syspath_prepend(tmp_path)
    pool = ProcessPool(1, preload=["says_hello"])
    await pool.start()
    fifo = os.open(tmp_path / "fifo", os.O_RDWR)
    child = int(answer(await pool.run(PID)))
    assert await asyncio.to_thread(os.read, fifo, 6) == b"hello\n"
    os.kill(child, signal.SIGKILL)
    assert await asyncio.to_thread(os.read, fifo, 6) == b"hello\n"
    os.close(fifo)
    await pool.close(0)


async def test_control_pipe_ends_a_child_without_the_kernel() -> None:
    """Where the kernel does not end children with their parent, the closed pipe does."""
    spawner = Spawner()
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    spawner.launch((), answered.set_result)
    launched = await answered
    await asyncio.to_thread(select.select, [launched.jobs], [], [], PATIENCE)  # it is up
    os.close(launched.control)
    assert launched.process.wait(PATIENCE) == -signal.SIGKILL
    launched.jobs.close()
    spawner.stop()


async def test_child_of_a_worker_that_is_gone_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that comes up after its worker has died ends at once."""
    spawner = Spawner()
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr("qo.worker.children.os.getpid", lambda: 1_000_000_000)
    spawner.launch((), answered.set_result)
    launched = await answered
    assert launched.process.wait(PATIENCE) == 1
    os.close(launched.control)
    launched.jobs.close()
    spawner.stop()


async def test_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no pidfd, deaths are noticed all the same."""
    monkeypatch.delattr(os, "pidfd_open")
    pool = ProcessPool(1)
    await pool.start()
    assert await pool.run(Job(function=refer(jobs.exit_3))) == Crashed("exited with code 3")
    assert await pool.run(job(jobs.busy, timeout=0.05)) == TimedOut(0.05)
    assert await pool.run(ECHO) == Answered(b"hello")
    await pool.close(5)

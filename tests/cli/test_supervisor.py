"""qo worker --processes: children are replaced, drained, and never left behind."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from tests.cli.tools import APP, Program, alive, ok, rows, until

from qo.worker.supervisor import Supervisor


@pytest.fixture(autouse=True)
def app() -> None:
    Path("app.py").write_text(APP)


def pids(program: Program, count: int) -> list[int]:
    """The children that were started so far, once there are so many."""
    return [int(re.findall(r"pid (\d+)", line)[0]) for line in program.says("runs as pid", count)[:count]]


def test_a_killed_child_is_replaced_and_all_drain() -> None:
    """kill -9 of one child: it comes back, its task runs again, and SIGTERM ends everything with exit code 0."""
    id = ok("submit", "gate", '{"name": "one"}').strip()
    with Program("worker", "app:q", "--processes", "2", "--concurrency", "1", "--lease", "5s") as program:
        first = pids(program, 2)
        until(Path("one.started").exists, "the handler started")
        worker = rows("status", id)[0]["worker_id"]
        victim = next(pid for pid in first if f"-{pid}-" in worker)
        os.kill(victim, signal.SIGKILL)
        assert "was killed by SIGKILL; again in 0.5 s" in program.says("again in")[0]
        (third,) = set(pids(program, 3)) - set(first)
        Path("one.go").touch()
        until(lambda: rows("status", id)[0]["state"] == "completed", "the task ran again")
        program.says(f"-{third}-")
        program.signal(signal.SIGTERM)
        assert program.ends() == 0
    assert not any(alive(pid) for pid in (*first, third))


def test_a_killed_supervisor_leaves_no_children() -> None:
    """kill -9 of the supervisor: the children drain and end by themselves."""
    with Program("worker", "app:q", "--processes", "2", "--shutdown-deadline", "1s") as program:
        children = pids(program, 2)
        for pid in children:
            program.says(f"-{pid}-")
        program.process.kill()
        program.ends()
        for pid in children:
            until(lambda pid=pid: not alive(pid), f"{pid} ended")
    assert "the supervisor is gone" in "".join(program.lines)
    assert rows("workers") == []


def test_second_signal_kills() -> None:
    """A child that does not end is killed when the supervisor is asked twice; exit code 1."""
    ok("submit", "gate", '{"name": "one"}')
    with Program("worker", "app:q", "-p", "2") as program:
        children = pids(program, 2)
        until(Path("one.started").exists, "the handler started")
        program.signal(signal.SIGINT)
        program.says("stopping: waiting for 2 worker processes")
        program.signal(signal.SIGINT)
        assert program.ends() == 1
    assert not any(alive(pid) for pid in children)


def test_burst_ends_when_all_are_done() -> None:
    """With --burst a child that found nothing more is not replaced."""
    ids = [ok("submit", "add", '{"a": 1}').strip() for _ in range(20)]
    with Program("worker", "app", "-p", "2", "--burst", "--types", "add") as program:
        assert program.ends() == 0
    assert {rows("status", id)[0]["state"] for id in ids} == {"completed"}


def test_wrong_usage_is_not_repeated() -> None:
    """A module that is not there will not be there next time either."""
    with Program("worker", "nothing:q", "-p", "2") as program:
        assert program.ends() == 2
    assert "there is no module 'nothing'" in "".join(program.lines)
    assert "again in" not in "".join(program.lines)


def python(code: str) -> Supervisor:
    command = [sys.executable, "-S", "-c", code]
    return Supervisor(lambda leash: command, 1, first_pause=0.01, longest_pause=0.02, tries=3)


def test_gives_up_on_what_cannot_be_started(caplog: pytest.LogCaptureFixture) -> None:
    """Three quick deaths in a row, with pauses that double up to a limit; exit code 1."""
    with caplog.at_level("INFO", "qo.supervisor"):
        assert asyncio.run(python("raise SystemExit(7)").run()) == 1
    pauses = re.findall(r"exit code 7; again in ([\d.]+) s", caplog.text)
    assert pauses == ["0.01", "0.02"]
    assert "did not get up 3 times in a row" in caplog.text


def test_gives_up_on_what_is_no_program(caplog: pytest.LogCaptureFixture) -> None:
    """A command that does not exist is no reason to fall over."""
    supervisor = Supervisor(lambda leash: ["/no/such/program"], 2, first_pause=0.01, tries=2)
    assert asyncio.run(supervisor.run()) == 1
    assert "cannot be started" in caplog.text


def test_a_child_that_was_up_long_enough_starts_afresh(caplog: pytest.LogCaptureFixture) -> None:
    """A death after a healthy life has the shortest pause again, however often it happened before."""
    marker = Path("count")
    code = f"import sys; f = open({str(marker)!r}, 'a'); f.write('x'); sys.exit(2 if f.tell() > 4 else 3)"
    command = [sys.executable, "-S", "-c", code]
    supervisor = Supervisor(
        lambda leash: command, 1, first_pause=0.01, longest_pause=1, healthy_after=0, start_time=0, tries=2
    )
    with caplog.at_level("INFO", "qo.supervisor"):
        assert asyncio.run(supervisor.run()) == 2
    assert re.findall(r"again in ([\d.]+) s", caplog.text) == ["0.01"] * 4

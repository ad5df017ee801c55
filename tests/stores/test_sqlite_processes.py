"""Several processes on one file: all can open it at once, and all get their turn."""

import fcntl
import os
import signal
from pathlib import Path

import pytest
from tests.stores.processes import Child, children
from tests.stores.tools import check_file, rows

from qo.stores.sqlite import turns as turns_module
from qo.stores.sqlite.turns import Turns

OPENERS = 8


def test_many_processes_open_an_empty_file_at_once(tmp_path: Path) -> None:
    """Whoever comes first creates the tables; everybody succeeds."""
    for attempt in range(2):
        path = tmp_path / f"{attempt}.db"
        with children(*(Child("open_and_submit", path) for _ in range(OPENERS))) as openers:
            for child in openers:
                assert child.line() == "ready"
            for child in openers:
                child.tell()
            ids = {child.line() for child in openers}
            assert [child.end() for child in openers] == [0] * OPENERS
        assert {id for (id,) in rows(path, "SELECT id FROM qo_tasks")} == ids
        assert rows(path, "SELECT value FROM qo_meta WHERE name = 'schema'") == [("1",)]
        check_file(path)


def test_busy_writers_do_not_starve_a_third(tmp_path: Path) -> None:
    """While two processes write without a pause, few of their tasks come between a third's call and its turn.

    Counted in tasks, of which a transaction holds at most four, so that it does not matter how slow the machine is.
    """
    path = tmp_path / "qo.db"
    with children(
        Child("write_without_pause", path),
        Child("write_without_pause", path),
        Child("submit_and_count", path, 100),
    ) as (*busy, third):
        for child in (*busy, third):
            assert child.line() == "ready"
        for child in busy:
            child.tell()
        while rows(path, "SELECT count(*) FROM qo_tasks")[0][0] < 100:
            pass  # until both are at full speed
        third.tell()
        overtaken = sorted(int(third.line()) for _ in range(100))
    # Measured: median 4 to 8, worst 12 to 36; without turns the worst were hundreds.
    assert overtaken[50] <= 40
    assert overtaken[-1] <= 400


def waits_for_a_turn(path: Path) -> bool:
    """Does anybody stand in the queue?"""
    with Path(f"{path}-queue").open() as queue:
        try:
            fcntl.flock(queue, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_who_leaves_makes_room_for_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that leaves while another process still waits pauses, and in that pause the other has its turn."""
    path = tmp_path / "turn"
    turns = Turns(path)
    with children(Child("take_turns", path)) as (child,):
        assert child.line() == "ready"
        said: list[str] = []

        def pause(seconds: float) -> None:
            """Lasts until the other says that it has its turn."""
            os.kill(child.pid, signal.SIGCONT)
            said.append(child.line())

        monkeypatch.setattr(turns_module, "pause", pause)
        for _ in range(5):
            with turns:
                child.tell()
                while not waits_for_a_turn(path):
                    pass
                os.kill(child.pid, signal.SIGSTOP)  # too slow to be in before this one could come again
            assert said == ["mine"]
            assert child.line() == "left"
            said.clear()
    turns.close()


def test_who_is_alone_does_not_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fairness costs nothing while nobody waits, also with others about who write now and then."""
    path = tmp_path / "turn"
    turns, idle = Turns(path), Turns(path)
    monkeypatch.setattr(turns_module, "pause", lambda seconds: pytest.fail("paused for nobody"))
    for _ in range(3):
        with turns:
            pass
        with idle:
            pass
    turns.close()
    idle.close()


def test_killed_holder_gives_up_its_turn(tmp_path: Path) -> None:
    """A process that is killed in the middle of its turn holds up nobody."""
    path = tmp_path / "turn"
    with children(Child("keep_turn", path)) as (child,):
        assert child.line() == "mine"
        child.kill()
    turns = Turns(path)
    with turns:
        pass
    turns.close()

"""qo demo: every example to its end, and the stream until a signal."""

import json
import signal
import tempfile
from pathlib import Path

import pytest
from tests.cli.tools import Program, ok, qo, refused, rows

from qo import demo


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_once(own_temporary_folder: Path) -> None:
    """Every example ends as it must; the summary says so and nothing is left behind."""
    with Program("demo", "--once") as program:
        assert program.process.stdout is not None
        shown = program.process.stdout.read()
        assert program.ends() == 0, shown
    for type in demo.KINDS:
        assert type in shown
    assert shown.count("as expected") == len(demo.KINDS)
    assert "97 tasks in" in shown
    assert list(own_temporary_folder.iterdir()) == []


def test_once_json_in_a_place_that_stays() -> None:
    """--url keeps the tasks, in a queue of their own; QO_URL is never touched."""
    with Program("demo", "--once", "--json", "--url", "sqlite:///kept.db", QO_URL="sqlite:///precious.db") as program:
        assert program.process.stdout is not None
        summary = json.loads(program.process.stdout.read())
        assert program.ends() == 0
    assert summary["ok"] is True
    assert summary["types"]["charge_card"] == {
        "expected": True,
        "completed": 6,
        "failed": 0,
        "unfinished": 0,
        "retried": 12,
    }
    assert not Path("precious.db").exists()
    stats = rows("stats", "--url", "sqlite:///kept.db", "--queue", "demo")[0]
    assert (stats["completed"], stats["failed"], stats["pending"]) == (95, 2, 0)


def test_stream_until_ctrl_c(own_temporary_folder: Path) -> None:
    """Without a terminal it prints a line now and then; Ctrl-C ends it with exit code 0 and cleans up."""
    with Program("demo", COLUMNS="100") as program:
        assert program.process.stdout is not None
        head = [program.process.stdout.readline() for _ in range(3)]
        assert head[0].startswith("dashboard: not in this version yet; watch with:")
        assert "stats" in head[1]
        while "0 completed" in (line := program.process.stdout.readline()):
            pass
        assert "completed" in line
        program.signal(signal.SIGINT)
        assert "ended: " in program.process.stdout.read()
        assert program.ends() == 0
    assert list(own_temporary_folder.iterdir()) == []


def test_a_wrong_outcome_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is a check: with another expectation the exit code is 1 and the line says why."""
    few = {name: demo.KINDS[name] for name in ("notify", "welcome")}
    few["welcome"] = demo.Kind(1, 1, few["welcome"].input, retries=4)
    monkeypatch.setattr(demo, "KINDS", few)
    result = qo("demo", "--once")
    assert result.exit_code == 1
    assert "expected 1 completed, 0 failed, 4 retries" in result.stdout
    assert "not everything went as expected" in result.stdout


def test_wrong_usage() -> None:
    """--json needs an end; a place that is not there is said."""
    assert "is for --once" in refused(2, "demo", "--json")
    assert "no folder" in refused(4, "demo", "--once", "--url", "sqlite:///missing/x.db")
    assert "--once" in ok("demo", "--help")

"""stats, types, workers, pause, resume, rate-limit, migrate, version, completion."""

import json
import platform
import sqlite3
from pathlib import Path

import pytest
from tests.cli.tools import APP, Program, ok, qo, refused, rows, until, work

from qo import __version__


def test_stats() -> None:
    """Numbers for people and, with the same content, for machines."""
    ok("submit", "add", '{"a": 1}', "--priority", "high")
    ok("submit", "other", "--delay", "1h")
    (stats,) = rows("stats")
    assert (stats["pending"], stats["ready"], stats["delayed"], stats["completed"]) == (2, 1, 1, 0)
    assert stats["by_priority"]["high"]["depth"] == 1
    assert stats["by_type"] == {"add": {"pending": 1}, "other": {"pending": 1}}
    shown = ok("stats")
    assert "1 ready, 1 delayed" in shown
    assert "start one with qo worker" in shown
    work()
    assert rows("stats")[0]["throughput"] == 1


def test_types() -> None:
    """Types that wait for a worker stand out."""
    ok("submit", "add", '{"a": 1}')
    (one,) = rows("types")
    assert (one["name"], one["workers"], one["counts"], one["paused"]) == ("add", 0, {"pending": 1}, False)
    assert "none, they wait" in ok("types")


def test_workers(tmp_path: Path) -> None:
    """A running worker is seen with its types and capabilities, and is gone after it stopped."""
    Path("app.py").write_text(APP)
    ok("migrate")
    assert "start one with" in qo("workers").stderr
    with Program("worker", "app:q", "--id", "w1", "--capabilities", "gpu,eu", "-c", "3") as program:
        (worker,) = until(lambda: rows("workers"), "the worker is seen")
        assert (worker["id"], worker["state"], worker["capacity"]) == ("w1", "active", 3)
        assert (worker["pid"], worker["capabilities"]) == (program.process.pid, ["eu", "gpu"])
        assert set(worker["types"]) == {"add", "broken", "gate"}
        shown = ok("workers")
        assert "0/3" in shown
        assert "[eu, gpu]" in shown
        program.process.terminate()
        assert program.ends() == 0
    assert rows("workers") == []


def test_pause_resume_and_rate_limit() -> None:
    """Each answers with all that holds now."""
    assert ok("pause") == "queue default: paused\n"
    assert ok("pause", "add") == "queue default: paused; paused types: add\n"
    assert "the queue is paused" in ok("stats")
    assert ok("resume") == "queue default: not paused; paused types: add\n"
    assert ok("resume", "add") == "queue default: not paused\n"
    ok("rate-limit", "30/m", "add")
    assert rows("rate-limit", "10") == [
        {"paused": False, "paused_types": [], "rate_limit": 10.0, "rate_limits": {"add": 0.5}}
    ]
    assert ok("rate-limit", "0", "add") == "queue default: not paused; at most 10 tasks/s for each worker\n"


@pytest.mark.parametrize("rate", ["fast", "-1", "1/week", "nan", "inf"])
def test_wrong_rate(rate: str) -> None:
    """What is no rate is wrong usage."""
    assert "is not a rate" in refused(2, "rate-limit", "--", rate)


def test_a_paused_queue_runs_nothing() -> None:
    """Pause holds for workers that start later, too."""
    Path("app.py").write_text(APP)
    ok("pause", "add")
    id = ok("submit", "add", '{"a": 1}').strip()
    with Program("worker", "app", "--burst") as program:
        assert program.ends() == 0
    assert rows("status", id)[0]["state"] == "pending"


def test_migrate() -> None:
    """Makes the file; a second time it does nothing."""
    assert ok("migrate") == f"sqlite:///qo.db is ready for qo {__version__}\n"
    assert rows("migrate") == [{"url": "sqlite:///qo.db", "ready": True, "version": __version__}]
    assert rows("list") == []


def test_migrate_sql_can_be_run_by_hand() -> None:
    """--sql prints what makes the tables, and touches nothing."""
    script = ok("migrate", "--sql")
    assert not Path("qo.db").exists()
    connection = sqlite3.connect(":memory:")
    connection.executescript(script)
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    assert "qo_tasks" in tables


def test_version() -> None:
    """qo, Python and SQLite."""
    assert json.loads(ok("version", "--json")) == {
        "qo": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    assert __version__ in ok("version")
    assert ok("--version").strip().endswith(__version__)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    """The script asks qo itself what could follow."""
    assert "_QO_COMPLETE" in ok("completion", shell)


def test_completion_knows_commands_and_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the shell asks is answered."""
    for words, expected in (("qo st", "stats"), ("qo list --state ", "failed"), ("qo list --st", "--state")):
        monkeypatch.setenv("_QO_COMPLETE", "bash_complete")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        answer = qo()
        assert expected in answer.stdout

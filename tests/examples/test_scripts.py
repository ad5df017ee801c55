"""The examples that are plain programs."""

import json
import os
from pathlib import Path

from tests.examples.tools import EXAMPLES, PYTHON, ok, qo, run


def test_script(tmp_path: Path) -> None:
    """It submits, works, prints results and the reason of a failure, and leaves nothing running."""
    printed = ok(PYTHON, EXAMPLES / "script.py", cwd=tmp_path)
    assert printed.splitlines() == [
        "'to be or not to be': not",
        "'all the world is a stage': world",
        "'': there is no word in it",
    ]
    stats = json.loads(qo("stats", "--json", cwd=tmp_path))
    assert (stats["completed"], stats["failed"], stats["pending"], stats["running"]) == (2, 1, 0, 0)


def test_script_with_another_url(tmp_path: Path) -> None:
    """QO_URL is the one thing that changes."""
    ok(PYTHON, EXAMPLES / "script.py", cwd=tmp_path, QO_URL=f"sqlite:///{tmp_path}/elsewhere.db")
    assert (tmp_path / "elsewhere.db").exists()
    assert not (tmp_path / "qo.db").exists()


def test_pull_by_hand(tmp_path: Path) -> None:
    """Complete, fail and retry by hand end as they say."""
    printed = ok(PYTHON, EXAMPLES / "pull_by_hand.py", cwd=tmp_path)
    assert printed.splitlines() == [
        "https://a.example completed 1 {'length': 17}",
        "http://b.example failed 1 not a safe address: http://b.example",
        "https://slow.example completed 2 {'length': 20}",
    ]


def test_cron_twice_does_the_work_once(tmp_path: Path) -> None:
    """However often cron submits and works, a day has one task and one run."""
    day = "2031-05-01"
    assert f"{day}: submitted" in ok(PYTHON, "-m", "examples.cron", "submit", day, cwd=tmp_path)
    assert f"{day}: there already" in ok(PYTHON, "-m", "examples.cron", "submit", day, cwd=tmp_path)
    ok(PYTHON, "-m", "examples.cron", "work", cwd=tmp_path)
    assert (tmp_path / "reports" / f"{day}.txt").read_text() == f"report of {day}\n"
    assert "is completed" in ok(PYTHON, "-m", "examples.cron", "submit", day, cwd=tmp_path)
    qo("worker", "examples.cron:q", "--burst", cwd=tmp_path)
    (line,) = qo("list", "--json", cwd=tmp_path).splitlines()
    assert json.loads(line)["attempt"] == 1


def test_cron_with_the_command_line(tmp_path: Path) -> None:
    """`qo worker --burst` works off what is there and ends."""
    for day in ("2031-05-01", "2031-05-02"):
        ok(PYTHON, "-m", "examples.cron", "submit", day, cwd=tmp_path)
    qo("worker", "examples.cron:q", "--burst", cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "reports").iterdir()) == ["2031-05-01.txt", "2031-05-02.txt"]


def test_cron_says_how_it_is_used(tmp_path: Path) -> None:
    """A wrong word is not taken for another."""
    done = run(PYTHON, "-m", "examples.cron", "wrok", cwd=tmp_path)
    assert done.returncode == 1
    assert "usage:" in done.stderr


def test_testing_your_tasks(tmp_path: Path) -> None:
    """The tests of the example pass under a plain pytest, without the plugins of this project."""
    printed = ok(
        PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", tmp_path,
        EXAMPLES / "testing_your_tasks.py", cwd=tmp_path,
    )  # fmt: skip
    assert "6 passed" in printed

"""The README: its first example runs as it stands, without a server."""

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks_of
from tests.docs.test_pages import environment

from qo.errors import InvalidInput, PartlySubmitted

README = ROOT / "README.md"
FIRST = next(block for block in blocks_of(README) if block.language == "python")


def test_the_first_example_runs(tmp_path: Path) -> None:
    """Copied to a file in an empty directory it submits, runs and prints; nothing else is needed."""
    (tmp_path / "app.py").write_text(FIRST.text)
    command = [sys.executable, "app.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hi sent to ada@example.org\n", "")
    assert (tmp_path / "tasks.db").exists()


def test_the_first_example_is_short() -> None:
    """What a reader sees first fits in a glance."""
    assert len([line for line in FIRST.text.splitlines() if line.strip()]) <= 14


def test_a_wrong_argument_is_an_error_before_anything_is_stored(tmp_path: Path) -> None:
    """The sentence after the example is true."""
    program = FIRST.text.replace('submit(to="ada@example.org")', "submit(too=1)")
    assert program != FIRST.text
    (tmp_path / "app.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert "InvalidInput: send_email: there is no 'too'" in done.stderr or "'to' is missing" in done.stderr
    assert not (tmp_path / "tasks.db").exists()


def test_the_tour_uses_what_exists() -> None:
    """Every method that the tour calls on the queue, a task or a context is there."""
    import qo
    from qo.pull import ClaimedTask

    owners = {
        "q": qo.Queue,
        "task": qo.TaskHandle,
        "ctx": qo.Context,
        "send_email": qo.TaskFunction,
        "one": ClaimedTask,
        "qo": qo,
    }
    for block in blocks_of(README):
        if block.language != "python":
            continue
        for owner, name in re.findall(r"\b(q|task|ctx|send_email|one|qo)\.([a-z]\w+)", block.text):
            there = hasattr(owners[owner], name) or name in getattr(owners[owner], "__slots__", ())
            assert there or name in ("input",), f"{owner}.{name}"
    assert issubclass(InvalidInput, qo.UsageError)
    assert issubclass(PartlySubmitted, qo.StoreError)

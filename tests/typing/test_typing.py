"""User-facing types: pyright reports exactly the errors that the files beside this one expect."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = sorted(path for path in HERE.glob("*.py") if not path.name.startswith("test_"))
PYRIGHT = Path(sys.executable).with_name("pyright")

pytestmark = pytest.mark.slow


def lines_reported(*files: Path) -> list[tuple[str, int, str]]:
    """File, line and rule of all that pyright reports, ignores that are not needed included."""
    if not PYRIGHT.exists() and not os.environ.get("CI"):
        pytest.skip("pyright is not installed")
    command = [str(PYRIGHT), "--outputjson", "--pythonpath", sys.executable, *map(str, files)]
    ran = subprocess.run(command, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("{"), ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert report["summary"]["filesAnalyzed"] == len(files)
    return [
        (Path(one["file"]).name, one["range"]["start"]["line"] + 1, one.get("rule", one["message"]))
        for one in report["generalDiagnostics"]
    ]


def test_right_calls_pass_and_wrong_ones_are_reported() -> None:
    """Every expected error is there, on its line and by its rule, and no other."""
    assert CASES
    assert lines_reported(*CASES) == []


def test_a_missing_and_an_unexpected_error_are_noticed(tmp_path: Path) -> None:
    """The check itself can fail: an expected error that is not there counts, and so does one nobody expects."""
    case = tmp_path / "case.py"
    case.write_text(
        "# pyright: strict, reportUnnecessaryTypeIgnoreComment=true\n"
        "from qo.handlers import Handler\n"
        "def function(x: int) -> None: ...\n"
        "handler = Handler(function)\n"
        "handler.bind(1)  # pyright: ignore[reportArgumentType]\n"
        "handler.bind('x')\n"
        "handler.bind('x')  # pyright: ignore[reportArgumentType]\n"
    )
    reported = lines_reported(case)
    assert sorted((line, rule) for _, line, rule in reported) == [
        (5, "reportUnnecessaryTypeIgnoreComment"),
        (6, "reportArgumentType"),
    ]

"""`qo config` and the frame of the command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from qo import __version__
from qo.cli.main import COMMANDS, exit_code, main
from qo.errors import ConfigError, QoError, StoreError, TaskFailed, TaskNotFound, Unavailable
from qo.settings import PRECEDENCE, ROWS


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*(row.environment for row in ROWS.values()), "S3_BUCKET"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.chdir(tmp_path)


def qo(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_shows_every_setting_with_source_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has a line for each setting, and the precedence stands below it."""
    monkeypatch.setenv("QO_LEASE", "40s")
    Path("pyproject.toml").write_text("[tool.qo]\ntimeout = 600\n")
    result = qo("config")
    assert result.exit_code == 0
    lines = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if line.strip()}
    for name, row in ROWS.items():
        assert lines[name][-1] == row.environment
    assert lines["lease"] == ["40s", "environment", "QO_LEASE"]
    assert lines["timeout"] == ["10m", "pyproject.toml", "QO_TIMEOUT"]
    assert lines["max_input_bytes"] == ["1MiB", "default", "QO_MAX_INPUT_BYTES"]
    assert " > ".join(PRECEDENCE) in result.stdout


def test_nothing_is_cut_off_in_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns names stay whole, so that they can be copied."""
    monkeypatch.setenv("COLUMNS", "80")
    output = qo("config").stdout
    assert all(row.environment in output and name in output for name, row in ROWS.items())


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """--json has values a machine can use, and the warnings."""
    monkeypatch.setenv("QO_KEEP_COMPLETED", "forever")
    monkeypatch.setenv("QO_LEESE", "1")
    answer = json.loads(qo("config", "--json").stdout)
    rows = {row["name"]: row for row in answer["settings"]}
    assert list(rows) == list(ROWS)
    assert rows["lease"] == {
        "name": "lease",
        "value": 20.0,
        "source": "default",
        "environment": "QO_LEASE",
        "help": ROWS["lease"].help,
    }
    assert rows["keep_completed"]["value"] == "forever"
    assert rows["keep_failed"]["value"] is None
    assert answer["precedence"] == list(PRECEDENCE)
    assert answer["warnings"] == ["QO_LEESE is not a setting of qo; did you mean QO_LEASE?"]


@pytest.mark.parametrize("arguments", [("config",), ("config", "--json")])
def test_password_is_hidden(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The password in a URL is never printed."""
    monkeypatch.setenv("QO_URL", "postgresql://me:hunter2@db/qo")
    result = qo(*arguments)
    assert "hunter2" not in result.output
    assert "postgresql://me:***@db/qo" in result.stdout


def test_warnings_go_to_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown variable is warned about beside the table, not in it."""
    monkeypatch.setenv("QO_LEESE", "1")
    result = qo("config")
    assert result.exit_code == 0
    assert "did you mean QO_LEASE?" in result.stderr
    assert "QO_LEESE" not in result.stdout


def test_wrong_setting_is_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ConfigError is one clear line on stderr, no traceback."""
    monkeypatch.setenv("QO_LEASE", "-3")
    result = qo("config")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == "qo: QO_LEASE: '-3' is not a duration above 0; write seconds or 10s, 5m, 24h, 7d\n"


def test_installed_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script that pip installs runs, and leaves with the exit code of the error."""
    script = Path(sys.executable).with_name("qo")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, f"qo, version {__version__}")
    monkeypatch.setenv("QO_CONCURRENCY", "0")
    done = subprocess.run([script, "config"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("qo: QO_CONCURRENCY: '0'")
    assert "Traceback" not in done.stderr


def test_wrong_usage_is_exit_code_2() -> None:
    """An unknown command or option is wrong usage."""
    assert qo("nonsense").exit_code == 2
    assert qo("config", "--nonsense").exit_code == 2


def test_every_command_can_be_found_and_explains_itself() -> None:
    """Each name in COMMANDS is a module with a command of that name and a help text."""
    for name in COMMANDS:
        result = qo(name, "--help")
        assert result.exit_code == 0
        assert result.stdout.startswith(f"Usage: qo {name}")


@pytest.mark.parametrize(
    ("error", "code"),
    [(ConfigError("x"), 2), (TaskNotFound("x"), 3), (Unavailable("x"), 4), (StoreError("x"), 1), (TaskFailed("x"), 1)],
)
def test_exit_codes(error: QoError, code: int) -> None:
    """1 failed, 2 wrong usage, 3 not found, 4 store not reachable."""
    assert exit_code(error) == code

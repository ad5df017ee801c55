"""The frame: help, suggestions, errors and exit codes, for every command."""

from pathlib import Path

import pytest
from tests.cli.tools import ok, qo, refused

from qo.cli.main import ALIASES, COMMANDS, SECTIONS

ID = "01900000-0000-7000-8000-000000000000"
NEEDS_STORE: dict[str, tuple[str, ...]] = {
    "submit": ("add",),
    "result": (ID,),
    "status": (ID,),
    "history": (ID,),
    "list": (),
    "cancel": (ID,),
    "replay": (ID,),
    "archive": (ID,),
    "unarchive": (ID,),
    "delete": (ID,),
    "purge": ("--older-than", "1d", "--yes"),
    "stats": (),
    "types": (),
    "pause": (),
    "resume": (),
    "rate-limit": ("1",),
    "workers": (),
    "monitor": ("--once",),
    "migrate": (),
}


def test_every_command_that_needs_a_store_is_tested_here() -> None:
    """A new command has to say how it behaves without its store."""
    assert {*NEEDS_STORE, "worker", "demo", "config", "completion", "version"} == set(COMMANDS)


@pytest.mark.parametrize("command", NEEDS_STORE)
def test_store_not_reachable(command: str) -> None:
    """A folder that is not there: exit code 4, one line, whatever the command."""
    assert "no folder" in refused(4, command, *NEEDS_STORE[command], "--url", "sqlite:///missing/qo.db")


@pytest.mark.parametrize("command", NEEDS_STORE)
def test_store_that_cannot_be_meant(command: str) -> None:
    """A URL nobody serves, or memory that ends with the command: exit code 2."""
    assert "no store for nosuch://" in refused(2, "--url", "nosuch://x", command, *NEEDS_STORE[command])
    assert "lives inside one process" in refused(2, command, *NEEDS_STORE[command], "--url", "memory://")


@pytest.mark.parametrize("command", [name for name in NEEDS_STORE if name not in ("submit", "migrate", "monitor")])
def test_looking_makes_no_file(command: str) -> None:
    """In the wrong folder one is told so, and nothing is left behind."""
    result = qo(command, *NEEDS_STORE[command])
    if command in ("pause", "rate-limit"):
        assert result.exit_code == 0
        return
    assert result.exit_code == 4
    assert "there is no queue at sqlite:///qo.db" in result.stderr
    assert list(Path().iterdir()) == []


def test_environment_names_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """QO_URL is used, and --url goes before it."""
    monkeypatch.setenv("QO_URL", "sqlite:///other.db")
    ok("migrate")
    assert Path("other.db").exists()
    ok("migrate", "--url", "sqlite:///third.db")
    assert Path("third.db").exists()


def test_a_file_that_is_no_database() -> None:
    """Somebody else's file is refused, not overwritten."""
    Path("qo.db").write_text("not a database at all, just some text\n" * 100)
    refused(1, "list")
    assert Path("qo.db").read_text().startswith("not a database")


def test_qo_alone_shows_the_commands_in_groups() -> None:
    """Help on stdout, exit code 0, every command with a line of its own that is not cut."""
    text = ok()
    assert text == ok("--help")
    for title, names in SECTIONS.items():
        assert f"\n{title}:\n" in text
        for name in names:
            assert f"\n  {name} " in text
    assert "..." not in text.partition("Tasks:")[2]


@pytest.mark.parametrize("name", [*COMMANDS, *ALIASES])
def test_every_command_explains_itself(name: str) -> None:
    """--help of each command, with its options described."""
    text = ok(name, "--help")
    assert text.startswith(f"Usage: qo {name}")
    assert all(line.strip() for line in text.splitlines()[:1])


@pytest.mark.parametrize(
    ("typo", "meant"), [("lits", "list"), ("stat", "stats"), ("repaly", "replay"), ("wrkers", "workers")]
)
def test_typos(typo: str, meant: str) -> None:
    """A mistyped command gets a suggestion."""
    assert meant in refused(2, typo).partition("did you mean ")[2]


def test_nonsense() -> None:
    """What resembles nothing points at the list."""
    assert "`qo` alone lists them" in refused(2, "xyzzy")
    assert "--nonsense" in refused(2, "--nonsense")


def test_unknown_settings_are_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistyped variable is said once on stderr and does not disturb the answer."""
    ok("migrate")
    monkeypatch.setenv("QO_LEESE", "1")
    result = qo("list", "--json")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "qo: warning: QO_LEESE is not a setting of qo; did you mean QO_LEASE?\n"

"""Settings: every row of the table, where values come from, and what is said about wrong ones."""

import math
from pathlib import Path

import pytest
from msgspec import UNSET

from qo.errors import ConfigError, InvalidInput
from qo.retry import PRESETS, RetryPolicy
from qo.settings import LEVEL_PRESETS, PRECEDENCE, ROWS, Settings, Sourced, level_defaults, load, resolve

# REQUIREMENTS, "Defaults": setting, environment, default.
TABLE = [
    ("url", "QO_URL", "sqlite:///qo.db"),
    ("max_retries", "QO_MAX_RETRIES", 3),
    ("timeout", "QO_TIMEOUT", 300.0),
    ("lease", "QO_LEASE", 20.0),
    ("renew", "QO_RENEW", 5.0),
    ("max_losses", "QO_MAX_LOSSES", 10),
    ("concurrency", "QO_CONCURRENCY", 10),
    ("poll_min", "QO_POLL_MIN", 0.1),
    ("poll_max", "QO_POLL_MAX", 5.0),
    ("shutdown_deadline", "QO_SHUTDOWN_DEADLINE", 30.0),
    ("heartbeat", "QO_HEARTBEAT", 10.0),
    ("worker_dead_after", "QO_MONITOR_WORKER_HEALTH_THRESHOLD", 30.0),
    ("upkeep_interval", "QO_MONITOR_CHECK_INTERVAL", None),
    ("sweep_interval", "QO_MONITOR_SWEEP_INTERVAL", 300.0),
    ("key_window", "QO_KEY_WINDOW", 24 * 3600.0),
    ("keep_completed", "QO_KEEP_COMPLETED", None),
    ("keep_failed", "QO_KEEP_FAILED", None),
    ("ready_page_size", "QO_READY_PAGE_SIZE", 100),
    ("sweep_page_size", "QO_MONITOR_SWEEP_PAGE_SIZE", 1000),
    ("max_clock_skew_ms", "QO_MAX_CLOCK_SKEW_MS", 1000),
    ("max_input_bytes", "QO_MAX_INPUT_BYTES", 1024 * 1024),
    ("max_output_bytes", "QO_MAX_OUTPUT_BYTES", 1024 * 1024),
    ("log", "QO_LOG", "info"),
    ("log_format", "QO_LOG_FORMAT", "text"),
]


def test_table_is_the_one_in_the_requirements() -> None:
    """Names, environment names and defaults are those of REQUIREMENTS, no more and no less."""
    settings = Settings.load()
    assert [(name, row.environment, getattr(settings, name)) for name, row in ROWS.items()] == TABLE


def test_defaults_agree_however_they_are_made() -> None:
    """Loading from nothing gives the defaults of the class."""
    assert Settings.load({}, "") == Settings()
    assert {Settings().sourced(name).source for name in ROWS} == {"default"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20", 20.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("100ms", 0.1),
        ("10s", 10.0),
        ("5m", 300.0),
        ("24h", 86_400.0),
        ("7d", 604_800.0),
        (" 5 M ", 300.0),
    ],
)
def test_durations(text: str, expected: float) -> None:
    """A duration is seconds or a number with a unit."""
    assert Settings.load({"QO_KEY_WINDOW": text}).key_window == pytest.approx(expected)


@pytest.mark.parametrize(
    "text", ["-3", "0", "soon", "1h30m", "5 minutes", "nan", "inf", "1e9", "99999999d", "none", "٣s"]
)
def test_wrong_duration_is_explained(text: str) -> None:
    """The message names the variable, repeats the value and says what to write."""
    with pytest.raises(ConfigError) as caught:
        Settings.load({"QO_LEASE": text})
    assert str(caught.value) == f"QO_LEASE: {text!r} is not a duration above 0; write seconds or 10s, 5m, 24h, 7d"


@pytest.mark.parametrize(("text", "expected"), [("512", 512), ("64KiB", 65_536), ("1mib", 2**20), ("2 GiB", 2**31)])
def test_sizes(text: str, expected: int) -> None:
    """A size is bytes or a number with a binary unit."""
    assert Settings.load({"QO_MAX_INPUT_BYTES": text}).max_input_bytes == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("QO_MAX_INPUT_BYTES", "1MB"),
        ("QO_MAX_INPUT_BYTES", "0"),
        ("QO_MAX_RETRIES", "-1"),
        ("QO_MAX_RETRIES", "3.5"),
        ("QO_CONCURRENCY", "0"),
        ("QO_CONCURRENCY", "many"),
        ("QO_LOG", "loud"),
        ("QO_LOG_FORMAT", "xml"),
        ("QO_URL", " "),
        ("QO_READY_PAGE_SIZE", "none"),
        ("QO_TIMEOUT", "0"),
        ("QO_KEEP_FAILED", "always"),
    ],
)
def test_wrong_values_name_their_source(name: str, text: str) -> None:
    """Every kind of setting refuses what it cannot mean, by the name of the variable."""
    with pytest.raises(ConfigError, match=f"^{name}: '{text}' is not "):
        Settings.load({name: text})


def test_none_and_forever() -> None:
    """`none` where the table allows it, `forever` for retention."""
    settings = Settings.load({"QO_TIMEOUT": "None", "QO_KEEP_COMPLETED": "forever", "QO_KEEP_FAILED": "none"})
    assert settings.timeout is None
    assert settings.keep_completed == math.inf
    assert settings.keep_failed is None
    assert settings.sourced("keep_failed") == Sourced(None, "environment QO_KEEP_FAILED")


def test_zero_where_it_means_off() -> None:
    """0 turns the sweep and the key window off, forbids retries, and gives back at once at shutdown."""
    off = Settings.load(
        {"QO_MONITOR_SWEEP_INTERVAL": "0", "QO_KEY_WINDOW": "0", "QO_MAX_RETRIES": "0", "QO_SHUTDOWN_DEADLINE": "0"}
    )
    assert (off.sweep_interval, off.key_window, off.max_retries, off.shutdown_deadline) == (0, 0, 0, 0)


def test_environment_beats_pyproject_beats_default() -> None:
    """Each value has the most specific source that said it."""
    settings = Settings.load(
        {"QO_LEASE": "40s", "QO_LOG": ""}, '[tool.qo]\nlease = 60\ntimeout = "10m"\nlog = "debug"\n'
    )
    assert settings.sourced("lease") == Sourced(40.0, "environment QO_LEASE")
    assert settings.sourced("timeout") == Sourced(600.0, "pyproject.toml")
    assert settings.sourced("log") == Sourced("debug", "pyproject.toml"), "an empty variable says nothing"
    assert settings.sourced("concurrency") == Sourced(10, "default")


@pytest.mark.parametrize("value", ["true", "[1]", "2030-01-01", "-1", "'many'", "1.5"])
def test_wrong_pyproject_value_names_its_place(value: str) -> None:
    """TOML's own types are checked like text is, booleans included."""
    with pytest.raises(ConfigError, match=r"^pyproject.toml, \[tool.qo\] concurrency: .* is not a whole number"):
        Settings.load({}, f"[tool.qo]\nconcurrency = {value}\n")


def test_broken_pyproject() -> None:
    """Text that is no TOML, or a [tool.qo] that is no table, is a ConfigError; a project without one is fine."""
    with pytest.raises(ConfigError, match="not valid TOML"):
        Settings.load({}, "[tool.qo\n")
    with pytest.raises(ConfigError, match="must be a table"):
        Settings.load({}, "[tool]\nqo = 3\n")
    assert Settings.load({}, "tool = 3\n") == Settings()
    assert Settings.load({}, "[project]\nname = 'x'\n") == Settings()


def test_url_from_bucket() -> None:
    """S3_BUCKET stands in for QO_URL, beats pyproject, and loses to QO_URL."""
    pyproject = '[tool.qo]\nurl = "memory://"\n'
    assert Settings.load({"S3_BUCKET": "b"}, pyproject).sourced("url") == Sourced("s3://b", "environment S3_BUCKET")
    assert Settings.load({"S3_BUCKET": "b", "QO_URL": "redis://h"}, pyproject).url == "redis://h"


def test_unknown_names_are_returned_as_warnings() -> None:
    """A misspelt variable or key is reported with what was probably meant, and stops nothing."""
    settings = Settings.load(
        {"QO_LEESE": "3", "QO_ALLOW_NO_VERSIONING": "1", "PATH": "x"}, "[tool.qo]\nleas = 3\nzz = 1\n"
    )
    assert settings.warnings == (
        "pyproject.toml, [tool.qo] leas is not a setting of qo; did you mean lease?",
        "pyproject.toml, [tool.qo] zz is not a setting of qo; `qo config` lists them all",
        "QO_LEESE is not a setting of qo; did you mean QO_LEASE?",
    )


def test_partners_follow() -> None:
    """A shorter lease is renewed more often, a longer heartbeat dies later, unless both are said."""
    assert Settings.load({"QO_LEASE": "4s"}).renew == 1.0
    assert Settings.load({"QO_LEASE": "10m"}).renew == 5.0
    assert Settings.load({"QO_HEARTBEAT": "30s"}).worker_dead_after == 90.0
    said = Settings.load({"QO_HEARTBEAT": "30s", "QO_MONITOR_WORKER_HEALTH_THRESHOLD": "60s"})
    assert said.worker_dead_after == 60.0


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"QO_RENEW": "20s"}, r"renew \(20s, environment QO_RENEW\) must be below lease \(20s, default\)"),
        ({"QO_MONITOR_WORKER_HEALTH_THRESHOLD": "5s"}, r"heartbeat \(10s, default\) must be below worker_dead_after"),
        ({"QO_POLL_MIN": "10s"}, r"poll_min \(10s, .*\) must be at most poll_max \(5s, default\)"),
    ],
)
def test_partners_that_contradict(env: dict[str, str], message: str) -> None:
    """Two settings that cannot hold together are refused, with both values and their sources."""
    with pytest.raises(ConfigError, match=message):
        Settings.load(env)


def test_override() -> None:
    """Arguments beat the environment, are checked, and UNSET leaves a setting as it is."""
    settings = Settings.load({"QO_LEASE": "40s", "QO_LOG": "debug"}).override(lease="8s", log=UNSET, timeout=None)
    assert settings.sourced("lease") == Sourced(8.0, "argument")
    assert settings.sourced("log") == Sourced("debug", "environment QO_LOG")
    assert settings.sourced("timeout") == Sourced(None, "argument")
    assert settings.renew == 2.0
    with pytest.raises(ConfigError, match="^argument concurrency: 0 is not"):
        settings.override(concurrency=0)
    with pytest.raises(ConfigError, match="did you mean concurrency"):
        settings.override(concurency=3)


def test_resolve_walks_the_whole_chain() -> None:
    """Argument, task, type, priority level, queue, environment, pyproject, default: the first that speaks wins."""
    settings = Settings.load({"QO_MAX_RETRIES": "16"}, "[tool.qo]\nmax_retries = 17\n")
    said: dict[str, object] = {"argument": 11, "task": 12, "type": 13, "level": 14, "queue": 15}
    seen = []
    while said:
        seen.append(resolve("max_retries", settings=settings, **said))  # pyright: ignore
        del said[next(iter(said))]
    seen.append(resolve("max_retries", settings=settings))
    seen.append(resolve("max_retries", settings=Settings.load({}, "[tool.qo]\nmax_retries = 17\n")))
    seen.append(resolve("max_retries", settings=Settings()))
    assert [one.value for one in seen] == [11, 12, 13, 14, 15, 16, 17, 3]
    assert [one.source.removesuffix(" QO_MAX_RETRIES") for one in seen] == list(PRECEDENCE)


def test_resolve_knows_none_from_nothing() -> None:
    """None is a timeout (no limit) that beats what stands below; UNSET is nobody speaking."""
    settings = Settings()
    assert resolve("timeout", argument=None, type=30, settings=settings) == Sourced(None, "argument")
    assert resolve("timeout", argument=UNSET, type=30, settings=settings) == Sourced(30.0, "type")
    assert resolve("timeout", argument=UNSET, settings=settings) == Sourced(300.0, "default")
    with pytest.raises(ConfigError, match="^argument max_retries: None is not"):
        resolve("max_retries", argument=None, settings=settings)


def test_resolve_checks_what_is_said() -> None:
    """A wrong value is refused where it is said, durations may be text."""
    settings = Settings()
    assert resolve("key_window", queue="7d", settings=settings) == Sourced(604_800.0, "queue")
    with pytest.raises(ConfigError, match="^type timeout: -1 is not a duration above 0"):
        resolve("timeout", type=-1, settings=settings)


def test_resolve_priority_and_retry() -> None:
    """What only tasks have: checked the same way, with defaults of their own."""
    settings = Settings()
    assert resolve("priority", settings=settings) == Sourced("medium", "default")
    assert resolve("priority", type="high", queue="low", settings=settings) == Sourced("high", "type")
    assert resolve("retry", settings=settings) == Sourced(RetryPolicy(), "default")
    assert resolve("retry", task="d", settings=settings) == Sourced(PRESETS["d"], "task")
    own = RetryPolicy(initial=9)
    assert resolve("retry", argument=own, task="d", settings=settings).value is own
    with pytest.raises(ConfigError, match="RetryPolicy or the name of a preset"):
        resolve("retry", argument=5, settings=settings)
    with pytest.raises(InvalidInput, match="no priority 'urgent'"):
        resolve("priority", argument="urgent", settings=settings)


def test_levels_of_document_b() -> None:
    """`levels="b"` gives 5/3/2 retries and 300/600/900 s, below the type and above the queue."""
    assert {level: (one.max_retries, one.timeout) for level, one in LEVEL_PRESETS["b"].items()} == {
        "high": (5, 300.0),
        "medium": (3, 600.0),
        "low": (2, 900.0),
    }
    level = level_defaults("b", "low")
    assert level is not None
    assert resolve("timeout", level=level.timeout, queue=1, settings=Settings()) == Sourced(900.0, "priority level")
    assert level_defaults("b", 7) == LEVEL_PRESETS["b"]["high"]
    assert level_defaults("b", -7) == LEVEL_PRESETS["b"]["low"]
    assert level_defaults("b", 0) == LEVEL_PRESETS["b"]["medium"]
    assert level_defaults(None, "high") is None
    with pytest.raises(ConfigError, match="no levels preset 'z'; there is b"):
        level_defaults("z", "high")


def test_load_at_the_edge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`load` reads the real environment and the nearest pyproject.toml above."""
    for row in ROWS.values():
        monkeypatch.delenv(row.environment, raising=False)
    monkeypatch.setenv("QO_CONCURRENCY", "7")
    (tmp_path / "pyproject.toml").write_text("[tool.qo]\nmax_retries = 9\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    settings = load(below)
    assert (settings.concurrency, settings.max_retries) == (7, 9)
    (below / "pyproject.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"pyproject.toml: cannot be read"):
        load(below)

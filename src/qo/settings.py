"""Every setting of qo: name, environment variable, default, meaning; and where a value comes from.

The table is the class `Settings`; `qo config` prints it and docs/reference/settings.md describes it. The most specific
source wins, see `PRECEDENCE`; the client asks `resolve`. Pure: `Settings.load` reads the mapping and the text it is
handed. Only `load()` at the end, for programs and the command line, reads the real environment and pyproject.toml.
"""

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar, Unpack, cast, get_type_hints, overload

import msgspec
from msgspec import UNSET

from qo.errors import ConfigError
from qo.ordering import Level, Priority, check_priority
from qo.retry import RetryPolicy, preset
from qo.units import DURATION, DURATION_OR_ZERO, SIZE, TEXT, Kind, choice, count, or_word, show_seconds

PRECEDENCE = ("argument", "task", "type", "priority level", "queue", "environment", "pyproject.toml", "default")
"""Who is asked first; the first that says something wins."""

# Read where they are needed, not settings of the core, but no typing errors either.
OTHER_ENVIRONMENT = frozenset({"QO_ALLOW_NO_VERSIONING", "QO_NO_MONITOR"})

T = TypeVar("T")


class Sourced(msgspec.Struct, Generic[T], frozen=True):
    """A value and who said it."""

    value: T
    source: str


class Row(msgspec.Struct, frozen=True):
    """What is known of one setting beside its name, type and default."""

    environment: str
    kind: Kind
    help: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Every setting, in seconds and bytes. Made by `load` and changed by `override`, which check the values."""

    url: Annotated[str, Row("QO_URL", TEXT, "where the queue lives; without it S3_BUCKET=name means s3://name")] = (
        "sqlite:///qo.db"
    )
    max_retries: Annotated[
        int, Row("QO_MAX_RETRIES", count(0), "failures a task may have before it ends as failed")
    ] = 3
    timeout: Annotated[
        float | None, Row("QO_TIMEOUT", or_word(DURATION, "none", None), "how long one attempt may run; none: no limit")
    ] = 300.0
    lease: Annotated[float, Row("QO_LEASE", DURATION, "how long the silence of a worker is believed")] = 20.0
    renew: Annotated[
        float, Row("QO_RENEW", DURATION, "how often a lease is renewed; at most a quarter of a lease unless said")
    ] = 5.0
    max_losses: Annotated[
        int, Row("QO_MAX_LOSSES", count(0), "leases of a task that may run out before it ends as failed (lost)")
    ] = 10
    concurrency: Annotated[int, Row("QO_CONCURRENCY", count(1), "tasks a worker process runs at a time")] = 10
    poll_min: Annotated[float, Row("QO_POLL_MIN", DURATION, "first pause of a worker that found nothing")] = 0.1
    poll_max: Annotated[float, Row("QO_POLL_MAX", DURATION, "longest pause of a worker that finds nothing")] = 5.0
    shutdown_deadline: Annotated[
        float, Row("QO_SHUTDOWN_DEADLINE", DURATION_OR_ZERO, "how long a stopping worker waits for what still runs")
    ] = 30.0
    heartbeat: Annotated[float, Row("QO_HEARTBEAT", DURATION, "how often a worker reports that it lives")] = 10.0
    worker_dead_after: Annotated[
        float,
        Row(
            "QO_MONITOR_WORKER_HEALTH_THRESHOLD",
            DURATION,
            "silence after which a worker is shown dead; three heartbeats unless said",
        ),
    ] = 30.0
    upkeep_interval: Annotated[
        float | None,
        Row(
            "QO_MONITOR_CHECK_INTERVAL",
            or_word(DURATION, "none", None),
            "how often expired leases are looked for; none: as the store likes, 2s, buckets 30s",
        ),
    ] = None
    sweep_interval: Annotated[
        float, Row("QO_MONITOR_SWEEP_INTERVAL", DURATION_OR_ZERO, "how often indexes are swept and repaired; 0: never")
    ] = 300.0
    key_window: Annotated[
        float, Row("QO_KEY_WINDOW", DURATION_OR_ZERO, "how long an idempotency key keeps others out")
    ] = 86_400.0
    keep_completed: Annotated[
        float | None,
        Row(
            "QO_KEEP_COMPLETED",
            or_word(or_word(DURATION_OR_ZERO, "forever", float("inf")), "none", None),
            "how long completed tasks are kept; none: as the store likes, forever, Redis 7d, a document 1h",
        ),
    ] = None
    keep_failed: Annotated[
        float | None,
        Row(
            "QO_KEEP_FAILED",
            or_word(or_word(DURATION_OR_ZERO, "forever", float("inf")), "none", None),
            "how long failed tasks are kept; none: as the store likes, forever, Redis 30d, a document 1h",
        ),
    ] = None
    ready_page_size: Annotated[int, Row("QO_READY_PAGE_SIZE", count(1), "index entries read at a time by a claim")] = (
        100
    )
    sweep_page_size: Annotated[
        int, Row("QO_MONITOR_SWEEP_PAGE_SIZE", count(1), "entries read at a time by a sweep")
    ] = 1000
    max_clock_skew_ms: Annotated[
        int, Row("QO_MAX_CLOCK_SKEW_MS", count(0), "difference to the store's clock to warn at; ten times it: refuse")
    ] = 1000
    max_input_bytes: Annotated[int, Row("QO_MAX_INPUT_BYTES", SIZE, "largest input of a task")] = 1024 * 1024
    max_output_bytes: Annotated[int, Row("QO_MAX_OUTPUT_BYTES", SIZE, "largest output of a task")] = 1024 * 1024
    log: Annotated[
        str, Row("QO_LOG", choice("debug", "info", "warning", "error"), "least important level that is logged")
    ] = "info"
    log_format: Annotated[str, Row("QO_LOG_FORMAT", choice("text", "json"), "text for people, json for machines")] = (
        "text"
    )

    sources: dict[str, str] = {}
    """Who said what; a setting that is missing here has its default."""
    warnings: tuple[str, ...] = ()
    """What looked wrong while loading but stops nothing; for the caller to show."""

    @staticmethod
    def load(env: Mapping[str, str] | None = None, pyproject: str | None = None) -> "Settings":
        """Settings from an environment and the text of a pyproject.toml. Raises ConfigError, which names the source."""
        said: dict[str, Sourced[Any]] = {}
        warnings: list[str] = []
        for name, value in _tool_table(pyproject).items():
            if name in ROWS:
                said[name] = Sourced(parse(name, value, f"pyproject.toml, [tool.qo] {name}"), "pyproject.toml")
            else:
                warnings.append(f"pyproject.toml, [tool.qo] {name} is not a setting of qo{_meant(name, ROWS)}")
        env = env or {}
        for name, row in ROWS.items():
            # Empty counts as not said: compose files and shells often cannot leave a variable out.
            if value := env.get(row.environment):
                said[name] = Sourced(parse(name, value, row.environment), f"environment {row.environment}")
        if not env.get("QO_URL") and (bucket := env.get("S3_BUCKET")):
            said["url"] = Sourced(f"s3://{bucket}", "environment S3_BUCKET")
        known = {row.environment for row in ROWS.values()} | OTHER_ENVIRONMENT
        unknown = sorted(name for name in env if name.startswith("QO_") and name not in known)
        warnings.extend(f"{name} is not a setting of qo{_meant(name, known)}" for name in unknown)
        return _build(said, tuple(warnings))

    def override(self, source: str = "argument", **values: object) -> "Settings":
        """The same with some settings said anew, checked. UNSET leaves one as it is."""
        said = {name: self.sourced(name) for name in self.sources}
        for name, value in values.items():
            if name not in ROWS:
                raise ConfigError(f"{name} is not a setting of qo{_meant(name, ROWS)}")
            if value is not UNSET:
                said[name] = Sourced(parse(name, value, f"{source} {name}"), source)
        return _build(said, self.warnings)

    def sourced(self, name: str) -> Sourced[Any]:
        """The value of one setting and who said it."""
        return Sourced(getattr(self, name), self.sources.get(name, "default"))


def _rows() -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        for extra in getattr(hint, "__metadata__", ()):
            if isinstance(extra, Row):
                rows[name] = extra
    return rows


ROWS: dict[str, Row] = _rows()
"""What is known of each setting, by name, in the order of the class."""


def parse(name: str, value: object, where: str) -> object:
    """A value for that setting as text, number or itself; ConfigError names `where` it was said."""
    kind = ROWS[name].kind
    try:
        return kind.parse(value)
    except ValueError:
        raise ConfigError(f"{where}: {value!r} is not {kind.words}") from None


def _tool_table(pyproject: str | None) -> dict[str, object]:
    try:
        tool: object = tomllib.loads(pyproject or "").get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"pyproject.toml: not valid TOML: {error}") from error
    table: object = cast(dict[str, object], tool).get("qo", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigError("pyproject.toml: tool.qo must be a table; write [tool.qo] and one setting a line below it")
    return cast(dict[str, object], table)


def _meant(name: str, known: Mapping[str, object] | set[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.75)
    return f"; did you mean {' or '.join(close)}?" if close else "; `qo config` lists them all"


def _build(said: dict[str, Sourced[Any]], warnings: tuple[str, ...]) -> Settings:
    values = {name: one.value for name, one in said.items()}
    sources = {name: one.source for name, one in said.items()}
    defaults = Settings()
    lease, heartbeat = values.get("lease", defaults.lease), values.get("heartbeat", defaults.heartbeat)
    # Two defaults follow their partner, so that changing one setting is enough: a lease shorter than its renewal would
    # be lost at once, and a worker must miss three heartbeats before it is called dead.
    if "renew" not in sources:
        values["renew"] = min(defaults.renew, lease / 4)
    if "worker_dead_after" not in sources:
        values["worker_dead_after"] = 3 * heartbeat
    settings = msgspec.convert(values | {"sources": sources, "warnings": warnings}, Settings)
    _in_order(settings, "renew", "lease", "a lease must be renewed before it runs out", strict=True)
    _in_order(settings, "heartbeat", "worker_dead_after", "a worker must be able to report in time", strict=True)
    _in_order(settings, "poll_min", "poll_max", "the pause grows from the first to the second", strict=False)
    return settings


def _in_order(settings: Settings, low: str, high: str, why: str, *, strict: bool) -> None:
    first, second = settings.sourced(low), settings.sourced(high)
    if first.value > second.value or (strict and first.value == second.value):
        relation = "below" if strict else "at most"
        small, large = (f"{show_seconds(one.value)}, {one.source}" for one in (first, second))
        raise ConfigError(f"{low} ({small}) must be {relation} {high} ({large}): {why}")


class Said(TypedDict, total=False):
    """What each step above the settings says of one name; UNSET or left out: nothing. None is a value."""

    argument: object
    task: object
    type: object
    level: object
    queue: object


_STEPS = {"argument": "argument", "task": "task", "type": "type", "level": "priority level", "queue": "queue"}


def _retry(value: object) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if isinstance(value, str):
        return preset(value)
    raise ConfigError(f"retry: {value!r} is not a RetryPolicy or the name of a preset")


# Said for tasks only, never by the environment: no row in the table.
_OF_TASKS: dict[str, tuple[Callable[[object], object], object]] = {
    "priority": (check_priority, "medium"),
    "retry": (_retry, RetryPolicy()),
}


@overload
def resolve(name: Literal["max_retries"], *, settings: Settings, **said: Unpack[Said]) -> Sourced[int]: ...
@overload
def resolve(name: Literal["timeout"], *, settings: Settings, **said: Unpack[Said]) -> Sourced[float | None]: ...
@overload
def resolve(name: Literal["key_window"], *, settings: Settings, **said: Unpack[Said]) -> Sourced[float]: ...
@overload
def resolve(name: Literal["priority"], *, settings: Settings, **said: Unpack[Said]) -> Sourced[Priority]: ...
@overload
def resolve(name: Literal["retry"], *, settings: Settings, **said: Unpack[Said]) -> Sourced[RetryPolicy]: ...
def resolve(name: str, *, settings: Settings, **said: Unpack[Said]) -> Sourced[Any]:
    """The value that holds for one task, and who said it: the first step of PRECEDENCE that says something."""
    for step, label in _STEPS.items():
        value = said.get(step, UNSET)
        if value is not UNSET:
            if name in _OF_TASKS:
                return Sourced(_OF_TASKS[name][0](value), label)
            return Sourced(parse(name, value, f"{label} {name}"), label)
    if name in _OF_TASKS:
        return Sourced(_OF_TASKS[name][1], "default")
    return settings.sourced(name)


class LevelDefaults(msgspec.Struct, frozen=True):
    """What a priority level says for its tasks."""

    max_retries: int
    timeout: float


LEVEL_PRESETS: dict[str, dict[Level, LevelDefaults]] = {
    "b": {"high": LevelDefaults(5, 300.0), "medium": LevelDefaults(3, 600.0), "low": LevelDefaults(2, 900.0)},
}


def level_defaults(levels: str | None, priority: Priority) -> LevelDefaults | None:
    """What that preset says for a priority (an int counts as the level on its side of medium); None: nothing."""
    if levels is None:
        return None
    if levels not in LEVEL_PRESETS:
        raise ConfigError(f"no levels preset {levels!r}; there is {', '.join(LEVEL_PRESETS)}")
    if isinstance(priority, int):
        priority = "high" if priority > 0 else "low" if priority < 0 else "medium"
    return LEVEL_PRESETS[levels][priority]


def load(directory: Path | None = None) -> Settings:
    """Settings from this process's environment and the nearest pyproject.toml at or above the directory (here)."""
    start = (directory or Path.cwd()).resolve()
    file = next((path for folder in (start, *start.parents) if (path := folder / "pyproject.toml").is_file()), None)
    try:
        text = file.read_text("utf-8") if file else None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    return Settings.load(os.environ, text)

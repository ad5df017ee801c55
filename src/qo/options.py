"""What can be said of a type of tasks or of one task: retries, timeout, priority and so on, checked. No I/O."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack, cast

import msgspec
from msgspec import UNSET, UnsetType

from qo.errors import ConfigError, InvalidInput
from qo.lifecycle import MAX_TAGS
from qo.ordering import Priority, check_priority
from qo.retry import Preset, RetryPolicy, preset
from qo.task import check_name
from qo.units import DURATION, DURATION_OR_ZERO, Kind, choice, count

Isolation = Literal["async", "thread", "process"]
Duration = float | timedelta | str
"""Seconds, a timedelta, or text such as 10s, 5m, 24h."""

_LONGEST_TIMEOUT = 366 * 86_400


class TaskOptions(TypedDict, total=False):
    """What can be said of a type and of one task alike."""

    max_retries: int
    timeout: Duration | None
    priority: Priority
    retry: RetryPolicy | Preset
    requires: Iterable[str]
    tags: Mapping[str, str]
    key_window: Duration
    delay: Duration


class CallOptions(TaskOptions, total=False):
    """What can be said of one task: `submit(…)`, `options(…)`."""

    key: str | None
    run_after: datetime | None


class TypeOptions(TaskOptions, total=False):
    """What can be said of a type: `@q.task(…)`."""

    concurrency: int
    rate_limit: float
    isolation: Isolation


class AnyOptions(CallOptions, TypeOptions, total=False):
    """All of them."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was said of a type or a task, checked; UNSET is what was not said. Made by `Options.of`.

    None is a real value: no timeout, no key, no time to wait for.
    """

    max_retries: int | UnsetType = UNSET
    timeout: float | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    retry: RetryPolicy | UnsetType = UNSET
    requires: tuple[str, ...] | UnsetType = UNSET
    tags: dict[str, str] | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_window: float | UnsetType = UNSET
    delay: float | UnsetType = UNSET
    run_after: datetime | UnsetType | None = UNSET
    concurrency: int | UnsetType = UNSET
    rate_limit: float | UnsetType = UNSET
    isolation: Isolation | UnsetType = UNSET

    @staticmethod
    def of(**given: Unpack[AnyOptions]) -> "Options":
        """Checked options. Raises InvalidInput for what concerns tasks, ConfigError for what concerns their type."""
        if unknown := [name for name in given if name not in _CHECKS]:
            close = difflib.get_close_matches(unknown[0], _CHECKS, n=1)
            raise ConfigError(f"there is no option {unknown[0]!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        if given.get("delay", UNSET) is not UNSET and given.get("run_after") not in (None, UNSET):
            raise InvalidInput("delay and run_after both say when to run; give one of them")
        said = {name: value if value is UNSET else _CHECKS[name](value) for name, value in given.items()}
        return Options(**cast("dict[str, Any]", said))

    def given(self) -> dict[str, Any]:
        """Only what was said."""
        return {name: value for name in _CHECKS if (value := getattr(self, name)) is not UNSET}

    def merged(self, other: "Options") -> "Options":
        """Both; where both say something the other one wins, as a whole (tags are not mixed)."""
        if other is NO_OPTIONS:
            return self
        said = other.given()
        # When to run is one thing said in two ways.
        if "delay" in said or "run_after" in said:
            said = {"delay": UNSET, "run_after": UNSET} | said
        return msgspec.structs.replace(self, **said)


NO_OPTIONS = Options()
OF_HANDLERS = ("max_retries", "timeout", "retry")
"""What a worker can still say for a task whose submitter did not know its handler."""


def _checked(name: str, kind: Kind, error: type[Exception] = InvalidInput) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        try:
            return kind.parse(value.total_seconds() if isinstance(value, timedelta) else value)
        except ValueError:
            raise error(f"{name}: {value!r} is not {kind.words}") from None

    return check


def _timeout(value: Any) -> float | None:
    if value is None:
        return None
    seconds: float = _checked("timeout", DURATION)(value)
    if seconds > _LONGEST_TIMEOUT:
        raise InvalidInput(f"timeout: {value!r} is more than a year; None means no timeout")
    return seconds


def _retry(value: Any) -> RetryPolicy:
    if isinstance(value, RetryPolicy):
        return value
    if isinstance(value, str):
        return preset(value)
    raise ConfigError(f"retry: {value!r} is not a RetryPolicy or the name of a preset")


def _requires(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput(f"requires: {value!r} is not a list of capabilities, such as ['gpu']")
    return tuple(sorted({check_name("capability", name) for name in cast("Iterable[object]", value)}))


def _tags(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"tags: {value!r} is not a mapping of names to text, such as {{'team': 'a'}}")
    tags = cast("Mapping[object, object]", value)
    if len(tags) > MAX_TAGS:
        raise InvalidInput(f"{len(tags)} tags; at most {MAX_TAGS} are allowed")
    return {check_name("tag", name): check_name("tag value", text) for name, text in tags.items()}


def _run_after(value: Any) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise InvalidInput(f"run_after: {value!r} is not a time with a time zone, such as datetime.now(UTC)")
    return value


def _rate(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ConfigError(f"rate_limit: {value!r} is not a number of tasks a second; 0 means no limit")
    return float(value)


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "max_retries": _checked("max_retries", count(0)),
    "timeout": _timeout,
    "priority": check_priority,
    "retry": _retry,
    "requires": _requires,
    "tags": _tags,
    "key": lambda value: None if value is None else check_name("key", value),
    "key_window": _checked("key_window", DURATION_OR_ZERO),
    "delay": _checked("delay", DURATION_OR_ZERO),
    "run_after": _run_after,
    "concurrency": _checked("concurrency", count(1), ConfigError),
    "rate_limit": _rate,
    "isolation": _checked("isolation", choice("async", "thread", "process"), ConfigError),
}

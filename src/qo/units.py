"""Durations, sizes, counts and words as people write them, and back. Pure; `settings` and the command line call it.

A `Kind` says in words what it takes, for messages and docs, and parses text, numbers and ready values alike, because
the environment holds text while pyproject.toml and arguments hold numbers.
"""

import math
import re
from collections.abc import Callable

import msgspec

_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h|d)?", re.IGNORECASE | re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE = re.compile(r"(\d+)\s*(B|KiB|MiB|GiB)?", re.IGNORECASE | re.ASCII)
_BYTES = {"b": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
# Far below where adding to a date overflows.
_LONGEST = 36_500 * 86_400.0


class Kind(msgspec.Struct, frozen=True):
    """What a value may be: in words, and as a function that returns it or raises ValueError."""

    words: str
    parse: Callable[[object], object]


def seconds(value: object) -> float:
    """A duration from a number of seconds or text such as 0.5, 100ms, 10s, 5m, 24h, 7d."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError(value)
        value = float(match[1]) * _SECONDS[(match[2] or "s").lower()]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST:
        raise ValueError(value)
    return float(value)


def _positive_seconds(value: object) -> float:
    result = seconds(value)
    if result == 0:
        raise ValueError(value)
    return result


def _whole(value: object) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def byte_count(value: object) -> int:
    """A size from a number of bytes or text such as 512, 64KiB, 1MiB."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError(value)
        value = int(match[1]) * _BYTES[(match[2] or "B").lower()]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(value)
    return value.strip()


_DURATIONS = "seconds or 10s, 5m, 24h, 7d"
DURATION = Kind(f"a duration above 0; write {_DURATIONS}", _positive_seconds)
DURATION_OR_ZERO = Kind(f"a duration of at least 0; write {_DURATIONS}", seconds)
SIZE = Kind("a size above 0; write bytes or 64KiB, 1MiB, 1GiB", byte_count)
TEXT = Kind("text", _text)


def count(least: int) -> Kind:
    """A whole number."""

    def parse(value: object) -> int:
        result = _whole(value)
        if result < least:
            raise ValueError(value)
        return result

    return Kind(f"a whole number of at least {least}", parse)


def choice(*words: str) -> Kind:
    """One of these words."""

    def parse(value: object) -> str:
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in words:
            raise ValueError(value)
        return word

    return Kind(f"one of {', '.join(words)}", parse)


def or_word(kind: Kind, word: str, meaning: float | None) -> Kind:
    """That kind, or a word for one more value."""

    def parse(value: object) -> object:
        if value == meaning or (isinstance(value, str) and value.strip().lower() == word):
            return meaning
        return kind.parse(value)

    return Kind(f"{kind.words}, or {word}", parse)


def show_seconds(value: float | None) -> str:
    """A duration as text that `seconds` reads back: the largest unit that divides it."""
    if value is None:
        return "none"
    if math.isinf(value):
        return "forever"
    for unit in ("d", "h", "m"):
        if value and value % _SECONDS[unit] == 0:
            return f"{value / _SECONDS[unit]:.0f}{unit}"
    return f"{value:.15g}s"


def show_bytes(value: int) -> str:
    """A size as text that `byte_count` reads back."""
    for unit in ("GiB", "MiB", "KiB"):
        if value % _BYTES[unit.lower()] == 0:
            return f"{value // _BYTES[unit.lower()]}{unit}"
    return str(value)


_PASSWORD = re.compile(r"(://[^:/@?#]*:).*@")
_SECRET_PARAMETER = re.compile(r"([?&][^=&]*(?:password|secret|token|key)[^=&]*=)[^&#]*", re.IGNORECASE)


def show_url(url: str) -> str:
    """A URL without its secrets, for people and logs. Hides too much rather than too little when it is malformed."""
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1***@", url))

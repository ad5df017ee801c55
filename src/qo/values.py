"""User data in and out: inputs, outputs and progress as JSON that every engine can hold. Pure.

Everything is checked here, once, before it reaches a store, so that one bad value can never poison a batch: NaN and
infinity (JSON has none), lone surrogates (no UTF-8) and unknown objects are refused; NUL is kept as the JSON escape it
already is. Bytes travel as `{"$bytes": "<base64>"}`; an object that looks like that gets one more `$`. Bytes inside a
structure become base64 text, which only a handler that says `bytes` in its signature reads back.
"""

import base64
import binascii
import math
import re
from typing import Any, cast

import msgspec

from qo.errors import InvalidInput

NULL = msgspec.Raw(b"null")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()
_MARK = re.compile(r"\$+bytes")
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_value(value: object, *, limit: int | None = None, what: str = "input") -> msgspec.Raw:
    """JSON for any JSON value or bytes, or InvalidInput that says what is wrong."""
    if value is None:
        return NULL
    if isinstance(value, (bytes, bytearray)):
        value = {"$bytes": base64.b64encode(value).decode()}
    elif isinstance(value, dict) and len(cast("dict[object, object]", value)) == 1:
        key, only = next(iter(cast("dict[object, object]", value).items()))
        if isinstance(key, str) and _MARK.fullmatch(key):
            value = {"$" + key: only}
    try:
        raw = _encoder.encode(value)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} holds a lone surrogate, which is not valid text: {error.reason}") from error
    except RecursionError as error:
        raise InvalidInput(f"{what} is nested too deeply, or contains itself") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{what} cannot be stored as JSON: {error}; convert it first, or pass bytes") from error
    # msgspec writes NaN as null without a word, so a null is worth a second look.
    if b"null" in raw and _has_nan(cast("object", value)):
        raise InvalidInput(f"{what} holds NaN or infinity, which JSON cannot; use None or a string")
    if limit is not None and len(raw) > limit:
        raise InvalidInput(
            f"{what} takes {len(raw):,} bytes, the limit is {limit:,}; store it elsewhere and pass a reference"
        )
    return msgspec.Raw(raw)


def decode_value(raw: msgspec.Raw) -> Any:
    """The value behind `encode_value`. Raises msgspec.DecodeError when it is no JSON."""
    value = _decoder.decode(raw)
    if isinstance(value, dict) and len(cast("dict[str, object]", value)) == 1:
        key, only = next(iter(cast("dict[str, object]", value).items()))
        if key == "$bytes" and isinstance(only, str):
            try:
                return base64.b64decode(only, validate=True)
            except binascii.Error as error:
                raise msgspec.DecodeError(f"$bytes is no base64: {error}") from error
        if _MARK.fullmatch(key):
            return {key[1:]: only}
    return cast("Any", value)


def clean_text(text: str, limit: int = 100_000) -> str:
    """Text of an error or traceback that any engine can hold: no surrogates, no NUL, not endless."""
    if "\x00" in text:
        text = text.replace("\x00", "\\x00")
    if not text.isascii():
        text = _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return text


def _has_nan(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        mapping = cast("dict[object, object]", value)
        return any(_has_nan(item) for pair in mapping.items() for item in pair)
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_has_nan(item) for item in cast("list[object]", value))
    if value is None or isinstance(value, (str, int, bytes)):
        return False
    plain = msgspec.to_builtins(value)
    return type(plain) is not type(value) and _has_nan(plain)

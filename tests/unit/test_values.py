"""Values: any JSON value or bytes comes back as it was; what an engine could choke on never gets in."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import InvalidInput
from qo.values import NULL, clean_text, decode_value, encode_value

text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(text, inner), max_leaves=20)
marks = st.integers(1, 4).map(lambda count: "$" * count + "bytes")


@given(values)
def test_json_comes_back(value: object) -> None:
    """Every JSON value comes back equal and of the same type."""
    back = decode_value(encode_value(value))
    assert back == value
    assert type(back) is type(value)


@given(st.binary())
def test_bytes_come_back(value: bytes) -> None:
    """Bytes and bytearrays come back as bytes."""
    assert decode_value(encode_value(value)) == value
    assert decode_value(encode_value(bytearray(value))) == value


@given(marks, values)
def test_objects_that_look_like_bytes_come_back(mark: str, inner: object) -> None:
    """An object with the key that marks bytes is not taken for bytes, nor is one with more dollars."""
    assert decode_value(encode_value({mark: inner})) == {mark: inner}


@given(values)
def test_is_json(value: object) -> None:
    """What is stored is plain UTF-8 JSON without NUL bytes."""
    raw = bytes(encode_value(value))
    assert b"\x00" not in raw
    raw.decode("utf-8")
    msgspec.json.decode(raw)


def test_bytes_as_json() -> None:
    """Bytes are readable in the store as base64 under `$bytes`."""
    assert bytes(encode_value(b"hi")) == b'{"$bytes":"aGk="}'


def test_nothing() -> None:
    """None is null."""
    assert encode_value(None) == NULL
    assert decode_value(NULL) is None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_no_nan(number: float) -> None:
    """NaN and infinity are refused wherever they hide, beside real nulls too."""
    for value in (number, [None, number], {"a": {"b": (1, number)}}, {"a": None, "b": [[number]]}):
        with pytest.raises(InvalidInput, match="NaN or infinity"):
            encode_value(value)


def test_null_is_no_nan() -> None:
    """Nulls, and text that says null, are fine."""
    for value in ([None], {"a": None}, "null", ["null", 1.5]):
        assert decode_value(encode_value(value)) == value


@pytest.mark.parametrize("value", ["\ud800", ["a\udfff"], {"\ud83d": 1}, {"a": {"b": "x\udc00y"}}])
def test_no_lone_surrogates(value: object) -> None:
    """Text that is no valid Unicode is refused."""
    with pytest.raises(InvalidInput):
        encode_value(value)


def test_nul_is_kept() -> None:
    """NUL stays what it is, as an escape."""
    assert bytes(encode_value("a\x00b")) == b'"a\\u0000b"'
    assert decode_value(encode_value("a\x00b")) == "a\x00b"


@pytest.mark.parametrize("value", [object(), {1: object()}, [lambda: 1], type, 1j, iter([])])
def test_no_objects(value: object) -> None:
    """What is no JSON value is refused with a hint."""
    with pytest.raises(InvalidInput, match="cannot be stored as JSON"):
        encode_value(value)


def test_too_deep() -> None:
    """A value that contains itself, or is nested without end, is refused."""
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidInput, match="nested too deeply"):
        encode_value(endless)


def test_too_large() -> None:
    """The limit counts bytes of JSON, and the message says what was too large."""
    assert encode_value("ü" * 10, limit=22)
    with pytest.raises(InvalidInput, match=r"output takes 22 bytes, the limit is 21"):
        encode_value("ü" * 10, limit=21, what="output")


def test_broken_bytes() -> None:
    """A stored mark without base64 is an error of the record, not a value."""
    with pytest.raises(msgspec.DecodeError):
        decode_value(msgspec.Raw(b'{"$bytes":"%%"}'))


@given(st.text(max_size=50), st.integers(100, 500))
def test_clean_text(dirty: str, limit: int) -> None:
    """Cleaned text can be held by every engine and is not much longer than the limit."""
    clean = clean_text(dirty * 20, limit)
    assert "\x00" not in clean
    clean.encode("utf-8")
    assert len(clean) <= limit + 60


def test_clean_text_leaves_good_text_alone() -> None:
    """Text without anything wrong stays as it is."""
    assert clean_text("ünïcode 🦆\n") == "ünïcode 🦆\n"

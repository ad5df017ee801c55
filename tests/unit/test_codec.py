"""Records as JSON: they come back whole; older formats are read, newer ones refused, rubbish is named as such."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from qo import codec, lifecycle
from qo.changes import apply_claim, apply_settlement
from qo.clock import ManualClock
from qo.codec import FORMAT, decode_task, encode_task
from qo.errors import CorruptRecord, SchemaMismatch
from qo.outcomes import Raised
from qo.retry import PRESETS
from qo.task import ErrorInfo, Task
from qo.values import encode_value

NOW = datetime(2030, 1, 1, 12, 30, 15, 123456, tzinfo=UTC)
ids = ManualClock()


def full_task() -> Task:
    task = lifecycle.submit(
        id=ids.new_id(),
        type="send email",
        now=NOW,
        input=encode_value({"to": "ü\x00"}),
        queue="mail",
        priority=7,
        run_after=NOW + timedelta(hours=1),
        requires=["gpu"],
        tags={"team": "a"},
        key="k",
        max_retries=5,
        timeout=None,
        retry=PRESETS["b"],
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    return apply_claim(task, NOW, ids.new_id(), "w", 20)


def failed_task() -> Task:
    task = full_task()
    error = ErrorInfo(reason="raised", message="boom", type="ValueError", traceback="…", retriable=False)
    return apply_settlement(task, lifecycle.settle(task, Raised(error), NOW, 0.5))


@pytest.mark.parametrize("make", [full_task, failed_task, lambda: lifecycle.submit(id=ids.new_id(), type="a", now=NOW)])
def test_round_trip(make) -> None:
    """A record comes back with every field, to the microsecond."""
    task = make()
    assert decode_task(encode_task(task)) == task
    assert decode_task(encode_task(task).decode()) == task


def test_readable() -> None:
    """The JSON starts with its format, uses the words of the design, and holds input as JSON, not as text."""
    plain = msgspec.json.decode(encode_task(full_task()))
    assert next(iter(plain)) == "format"
    assert plain["format"] == FORMAT
    assert plain["input"] == {"to": "ü\x00"}
    assert plain["state"] == "running"
    assert plain["created_at"] == "2030-01-01T12:30:15.123456Z"


def test_newer_format() -> None:
    """A record of a newer qo is refused with advice, even when its fields mean nothing here."""
    with pytest.raises(SchemaMismatch, match=f"format {FORMAT + 1}.*upgrade qo"):
        decode_task(b'{"format":%d,"new":"world"}' % (FORMAT + 1))


def test_older_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of an older format is upgraded step by step."""
    task = full_task()
    old = msgspec.json.decode(encode_task(task)) | {"format": FORMAT - 1}
    old["kind"] = old.pop("type")

    def upgrade(plain: dict) -> dict:
        plain["type"] = plain.pop("kind")
        return plain

    monkeypatch.setitem(codec.UPGRADES, FORMAT - 1, upgrade)
    assert decode_task(msgspec.json.encode(old)) == task


def test_format_that_never_was() -> None:
    """A format without an upgrade is a damaged record."""
    with pytest.raises(CorruptRecord, match="never existed"):
        decode_task(b'{"format":-3}')


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"rubbish",
        b"null",
        b"[]",
        b"{}",
        b'{"format":"1"}',
        b'{"format":1}',
        b'{"format":1,"id":7}',
        b"\xff\xfe",
        encode_task(full_task())[:-10],
        encode_task(full_task()).replace(b'"running"', b'"sleeping"'),
    ],
)
def test_rubbish(data: bytes) -> None:
    """What cannot be read is a CorruptRecord that keeps its cause."""
    with pytest.raises(CorruptRecord) as caught:
        decode_task(data)
    assert caught.value.__cause__ is not None


def test_unknown_fields_are_ignored() -> None:
    """A field added without a new format does not break an older qo."""
    task = full_task()
    data = encode_task(task).replace(b'{"format":1,', b'{"format":1,"colour":"red",')
    assert decode_task(data) == task

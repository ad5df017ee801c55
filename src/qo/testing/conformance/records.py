"""Small records: workers, controls and schedules as versioned pieces of JSON.

Claim obeys controls: see `claim`.
"""

import msgspec

from qo.records import Kind, decode_worker, encode_record
from qo.records import WorkerInfo as Worker
from qo.testing.conformance.bench import Bench
from qo.testing.conformance.registry import scenario
from qo.values import decode_value, encode_value

KINDS: tuple[Kind, ...] = ("worker", "control", "schedule")


async def values(bench: Bench, kind: Kind) -> dict[str, object]:
    """Key and value of every record of that kind, in the order of the store."""
    return {record.key: decode_value(record.value) for record in await bench.store.records(kind)}


@scenario
async def put_and_read(bench: Bench) -> None:
    """A record is stored with version 1, then one more with each write."""
    for kind in KINDS:
        for version in (1, 2, 3):
            record = await bench.store.put_record(kind, "a:b@c", encode_value({"n": version}))
            assert record is not None
            assert (record.kind, record.key, record.version) == (kind, "a:b@c", version)
            assert bench.near(record.updated_at, bench.now())
        (stored,) = await bench.store.records(kind)
        assert (stored.key, stored.version, decode_value(stored.value)) == ("a:b@c", 3, {"n": 3})


@scenario
async def by_key(bench: Bench) -> None:
    """Records come in the order of their keys, by code point."""
    for key in ("b", "a-2", "B", "a", "a.10", "a1"):
        await bench.store.put_record("schedule", key, encode_value(key))
    assert list(await values(bench, "schedule")) == ["B", "a", "a-2", "a.10", "a1", "b"]


@scenario
async def kinds_are_apart(bench: Bench) -> None:
    """The same key in two kinds is two records."""
    for kind in KINDS:
        await bench.store.put_record(kind, "default", encode_value({"paused": False, "kind": kind}))
    for kind in KINDS:
        assert await values(bench, kind) == {"default": {"paused": False, "kind": kind}}
    assert await bench.store.delete_record("worker", "default")
    assert list(await values(bench, "control")) == ["default"]


@scenario
async def create_only(bench: Bench) -> None:
    """Version 0 creates, and is refused when there is one already."""
    assert await bench.store.put_record("schedule", "s", encode_value(1), 0) is not None
    assert await bench.store.put_record("schedule", "s", encode_value(2), 0) is None
    assert await values(bench, "schedule") == {"s": 1}


@scenario
async def only_from_the_version_known(bench: Bench) -> None:
    """A write from another version than the stored one is refused and changes nothing."""
    assert await bench.store.put_record("schedule", "s", encode_value(0), 1) is None
    assert await values(bench, "schedule") == {}
    await bench.store.put_record("schedule", "s", encode_value(1))
    second = await bench.store.put_record("schedule", "s", encode_value(2), 1)
    assert second is not None and second.version == 2
    for version in (1, 3):
        assert await bench.store.put_record("schedule", "s", encode_value(3), version) is None
    assert await values(bench, "schedule") == {"s": 2}


@scenario
async def deleted(bench: Bench) -> None:
    """A deleted record is gone; deleting it again answers False; a new one can be created."""
    await bench.store.put_record("schedule", "s", encode_value(1))
    assert await bench.store.delete_record("schedule", "s")
    assert not await bench.store.delete_record("schedule", "s")
    assert await values(bench, "schedule") == {}
    assert await bench.store.put_record("schedule", "s", encode_value(2), 0) is not None


@scenario
async def seen_by_others(bench: Bench) -> None:
    """A record written by one store is read by another."""
    other = await bench.open_another()
    worker = Worker(
        id="w", host="hö", pid=1, version="1", started_at=bench.now(), heartbeat_at=bench.now(), types={"a": {"x": [1]}}
    )
    await bench.store.put_record("worker", "w", encode_record(worker))
    (record,) = await other.records("worker")
    assert decode_worker(record.value) == worker


@scenario
async def odd_values(bench: Bench) -> None:
    """Any JSON comes back with the same value."""
    value: dict[str, object] = {"text": "\x00ü🦆' \"\\", "list": [1, 2.5, None, True], "": {}, "long": "x" * 20_000}
    await bench.store.put_record("schedule", "s", msgspec.Raw(msgspec.json.encode(value)))
    assert await values(bench, "schedule") == {"s": value}

"""Whole records as JSON with a format number, for stores that keep documents. Pure.

An older format is read (and upgraded step by step), a newer one is refused with a clear message.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from qo.errors import CorruptRecord, SchemaMismatch
from qo.task import Task

FORMAT = 1


class _Numbered(msgspec.Struct):
    format: int


_numbered = msgspec.json.Decoder(_Numbered)
_tasks = msgspec.json.Decoder(Task)
_encoder = msgspec.json.Encoder()

# One function for each old format, from n to n + 1, on the plain JSON object.
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}


def encode_task(task: Task) -> bytes:
    """The record as one JSON object that starts with its format."""
    body = _encoder.encode(task)
    return b'{"format":%d,%b' % (FORMAT, body[1:])


def decode_task(data: bytes | str) -> Task:
    """The record, or CorruptRecord, or SchemaMismatch when a newer qo wrote it."""
    try:
        number = _numbered.decode(data).format
        if number > FORMAT:
            raise SchemaMismatch(f"a task of format {number}, this qo reads up to {FORMAT}: upgrade qo on this machine")
        if number < FORMAT:
            return _upgraded(data, number)
        return _tasks.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptRecord(f"a stored task cannot be read: {error}") from error


def _upgraded(data: bytes | str, number: int) -> Task:
    plain = cast("dict[str, Any]", msgspec.json.decode(data))
    while number < FORMAT:
        upgrade = UPGRADES.get(number)
        if upgrade is None:
            raise CorruptRecord(f"a stored task has format {number}, which never existed")
        plain = upgrade(plain)
        number += 1
    # Through text once more: raw fields can only be filled from it.
    return _tasks.decode(msgspec.json.encode(plain))

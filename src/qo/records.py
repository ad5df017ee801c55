"""Small records beside the tasks: workers, controls, schedules. Pure.

A store keeps them as named, versioned pieces of JSON and understands only `Controls`, which it obeys inside claim.
"""

from datetime import datetime
from typing import Any, Literal

import msgspec

Kind = Literal["worker", "control", "schedule"]
WorkerState = Literal["active", "draining", "dead"]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One named piece of JSON; `version` grows by one with every write."""

    kind: Kind
    key: str
    value: msgspec.Raw
    version: int
    updated_at: datetime


class Controls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an administrator asked of a queue's workers; kind `control`, key = the queue's name."""

    paused: bool = False
    paused_types: frozenset[str] = frozenset()
    rate_limit: float = 0.0
    """Tasks a second for each worker process; 0 = unlimited."""
    rate_limits: dict[str, float] = {}

    def stops(self, type: str) -> bool:
        """Must no task of this type be claimed now?"""
        return self.paused or type in self.paused_types


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker process as others see it; kind `worker`, key = its id."""

    id: str
    host: str
    pid: int
    version: str
    started_at: datetime
    heartbeat_at: datetime
    state: WorkerState = "active"
    queues: tuple[str, ...] = ("default",)
    types: dict[str, dict[str, Any]] = {}
    """Type name to the JSON Schema of its arguments."""
    capabilities: frozenset[str] = frozenset()
    shards: tuple[int, ...] = ()
    capacity: int = 0
    running: tuple[str, ...] = ()
    counters: dict[str, int] = {}

    def seen(self, now: datetime, dead_after: float) -> WorkerState:
        """Its state, or dead when its heartbeat is that many seconds old."""
        return "dead" if (now - self.heartbeat_at).total_seconds() > dead_after else self.state


NO_CONTROLS = Controls()
_controls = msgspec.json.Decoder(Controls)
_workers = msgspec.json.Decoder(WorkerInfo)


def encode_record(value: Controls | WorkerInfo) -> msgspec.Raw:
    """The JSON a store keeps."""
    return msgspec.Raw(msgspec.json.encode(value))


def decode_controls(value: bytes | msgspec.Raw | str) -> Controls:
    """Controls from what a store kept."""
    return _controls.decode(value)


def decode_worker(value: bytes | msgspec.Raw | str) -> WorkerInfo:
    """A worker from what a store kept."""
    return _workers.decode(value)

"""A store between a worker and the real one that can be away, or lose replies; and a queue on it."""

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from tests.worker.worker_tools import Wrapped, make_queue

import qo
from qo.stores.protocol import Store

Fault = Literal["away", "lost_request", "lost_reply"]
VERBS = ("claim", "settle", "renew", "expired", "records", "put_record", "delete_record", "stats", "submit", "get")


class Faults:
    """What goes wrong now, for all stores of a queue: a fault by verb, or for all (`*`)."""

    def __init__(self) -> None:
        self.now: dict[str, Fault] = {}
        self.once: dict[str, Fault] = {}
        self.hits: Counter[str] = Counter()
        """How often each verb met a fault."""

    def of(self, verb: str) -> Fault | None:
        fault = self.once.pop(verb, None) or self.now.get(verb) or self.now.get("*")
        if fault is not None:
            self.hits[verb] += 1
        return fault


class FaultyStore(Wrapped):
    """away: Unavailable, nothing done. lost_request: OutcomeUnknown, nothing done. lost_reply: OutcomeUnknown, done."""

    def __init__(self, store: Store, faults: Faults) -> None:
        super().__init__(store)
        self.faults = faults

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.real, name)
        if name not in VERBS:
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            match self.faults.of(name):
                case "away":
                    raise qo.Unavailable(f"{name}: the store is away")
                case "lost_request":
                    raise qo.OutcomeUnknown(f"{name}: no reply")
                case "lost_reply":
                    await real(*args, **kwargs)
                    raise qo.OutcomeUnknown(f"{name}: no reply")
                case None:
                    return await real(*args, **kwargs)

        return call


def faulty_queue(kind: str, folder: Path, **said: Any) -> tuple[qo.Queue, qo.Queue, Faults]:
    """A queue whose stores can fail, the same queue without faults, and the switch."""
    faults = Faults()
    real = make_queue(kind, folder, **said)
    return make_queue(kind, folder, store=lambda: FaultyStore(real.open_store(), faults), **said), real, faults

"""Stores with one bug each, to test the suite itself. Every bug is the memory store with one thing changed."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from qo.clock import SYSTEM, ManualClock
from qo.stores.memory import MemoryStore, SharedMemory
from qo.stores.state import QueueState
from qo.testing.conformance import Harness, Opener


@dataclass
class Bug:
    """What is wrong, and which scenarios must notice."""

    name: str
    noticed_by: tuple[str, ...]
    state: type[QueueState] = QueueState
    patches: dict[str, Any] = field(default_factory=dict)
    """Dotted name of what is replaced, and by what."""


class PlantedHarness(Harness):
    """Places with a buggy state."""

    rounds = 2

    def __init__(self, state: type[QueueState], clock: ManualClock | None = None) -> None:
        self.state = state
        self.clock = clock

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[Opener]:
        shared = SharedMemory()
        shared.state = self.state()
        yield lambda: MemoryStore(shared, self.clock or SYSTEM)


BUGS: list[Bug] = []


def planted(*noticed_by: str) -> Callable[[type[QueueState]], type[QueueState]]:
    """Register a state with a bug."""

    def register(state: type[QueueState]) -> type[QueueState]:
        BUGS.append(Bug(state.__name__, noticed_by, state))
        return state

    return register


def patched(name: str, target: str, replacement: object, *noticed_by: str) -> None:
    """Register a function with a bug."""
    BUGS.append(Bug(name, noticed_by, patches={target: replacement}))

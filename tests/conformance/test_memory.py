"""The memory store keeps the contract; the shortest example of how a store joins the suite."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from qo.clock import SYSTEM, ManualClock
from qo.stores.memory import MemoryStore, SharedMemory
from qo.testing.conformance import Harness, Opener, conformance, model_test


class MemoryHarness(Harness):
    """Each place is a state of its own; stores on it share that state."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock

    @asynccontextmanager
    async def fresh(self) -> AsyncIterator[Opener]:
        shared = SharedMemory()
        yield lambda: MemoryStore(shared, self.clock or SYSTEM)


test_conformance = conformance(MemoryHarness())
test_model = model_test(MemoryHarness(ManualClock()))
test_model_in_real_time = model_test(MemoryHarness(), examples=40)

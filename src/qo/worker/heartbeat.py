"""Shows this worker to others, and reads what administrators asked of the workers."""

import logging
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from qo.clock import Clock
from qo.errors import QoError
from qo.records import Controls, WorkerInfo, decode_controls, decode_worker, encode_record
from qo.stores.protocol import Store

log = logging.getLogger("qo.worker")
CONTROLS_EVERY = 2.0
UNHANDLED_EVERY = 30.0


class Heartbeat:
    """Writes the worker's record every so often and passes on the controls of its queue."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        queue: str,
        *,
        every: float,
        dead_after: float,
        describe: Callable[[Literal["active", "draining"]], WorkerInfo],
        on_controls: Callable[[Controls], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._queue = queue
        self._every = every
        self._dead_after = dead_after
        self._describe = describe
        self._on_controls = on_controls
        self._state: Literal["active", "draining"] = "active"
        self._warned: set[str] = set()
        self._beat_at = 0.0
        self._look_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            now = self._clock.monotonic()
            try:
                if now >= self._beat_at:
                    self._beat_at = now + self._every
                    await self.show()
                await self.read_controls()
                if now >= self._look_at:
                    self._look_at = now + UNHANDLED_EVERY
                    await self._look_for_unhandled()
            except QoError as error:
                log.warning("the heartbeat has to wait: %s", error)
            await self._clock.sleep(min(CONTROLS_EVERY, self._every))

    async def show(self, state: Literal["active", "draining"] | None = None) -> None:
        """Write the record now, and from now on with that state."""
        self._state = state or self._state
        # Others compare it with the store's time, so it is the store's time.
        info = replace(self._describe(self._state), heartbeat_at=self._store.now())
        await self._store.put_record("worker", info.id, encode_record(info))

    async def remove(self, worker_id: str) -> None:
        """The worker ends in good order."""
        await self._store.delete_record("worker", worker_id)

    async def read_controls(self) -> None:
        """Pass on what the queue's control record says."""
        for record in await self._store.records("control"):
            if record.key == self._queue:
                try:
                    self._on_controls(decode_controls(record.value))
                except msgspec.DecodeError as error:
                    log.error("the controls of queue %s cannot be read and are ignored: %s", self._queue, error)
                return
        self._on_controls(Controls())

    async def _look_for_unhandled(self) -> None:
        """Warn once about each type that waits while no living worker handles it."""
        waiting = {
            type for type, states in (await self._store.stats(self._queue)).by_type.items() if "pending" in states
        }
        if not waiting - self._warned:
            return
        now = self._store.now()
        handled: set[str] = set()
        for record in await self._store.records("worker"):
            try:
                worker = decode_worker(record.value)
            except msgspec.DecodeError:
                continue  # of another version, perhaps
            if worker.seen(now, self._dead_after) != "dead":
                handled.update(worker.types)
        for type in sorted(waiting - handled - self._warned):
            self._warned.add(type)
            log.warning("tasks of type %s wait in queue %s, but no worker handles it", type, self._queue)

"""Keeps the leases of running tasks, from a thread, loop and connection of its own.

So a handler that blocks the worker's event loop does not lose its lease. A store that cannot be reached is no lost
lease: the keeper tries again until it gets an answer, and only "lost" ends a run.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping

from qo.changes import Lease, Renewed
from qo.clock import Clock
from qo.errors import QoError
from qo.stores.protocol import Store
from qo.worker.run import Run

log = logging.getLogger("qo.worker")
GRACE = 30.0
"""Seconds past its timeout that an attempt is still believed to end."""
LONGEST_TICK = 1.0

OnAnswer = Callable[[Run, Renewed], None]


class LeaseKeeper:
    """Renews everything in `held` (what this worker runs) in time. `on_answer` is called on the worker's loop."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        held: Mapping[tuple[str, int], Run],
        *,
        ttl: float,
        every: float,
        clock: Clock,
        on_answer: OnAnswer,
    ) -> None:
        self._open_store = open_store
        self._held = held
        self._ttl = ttl
        self._every = every
        self._clock = clock
        self._on_answer = on_answer
        self._worker_loop = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._live, name="qo-lease-keeper", daemon=True)

    def start(self) -> None:
        """Begin; the store is opened when there is something to renew."""
        self._thread.start()

    async def stop(self) -> None:
        """End the thread."""
        self._stopped = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        await asyncio.to_thread(self._thread.join)

    def _live(self) -> None:
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        store: Store | None = None
        tick = min(LONGEST_TICK, self._every / 4)
        try:
            while not self._stopped:
                await self._pause(tick)
                due = self._due()
                if not due or self._stopped:
                    continue
                try:
                    if store is None:
                        opening = self._open_store()
                        await opening.open()
                        store = opening
                    await self._renew(store, due)
                except QoError as error:
                    log.warning("leases of %d tasks cannot be renewed, trying again: %s", len(due), error)
        finally:
            if store is not None:
                await store.close()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    def _due(self) -> list[Run]:
        """Runs to renew now: their time has come, or they have progress to show. Never past timeout and grace."""
        now = self._clock.monotonic()
        return [
            run
            for run in list(self._held.values())
            if run.stop != "lost"
            and (now - run.renewed >= self._every or run.progress is not None)
            and (run.reported or run.deadline is None or now < run.deadline + GRACE)
        ]

    async def _renew(self, store: Store, due: list[Run]) -> None:
        now = self._clock.monotonic()
        leases: list[Lease] = []
        for run in due:
            progress, run.progress = run.progress, None
            assert run.task.lease_id is not None
            leases.append(
                Lease(id=run.task.id, lease_id=run.task.lease_id, attempt=run.task.attempt, raw_progress=progress)
            )
        try:
            answers = await store.renew(leases, self._ttl)
        except QoError:
            for run, lease in zip(due, leases, strict=True):
                run.progress = run.progress or lease.raw_progress
            raise
        for run, answer in zip(due, answers, strict=True):
            if isinstance(answer, QoError):
                log.warning("the lease of task %s cannot be renewed: %s", run.task.id, answer)
                continue
            run.renewed = now
            if answer != "held":
                self._worker_loop.call_soon_threadsafe(self._on_answer, run, answer)

"""Keeps the leases of running tasks, from a thread, loop and connection of its own.

So a handler that blocks the worker's event loop does not lose its lease. A store that cannot be reached is no lost
lease: the keeper tries again until it gets an answer, and only "lost" ends a run.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from qo.changes import Lease, Renewed
from qo.clock import Clock
from qo.errors import QoError, UsageError
from qo.stores.protocol import Store
from qo.worker.run import GRACE, OnFailure, Run

log = logging.getLogger("qo.worker")
LONGEST_TICK = 1.0

OnAnswer = Callable[[Run, Renewed], None]


class _Renewer(Protocol):
    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Renewed | QoError]: ...
    async def close(self) -> None: ...


class _OnWorkersLoop:
    """For a store that can be opened once only: renews through the worker's, on the worker's loop."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Renewed | QoError]:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._store.renew(leases, ttl), self._loop))

    async def close(self) -> None:
        pass


class LeaseKeeper:
    """Renews everything in `held` (what this worker runs) in time. `on_answer` is called on the worker's loop."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        workers_store: Store,
        held: Mapping[tuple[str, int], Run],
        *,
        ttl: float,
        every: float,
        clock: Clock,
        on_answer: OnAnswer,
        on_failure: OnFailure,
    ) -> None:
        self._open_store = open_store
        self._workers_store = workers_store
        self._held = held
        self._ttl = ttl
        self._every = every
        self._clock = clock
        self._on_answer = on_answer
        self._on_failure = on_failure
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
            with contextlib.suppress(RuntimeError):  # closed since we looked
                self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)

    def _live(self) -> None:
        try:
            asyncio.run(self._keep())
        except BaseException as error:
            self._tell(self._on_failure, error)

    def _tell(self, call: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the worker's loop is closed: nobody wants to know
            self._worker_loop.call_soon_threadsafe(call, *args)

    async def _keep(self) -> None:
        self._loop = asyncio.get_running_loop()
        store: _Renewer | None = None
        tick = min(LONGEST_TICK, self._every / 4)
        try:
            while not self._stopped:
                await self._pause(tick)
                due = self._due()
                if not due or self._stopped:
                    continue
                try:
                    store = store or await self._opened()
                    await self._renew(store, due)
                except QoError as error:
                    log.warning("leases of %d tasks cannot be renewed, trying again: %s", len(due), error)
        finally:
            if store is not None:
                await store.close()

    async def _opened(self) -> _Renewer:
        store = self._open_store()
        try:
            await store.open()
        except UsageError as error:
            log.warning("leases are renewed on the worker's event loop, which handlers must not block: %s", error)
            return _OnWorkersLoop(self._workers_store, self._worker_loop)
        except BaseException:
            await store.close()
            raise
        return store

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
            and (now - run.renewed >= self._every or run.progress is not run.shown)
            and (run.reported or run.deadline is None or now < run.deadline + GRACE)
        ]

    async def _renew(self, store: _Renewer, due: list[Run]) -> None:
        now = self._clock.monotonic()
        progress = [run.progress for run in due]
        leases: list[Lease] = []
        for run, raw in zip(due, progress, strict=True):
            assert run.task.lease_id is not None
            news = None if raw is run.shown else raw
            leases.append(
                Lease(
                    id=run.task.id,
                    lease_id=run.task.lease_id,
                    attempt=run.task.attempt,
                    worker_id=run.task.worker_id or "",
                    raw_progress=news,
                )
            )
        answers = await store.renew(leases, self._ttl)
        for run, raw, answer in zip(due, progress, answers, strict=True):
            if isinstance(answer, QoError):
                log.warning("the lease of task %s cannot be renewed: %s", run.task.id, answer)
                continue
            run.renewed, run.shown = now, raw
            if answer != "held":
                self._tell(self._on_answer, run, answer)

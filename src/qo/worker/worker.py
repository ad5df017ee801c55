"""The worker a user meets: what it handles, how it is started and stopped. The work itself is a `Shift`."""

import asyncio
import contextlib
import logging
import os
import platform
import re
import signal
import threading
from collections.abc import Generator, Iterable
from datetime import datetime
from typing import Any, Literal, Protocol

from qo.clock import Clock
from qo.errors import ConfigError
from qo.expiry import expire_once
from qo.handlers import Handler, Registry
from qo.records import WorkerInfo
from qo.settings import Settings
from qo.stores.protocol import Store
from qo.task import check_name
from qo.worker.jobs import refer
from qo.worker.shift import Job, Shift

log = logging.getLogger("qo.worker")


_COUNTERS: tuple[str, ...] = ("claimed", "completed", "failed", "retried", "put_back", "cancelled", "lost")


class Source(Protocol):
    """What a worker needs of a queue."""

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def registry(self) -> Registry: ...
    @property
    def clock(self) -> Clock: ...
    def open_store(self) -> Store:
        """A fresh store on the queue's place."""
        ...


class Worker:
    """Runs the tasks of a queue whose types it has handlers for; `types` chooses some of them, `any_type` takes all."""

    def __init__(
        self,
        queue: Source,
        *,
        concurrency: int | None = None,
        types: Iterable[str] | None = None,
        any_type: bool = False,
        capabilities: Iterable[str] = (),
        upkeep: bool = True,
        id: str | None = None,
    ) -> None:
        self._queue = queue
        self._types = None if types is None else frozenset(types)
        self._any_type = any_type
        self._capabilities = frozenset(check_name("capability", name) for name in capabilities)
        self._upkeep = upkeep
        self.concurrency = queue.settings.concurrency if concurrency is None else concurrency
        if self.concurrency < 1:
            raise ConfigError(f"concurrency must be at least 1, not {self.concurrency}")
        self.id = check_name("worker", id or _new_worker_id(queue.clock))
        self.counters: dict[str, int] = dict.fromkeys(_COUNTERS, 0)
        self._started_at: datetime | None = None
        self._stopping = threading.Event()
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def run(self, *, burst: bool = False, signals: bool = True) -> None:
        """Work until `stop`, SIGTERM or SIGINT; with `burst` until nothing is left that could run now.

        Then no new tasks are claimed, those that run may end until the shutdown deadline, and the rest is given back.
        """
        stop = asyncio.Event()
        self._wake = (asyncio.get_running_loop(), stop)
        if self._stopping.is_set():
            stop.set()
        shift = Shift(self._job())
        with self._signals(stop) if signals else contextlib.nullcontext():
            try:
                await shift.open(shown=True)
                log.info("worker %s runs %s, %d at once", self.id, self._in_words(), self.concurrency)
                await (self._burst(shift, stop) if burst else self._serve(shift, stop))
                shift.check()
                await shift.drain(self._queue.settings.shutdown_deadline)
                shift.check()
            except BaseException:
                await shift.drain(0.0)
                raise
            finally:
                await shift.close()
                self._wake = None
        log.info("worker %s stopped: %s", self.id, ", ".join(f"{n} {name}" for name, n in self.counters.items() if n))

    async def run_once(self, limit: int = 100) -> int:
        """Claim once, run what was claimed to its end, settle it; how many there were. For tests and cron.

        It claims at most `limit` tasks, and no more than may run at once.
        """
        shift = Shift(self._job())
        try:
            await shift.open(shown=False)
            await expire_once(shift.store, self._queue.clock, self._queue.settings.max_losses)
            claimed = await shift.claimer.claim(limit)
            await shift.drain(None)
            shift.check()
        except BaseException:
            await shift.drain(0.0)
            raise
        finally:
            await shift.close()
        return len(claimed.tasks) + len(claimed.corrupt) if claimed else 0

    def stop(self) -> None:
        """Drain and end `run`. Safe to call from any thread, also before `run` has begun."""
        self._stopping.set()
        if (wake := self._wake) is not None:
            with contextlib.suppress(RuntimeError):  # its loop is closed, so it has ended
                wake[0].call_soon_threadsafe(wake[1].set)

    async def _serve(self, shift: Shift, stop: asyncio.Event) -> None:
        if stop.is_set():
            return
        claiming = shift.begin(shift.claimer.run(), "qo-claimer")
        stopping = asyncio.create_task(stop.wait(), name="qo-stop")
        try:
            await asyncio.wait([claiming, stopping, shift.failed], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            shift.claimer.stop()
            # What a claim under way brings must be known, to be given back.
            await asyncio.wait([claiming])

    async def _burst(self, shift: Shift, stop: asyncio.Event) -> None:
        await expire_once(shift.store, self._queue.clock, self._queue.settings.max_losses)
        while not stop.is_set() and not shift.failed.done():
            claimed = await shift.claimer.claim(self.concurrency)
            if claimed is None or not (claimed.tasks or claimed.corrupt or claimed.contended):
                due = claimed.next_due if claimed else None
                limited = claimed is None or shift.claimer.limited
                if not limited and not shift.held and (due is None or due > shift.store.now()):
                    return
                # Something still runs, or a limit holds us up: what ends next may bring a retry or room.
                await shift.until_moved(0.05)

    def _job(self) -> Job:
        self._started_at = self._queue.clock.now()
        return Job(
            worker_id=self.id,
            queue=self._queue.name,
            settings=self._queue.settings,
            clock=self._queue.clock,
            open_store=self._queue.open_store,
            handlers=self._handlers(),
            concurrency=self.concurrency,
            any_type=self._any_type,
            capabilities=self._capabilities,
            upkeep=self._upkeep,
            describe=self._describe,
            counters=self.counters,
        )

    def _handlers(self) -> dict[str, Handler[..., Any]]:
        handlers = {handler.type: handler for handler in self._queue.registry}
        if self._types is not None:
            handlers = {name: self._queue.registry.get(name) for name in self._types}
        if not handlers and not self._any_type:
            raise ConfigError("this worker has nothing to run: register a handler with @q.task before it starts")
        # What cannot work is found now, not with the first task: annotations, and functions that no child could find.
        for handler in handlers.values():
            handler.schema()
            if handler.isolation == "process":
                refer(handler.fn)
        return handlers

    def _describe(self, state: Literal["active", "draining"], running: tuple[str, ...]) -> WorkerInfo:
        return WorkerInfo(
            id=self.id,
            host=platform.node(),
            pid=os.getpid(),
            version=_version(),
            started_at=self._started_at or self._queue.clock.now(),
            heartbeat_at=self._queue.clock.now(),
            state=state,
            queues=(self._queue.name,),
            types={name: handler.schema() for name, handler in self._handlers().items()},
            capabilities=self._capabilities,
            capacity=self.concurrency,
            running=running,
            counters=dict(self.counters),
        )

    def _in_words(self) -> str:
        names = sorted(self._handlers())
        return "any type" if self._any_type else ", ".join(names[:8]) + (", …" if len(names) > 8 else "")

    @contextlib.contextmanager
    def _signals(self, stop: asyncio.Event) -> Generator[None, None, None]:
        """SIGTERM and SIGINT stop the worker; the second one ends the process, even while a handler blocks the loop."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        seen: list[int] = []

        def on_signal(number: int, frame: object) -> None:
            if seen:
                try:
                    log.warning("second signal: leaving at once; what runs will be found by its lease")
                finally:
                    os._exit(1)
            seen.append(number)
            loop.call_soon_threadsafe(drain)

        def drain() -> None:
            log.info("stopping: no new tasks, waiting for those that run")
            stop.set()

        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        for number in before:
            # The loop's own handler makes sure that it wakes up; ours runs at once, not when the loop has time.
            loop.add_signal_handler(number, lambda: None)
            signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _new_worker_id(clock: Clock) -> str:
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", platform.node())[:100] or "host"
    return f"{host}-{os.getpid()}-{clock.new_id()[-8:]}"


def _version() -> str:
    from qo import __version__

    return __version__

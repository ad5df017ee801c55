"""The chainable form: `q("crawl").set_worker(fn).set_timeout(300).add({"url": "…"})`. Made by `Queue.__call__`."""

import asyncio
import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Self, Unpack

from qo.calls import Call, TaskHandle
from qo.errors import ConfigError
from qo.handlers import Handler
from qo.options import NO_OPTIONS, AnyOptions, CallOptions, Duration, Options
from qo.ordering import Priority
from qo.records import Controls
from qo.retry import Preset, RetryPolicy
from qo.task import check_name

if TYPE_CHECKING:
    from qo.queue import Queue


class Chain:
    """One task type of a queue. Without a running event loop `add` is durable when it returns; inside one it collects,
    and `await chain` stores what was collected and returns the handles."""

    def __init__(self, queue: "Queue", type: str) -> None:
        self._queue = queue
        self._collected: list[Call[Any]] = []
        self.type = check_name("type", type)
        self.handles: list[TaskHandle[Any]] = []
        """The tasks stored through this chain."""

    def __repr__(self) -> str:
        return f"{self._queue!r}({self.type!r})"

    # What holds for the type.

    def set_worker(self, fn: Callable[..., Any]) -> Self:
        """Run tasks of this type with `fn`, which gets the input whole as its one argument."""
        options = self._queue.planner.say(self.type, NO_OPTIONS)
        self._queue.register(Handler(fn, self.type, options=options, whole=True))
        return self

    def set_worker_count(self, count: int) -> Self:
        """Run at most that many of this type at a time in a worker process."""
        return self.set_options(concurrency=count)

    def set_rate_limit(self, rate: float) -> Self:
        """Start at most that many of this type a second in a worker process; 0 means no limit."""
        return self.set_options(rate_limit=rate)

    def set_timeout(self, timeout: Duration | None) -> Self:
        """Let one attempt take at most that long."""
        return self.set_options(timeout=timeout)

    def set_max_retries(self, retries: int) -> Self:
        """Let it fail that often before it counts as failed."""
        return self.set_options(max_retries=retries)

    def set_max_attempts(self, attempts: int) -> Self:
        """Try it that often in all: one more than max_retries."""
        if attempts < 1:
            raise ConfigError(f"max_attempts must be at least 1, not {attempts!r}")
        return self.set_options(max_retries=attempts - 1)

    def set_retry(self, retry: RetryPolicy | Preset) -> Self:
        """Wait so between attempts."""
        return self.set_options(retry=retry)

    def set_priority(self, priority: Priority) -> Self:
        """How urgent its tasks are."""
        return self.set_options(priority=priority)

    def set_options(self, **options: Unpack[AnyOptions]) -> Self:
        """Anything that `@q.task(…)` takes."""
        self._queue.planner.say(self.type, Options.of(**options))
        return self

    # Its tasks.

    def add(self, input: object = None, **options: Unpack[CallOptions]) -> Self:
        """Add a task: stored when this returns, or, inside an event loop, when the chain is awaited."""
        call = self._queue.call(self.type, input, **options)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.handles.append(self._queue.sync.submit_call(call))
        else:
            self._collected.append(call)
        return self

    def __await__(self) -> Generator[Any, Any, list[TaskHandle[Any]]]:
        return self._store().__await__()

    async def _store(self) -> list[TaskHandle[Any]]:
        collected, self._collected = self._collected, []
        handles = await self._queue.submit_many(collected)
        self.handles += handles
        return handles

    def __del__(self) -> None:
        if getattr(self, "_collected", None):
            message = f"{len(self._collected)} {self.type!r} tasks were added in an event loop but never stored"
            warnings.warn(f"{message}: await the chain", RuntimeWarning, stacklevel=2, source=self)

    # All of it.

    def start(self, **options: Any) -> Self:
        """Start the queue's worker in the background: `Queue.start`."""
        self._queue.start(**options)
        return self

    def stop(self) -> Self:
        """Stop it: `Queue.stop`."""
        self._queue.stop()
        return self

    async def run_once(self, limit: int = 100) -> int:
        """Run what waits of this type, at most that many, to its end; how many there were."""
        return await self._queue.run_once(limit, types=[self.type])

    async def pause(self) -> Controls:
        """Let no worker claim tasks of this type."""
        return await self._queue.pause(self.type)

    async def resume(self) -> Controls:
        """Take back `pause`."""
        return await self._queue.resume(self.type)

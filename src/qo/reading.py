"""Looking at a queue: tasks, results, numbers, workers, types. The first part of Queue, see `admin` and `queue`."""

import asyncio
import logging
from typing import Any, TypeVar, Unpack, overload

import msgspec
from msgspec.structs import replace

from qo.calls import TaskHandle
from qo.clock import Clock
from qo.errors import ConfigError, InvalidInput, ResultTimeout, TaskCancelled, TaskFailed, TaskNotFound, UsageError
from qo.handlers import Registry
from qo.options import Duration
from qo.records import NO_CONTROLS, Controls, WorkerInfo, decode_controls, decode_worker
from qo.session import Session, Sessions
from qo.settings import Settings
from qo.stores.protocol import Page, Sort
from qo.task import Task, Transition, check_name
from qo.values import decode_value
from qo.views import QueueStats, TypeInfo, Where, duration, make_filter, queue_stats

R = TypeVar("R")

log = logging.getLogger("qo")
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.25
"""Seconds between two looks at a task whose result is waited for."""


class Reading:
    """What can be asked of a queue."""

    name: str
    settings: Settings
    registry: Registry
    clock: Clock
    _sessions: Sessions

    async def session(self) -> Session:
        """The opened store of this event loop."""
        return self._sessions.ready() or await self._sessions.open()

    async def get(self, id: str) -> Task:
        """The task as it is now, or TaskNotFound."""
        task = await (await self.session()).get(check_name("id", id))
        if task is None:
            raise TaskNotFound(f"there is no task {id}; it may have been deleted or purged", id)
        return task

    @overload
    async def result(self, task: TaskHandle[R], timeout: Duration | None = None) -> R: ...
    @overload
    async def result(self, task: str, timeout: Duration | None = None) -> Any: ...
    async def result(self, task: str | TaskHandle[Any], timeout: Duration | None = None) -> Any:
        """What the handler returned; waits for it. Raises TaskFailed, TaskCancelled, TaskNotFound or ResultTimeout."""
        return self.output_of(await self.ended(task if isinstance(task, str) else task.id, timeout))

    async def ended(self, id: str, timeout: Duration | None = None) -> Task:
        """The task once it has ended, however it ended; ResultTimeout when that takes longer."""
        seconds = None if timeout is None else duration("timeout", timeout)
        deadline = None if seconds is None else self.clock.monotonic() + seconds
        pause = FIRST_PAUSE
        while True:
            task = await self.get(id)
            if task.ended:
                return task
            if deadline is not None:
                left = deadline - self.clock.monotonic()
                if left <= 0:
                    raise ResultTimeout(_unfinished(task, seconds), id)
                pause = min(pause, left)
            await self.clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def output_of(self, task: Task) -> Any:
        """The output of an ended task, read by the annotation of its handler if it has one here."""
        state = task.archived_from if task.state == "archived" else task.state
        if state == "completed":
            handler = self.registry.find(task.type)
            return handler.decode_output(task.raw_output) if handler else decode_value(task.raw_output)
        if state == "cancelled":
            raise TaskCancelled(f"task {task.id} ({task.type}) was cancelled", task.id)
        if state != "failed":
            raise UsageError(f"task {task.id} is {task.state}: it has no output yet")
        raise _failure(task)

    async def find(
        self,
        *,
        sort: Sort = "newest",
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
        total: bool = False,
        **where: Unpack[Where],
    ) -> Page:
        """A page of tasks, archived ones only when asked for; `cursor=page.cursor` gives the next page."""
        if limit < 1 or offset < 0:
            raise InvalidInput(f"limit must be at least 1 and offset at least 0, not {limit} and {offset}")
        wanted = make_filter(self.name, **where)
        store = (await self.session()).store
        return await store.find(wanted, sort=sort, limit=limit, cursor=cursor, offset=offset, total=total)

    async def history(self, id: str) -> list[Transition]:
        """All that happened to a task, oldest first."""
        lines = await (await self.session()).store.history(check_name("id", id))
        if not lines:
            await self.get(id)
        return lines

    async def stats(self) -> QueueStats:
        """The queue in numbers."""
        store = (await self.session()).store
        stats, workers, controls = await asyncio.gather(store.stats(self.name), self.workers(), self.controls())
        return queue_stats(self.name, stats, workers, controls.paused, controls.paused_types, store.now())

    async def workers(self) -> list[WorkerInfo]:
        """The workers of this queue, with their state as seen now."""
        store = (await self.session()).store
        workers: list[WorkerInfo] = []
        for record in await store.records("worker"):
            try:
                worker = decode_worker(record.value)
            except msgspec.MsgspecError as error:
                log.warning("the record of worker %s cannot be read: %s", record.key, error)
                continue
            if self.name in worker.queues:
                workers.append(replace(worker, state=worker.seen(store.now(), self.settings.worker_dead_after)))
        return workers

    async def types(self) -> list[TypeInfo]:
        """Every type that has tasks, a handler here or a worker, by name."""
        store = (await self.session()).store
        stats, workers, controls = await asyncio.gather(store.stats(self.name), self.workers(), self.controls())
        live = [worker for worker in workers if worker.state != "dead"]
        schemas = {name: schema for worker in live for name, schema in worker.types.items()}
        names = {*stats.by_type, *self.registry.types, *schemas}
        return [
            TypeInfo(
                name=name,
                registered=name in self.registry,
                workers=sum(name in worker.types for worker in live),
                paused=controls.stops(name),
                counts=stats.by_type.get(name, {}),
                schema=self._schema(name) or schemas.get(name),
            )
            for name in sorted(names)
        ]

    def _schema(self, type: str) -> dict[str, Any] | None:
        handler = self.registry.find(type)
        try:
            return handler.schema() if handler else None
        except ConfigError as error:
            log.warning("%s", error)
            return None

    async def controls(self) -> Controls:
        """What is paused and limited now."""
        return (await self.read_controls())[0]

    async def read_controls(self) -> tuple[Controls, int]:
        """The controls and the version they have in the store, 0 when there are none."""
        for record in await (await self.session()).store.records("control"):
            if record.key == self.name:
                return decode_controls(record.value), record.version
        return NO_CONTROLS, 0


def _unfinished(task: Task, timeout: float | None) -> str:
    text = f"task {task.id} ({task.type}) did not end within {timeout:g} s; it is {task.state}"
    if task.state == "pending" and task.attempt == 0:
        text += ": is a worker for this type running?"
    return text


def _failure(task: Task) -> TaskFailed:
    error = task.error
    if error is None:
        return TaskFailed(f"task {task.id} ({task.type}) failed", task.id)
    kind = f"{error.type}: " if error.type else ""
    runs = f"{task.attempt} attempt{'s'[: task.attempt != 1]}"
    message = f"task {task.id} ({task.type}) failed after {runs}, {error.reason}: {kind}{error.message}"
    failed = TaskFailed(message, task.id, error)
    if error.traceback:
        failed.add_note(f"in the worker:\n{error.traceback.rstrip()}")
    return failed

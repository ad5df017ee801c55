"""Looking at a queue and changing what is in it: the half of Queue that is not about submitting.

A change is read, decided by `lifecycle` and written under the guard of the version read; when somebody else was
faster it is read and decided again.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack

import msgspec
from msgspec.structs import replace

from qo import lifecycle
from qo.changes import Amendment, apply_amendment
from qo.clock import Clock
from qo.errors import ConfigError, Contention, InvalidInput, OutcomeUnknown, QoError, TaskNotFound
from qo.handlers import Registry
from qo.records import NO_CONTROLS, Controls, WorkerInfo, decode_controls, decode_worker, encode_record
from qo.session import Session, Sessions
from qo.settings import Settings
from qo.stores.protocol import Page, Sort
from qo.task import Task, Transition, check_name
from qo.units import seconds
from qo.views import QueueStats, TypeInfo, Where, make_filter, queue_stats

log = logging.getLogger("qo")
TRIES = 20
"""How often a change is decided again before the caller is told that too many others are changing the same."""
PAGE = 1000
Verb = Literal["cancel", "replay", "archive", "unarchive", "delete"]
Decide = Callable[[Task, datetime], Amendment | None]


class Admin:
    """What can be asked of a queue and done to its tasks."""

    name: str
    settings: Settings
    registry: Registry
    clock: Clock
    _sessions: Sessions

    async def session(self) -> Session:
        """The opened store of this event loop."""
        return self._sessions.ready() or await self._sessions.open()

    # Looking.

    async def get(self, id: str) -> Task:
        """The task as it is now, or TaskNotFound."""
        task = await (await self.session()).get(check_name("id", id))
        if task is None:
            raise TaskNotFound(f"there is no task {id}; it may have been deleted or purged", id)
        return task

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

    # Changing tasks.

    async def cancel(self, id: str, *, actor: str | None = None) -> Task:
        """Cancel it: at once when it waits, as soon as its handler notices when it runs."""
        return await self._amend(id, functools.partial(lifecycle.cancel, actor=actor))

    async def replay(self, id: str, *, force: bool = False, actor: str | None = None) -> Task:
        """Run it again: a failed or cancelled task anew, a waiting one at once, a completed one with `force`."""
        return await self._amend(id, functools.partial(lifecycle.replay, actor=actor, force=force))

    async def archive(self, id: str, *, actor: str | None = None) -> Task:
        """Put an ended task away: it keeps everything and leaves the lists."""
        return await self._amend(id, functools.partial(lifecycle.archive, actor=actor))

    async def unarchive(self, id: str, *, actor: str | None = None) -> Task:
        """Back to the state it had."""
        return await self._amend(id, functools.partial(lifecycle.unarchive, actor=actor))

    async def delete(self, id: str, *, actor: str | None = None) -> None:
        """Remove an ended task with its history."""
        await self._amend(id, functools.partial(lifecycle.delete, actor=actor))

    async def bulk(
        self, verb: Verb, ids: Iterable[str], *, force: bool = False, actor: str | None = None
    ) -> list[Task | QoError]:
        """Do the same to many tasks; answers for each, in order. An error of one is not an error of the others."""
        decide: dict[str, Decide] = {
            "cancel": functools.partial(lifecycle.cancel, actor=actor),
            "replay": functools.partial(lifecycle.replay, actor=actor, force=force),
            "archive": functools.partial(lifecycle.archive, actor=actor),
            "unarchive": functools.partial(lifecycle.unarchive, actor=actor),
            "delete": functools.partial(lifecycle.delete, actor=actor),
        }
        if verb not in decide:
            raise InvalidInput(f"no verb {verb!r}; there are {', '.join(decide)}")

        async def one(id: str) -> Task | QoError:
            try:
                return await self._amend(id, decide[verb])
            except QoError as error:
                return error

        return await _all(one, list(ids))

    async def purge(
        self, older_than: timedelta | datetime | str | float, *, states: str | Iterable[str] = ("completed",)
    ) -> int:
        """Delete tasks that ended before a time or longer ago than that ("7d"), with their history; how many it were.
        Completed ones, unless other states are named."""
        store = (await self.session()).store
        if isinstance(older_than, datetime):
            before = older_than
        else:
            before = store.now() - _duration(older_than)
        wanted = make_filter(self.name, states=states, completed_before=before)
        if not wanted.states or {"pending", "running"} & set(wanted.states):
            raise InvalidInput("purge removes tasks that ended: completed, failed, cancelled, archived")
        removed = 0
        while count := await store.purge(wanted, PAGE):
            removed += count
        return removed

    async def expire(self) -> int:
        """One round of upkeep: end the leases that ran out, so that their tasks run again; how many there were."""
        session = await self.session()
        expired = await session.store.expired(PAGE)
        now = session.store.now()
        settlements = [lifecycle.expire(task, now, self.clock.chance(), self.settings.max_losses) for task in expired]
        answers = await session.commits.settle_many(settlements)
        return sum(answer == "written" for answer in answers)

    async def _amend(self, id: str, decide: Decide) -> Task:
        session = await self.session()
        for _ in range(TRIES):
            task = await self.get(id)
            amendment = decide(task, session.store.now())
            if amendment is None:
                return task
            if await session.commits.amend(amendment) == "written":
                return apply_amendment(task, amendment)
            await self.clock.sleep(0)
        raise Contention(f"task {id} kept changing while it was to be changed; try again")

    # Controls.

    async def controls(self) -> Controls:
        """What is paused and limited now."""
        return (await self._controls())[0]

    async def pause(self, type: str | None = None) -> Controls:
        """Let no worker claim anything, or nothing of that type, until `resume`. What runs goes on."""
        if type is None:
            return await self._control(lambda now: replace(now, paused=True))
        check_name("type", type)
        return await self._control(lambda now: replace(now, paused_types=now.paused_types | {type}))

    async def resume(self, type: str | None = None) -> Controls:
        """Take back `pause`: that of the queue, or that of one type."""
        if type is None:
            return await self._control(lambda now: replace(now, paused=False))
        return await self._control(lambda now: replace(now, paused_types=now.paused_types - {type}))

    async def set_rate_limit(self, rate: float, type: str | None = None) -> Controls:
        """At most that many tasks a second for each worker process, overall or of that type; 0 takes the limit away."""
        if isinstance(rate, bool) or not 0 <= rate < float("inf"):
            raise InvalidInput(f"rate: {rate!r} is not a number of tasks a second; 0 means no limit")
        if type is None:
            return await self._control(lambda now: replace(now, rate_limit=float(rate)))
        check_name("type", type)

        def change(now: Controls) -> Controls:
            others = {name: limit for name, limit in now.rate_limits.items() if name != type}
            return replace(now, rate_limits=others | {type: float(rate)} if rate else others)

        return await self._control(change)

    async def _controls(self) -> tuple[Controls, int]:
        for record in await (await self.session()).store.records("control"):
            if record.key == self.name:
                return decode_controls(record.value), record.version
        return NO_CONTROLS, 0

    async def _control(self, change: Callable[[Controls], Controls]) -> Controls:
        store = (await self.session()).store
        for _ in range(TRIES):
            before, version = await self._controls()
            after = change(before)
            if after == before:
                return after
            try:
                if await store.put_record("control", self.name, encode_record(after), version):
                    return after
            except OutcomeUnknown:
                await self.clock.sleep(0.1)
        raise Contention(f"the controls of queue {self.name!r} kept changing; try again")


def _duration(value: timedelta | str | float) -> timedelta:
    if isinstance(value, timedelta):
        return value
    try:
        return timedelta(seconds=seconds(value))
    except ValueError:
        raise InvalidInput(f"older_than: {value!r} is not a time, a timedelta or a duration such as 7d") from None


async def _all(work: Callable[[str], Awaitable[Task | QoError]], ids: Sequence[str]) -> list[Task | QoError]:
    """Many at a time, so that they share the store's round trips, but not without end."""
    answers: list[Task | QoError] = []
    for start in range(0, len(ids), PAGE):
        answers += await asyncio.gather(*(work(id) for id in ids[start : start + PAGE]))
    return answers

"""Changing what is in a queue: cancel, replay, archive, purge, pause. The second part of Queue.

A change is read, decided by `lifecycle` and written under the guard of the version read; when somebody else was
faster it is read and decided again.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

from msgspec.structs import replace

from qo import lifecycle
from qo.changes import Amendment, apply_amendment
from qo.errors import Contention, InvalidInput, OutcomeUnknown, QoError
from qo.expiry import expire_once
from qo.reading import Reading
from qo.records import Controls, encode_record
from qo.task import Task, check_name
from qo.views import duration, make_filter

log = logging.getLogger("qo")
TRIES = 20
"""How often a change is decided again before the caller is told that too many others are changing the same."""
PAGE = 1000
Verb = Literal["cancel", "replay", "archive", "unarchive", "delete"]
Decide = Callable[[Task, datetime], Amendment | None]


class Admin(Reading):
    """What can be done to the tasks of a queue."""

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
            before = store.now() - timedelta(seconds=duration("older_than", older_than))
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
        return await expire_once(session.store, self.clock, self.settings.max_losses)

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

    async def _control(self, change: Callable[[Controls], Controls]) -> Controls:
        store = (await self.session()).store
        for _ in range(TRIES):
            before, version = await self.read_controls()
            after = change(before)
            if after == before:
                return after
            try:
                if await store.put_record("control", self.name, encode_record(after), version):
                    return after
            except OutcomeUnknown:
                await self.clock.sleep(0.1)
        raise Contention(f"the controls of queue {self.name!r} kept changing; try again")


async def _all(work: Callable[[str], Awaitable[Task | QoError]], ids: Sequence[str]) -> list[Task | QoError]:
    """Many at a time, so that they share the store's round trips, but not without end."""
    answers: list[Task | QoError] = []
    for start in range(0, len(ids), PAGE):
        answers += await asyncio.gather(*(work(id) for id in ids[start : start + PAGE]))
    return answers

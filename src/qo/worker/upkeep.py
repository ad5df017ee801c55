"""What somebody must do now and then: expire leases of lost workers, keep to the retention, remove old worker records.

Runs in every worker; one would be enough, several do no harm. After a gap in its own contact with the store it waits
one lease time before it expires anything: workers that were cut off with it get the chance to renew first.
"""

import logging
from datetime import datetime, timedelta

from qo.clock import Clock
from qo.errors import QoError, StoreError
from qo.expiry import expire_once
from qo.settings import Settings
from qo.stores.protocol import Filter, Store
from qo.task import State

log = logging.getLogger("qo.worker")
AT_ONCE = 500
DEFAULT_INTERVAL = 2.0
RETENTION_EVERY = 60.0
FORGET_WORKERS_AFTER = timedelta(days=1)


async def keep_retention(store: Store, queue: str, settings: Settings) -> int:
    """Purge ended tasks of the queue that are older than its settings say; how many."""
    rules: list[tuple[float | None, tuple[State, ...]]] = [
        (settings.keep_completed, ("completed",)),
        (settings.keep_failed, ("failed", "cancelled")),
    ]
    gone = 0
    for seconds, states in rules:
        if seconds is None or seconds == float("inf"):
            continue
        before = store.now() - timedelta(seconds=seconds)
        while purged := await store.purge(Filter(queue=queue, states=states, completed_before=before), AT_ONCE):
            gone += purged
    return gone


async def forget_workers(store: Store) -> None:
    """Remove the records of workers that went silent long ago."""
    for record in await store.records("worker"):
        # By the store's own stamp: a record that cannot be read is forgotten too.
        if store.now() - record.updated_at > FORGET_WORKERS_AFTER:
            await store.delete_record("worker", record.key)


class Upkeep:
    """Does all of this in turn."""

    def __init__(self, store: Store, queue: str, settings: Settings, clock: Clock) -> None:
        self._store = store
        self._queue = queue
        self._settings = settings
        self._clock = clock
        self._interval = settings.upkeep_interval or DEFAULT_INTERVAL
        self._quiet_until = 0.0
        self._away = False
        self._last_contact: datetime | None = None
        self._retention_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            # Spread out, so that the workers of a deployment do not all look at the same moment.
            await self._clock.sleep(self._interval * (0.75 + self._clock.chance() / 2))
            await self.round()

    async def round(self) -> None:
        """Once; a store that is away is noted and met again."""
        try:
            if self._away or self._was_asleep():
                await self._store.records("control")
                self._away = False
                self._quiet_until = self._clock.monotonic() + self._settings.lease
            if self._clock.monotonic() >= self._quiet_until:
                await expire_once(self._store, self._clock, self._settings.max_losses)
            if self._clock.monotonic() >= self._retention_at:
                self._retention_at = self._clock.monotonic() + RETENTION_EVERY
                await keep_retention(self._store, self._queue, self._settings)
                await forget_workers(self._store)
            self._last_contact = self._store.now()
        except StoreError as error:
            self._away = True
            log.warning("upkeep has to wait: %s", error)
        except QoError:
            log.exception("upkeep failed")

    def _was_asleep(self) -> bool:
        """The machine was suspended, or the loop blocked: others were too, perhaps, and could not renew."""
        if self._last_contact is None:
            return False
        gap = (self._store.now() - self._last_contact).total_seconds()
        return gap > self._settings.lease + 2 * self._interval

"""From outcomes to the store: decide with `lifecycle`, write in batches, keep what cannot be written yet.

An outcome is never dropped while its lease may be held: when the store is away the settler waits and tries again, and
the lease keeper goes on renewing what it holds.
"""

import asyncio
import logging
from collections.abc import Callable

from msgspec.structs import replace

from qo import lifecycle
from qo.changes import Settled, Settlement
from qo.clock import Clock
from qo.commit import GroupCommit
from qo.errors import Contention, OutcomeUnknown, QoError, StoreError, Unavailable
from qo.outcomes import Outcome, Raised, Returned
from qo.stores.protocol import Corrupt, Store
from qo.task import ErrorInfo, Task

log = logging.getLogger("qo.worker")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0

OnSettled = Callable[[Task | None, Settlement, Settled | None], None]
"""The task as it was (None: unreadable), what was written, and the store's answer (None: given up)."""


class _Pending:
    __slots__ = ("refused", "settlement", "task")

    def __init__(self, task: Task | None, settlement: Settlement, refused: bool = False) -> None:
        self.task = task
        self.settlement = settlement
        self.refused = refused
        """It says that the store refused what the handler really did."""


def _useless(message: str) -> ErrorInfo:
    return ErrorInfo(reason="raised", message=message, retriable=False)


class Settler:
    """Writes what `add` brings, in the order it came."""

    def __init__(self, store: Store, commit: GroupCommit, clock: Clock, on_settled: OnSettled) -> None:
        self._store = store
        self._commit = commit
        self._clock = clock
        self._on_settled = on_settled
        self._waiting: list[_Pending] = []
        self._more = asyncio.Event()
        self._closing = False

    def add(self, task: Task, outcome: Outcome) -> None:
        """The handler is done with this task."""
        self._enter(_Pending(task, self._decided(task, outcome)))

    def _decided(self, task: Task, outcome: Outcome) -> Settlement:
        now = self._store.now()
        try:
            return lifecycle.settle(task, outcome, now, self._clock.chance())
        except Exception as error:  # an outcome that nobody thought of must not stay unsettled for ever
            log.exception("task %s (%s): its outcome cannot be used", task.id, task.type)
            failed = Raised(_useless(f"its outcome cannot be used: {type(error).__name__}: {error}"))
            return lifecycle.settle(task, failed, now, 0.0)

    def add_corrupt(self, corrupt: Corrupt) -> None:
        """A claimed record that cannot be read fails."""
        now = self._store.now()
        settlement = lifecycle.give_up(corrupt.id, corrupt.lease_id, corrupt.attempt, corrupt.message, now)
        self._enter(_Pending(None, settlement))

    def _enter(self, pending: _Pending) -> None:
        self._waiting.append(pending)
        self._more.set()

    def close(self) -> None:
        """End `run` when everything is written."""
        self._closing = True
        self._more.set()

    async def run(self) -> None:
        """Write until closed and empty."""
        pause = FIRST_PAUSE
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await self._write(batch)
                    pause = FIRST_PAUSE
                except StoreError as error:
                    log.warning("the store is away, %d outcomes wait: %s", len(batch) + len(self._waiting), error)
                    self._waiting = [*batch, *self._waiting]
                    await self._clock.sleep(pause)
                    pause = min(LONGEST_PAUSE, pause * 2)
            if self._closing:
                return

    async def _write(self, batch: list[_Pending]) -> None:
        """Raises a StoreError when something is left to write; `batch` is then what is left."""
        answers = await self._commit.settle_many([pending.settlement for pending in batch])
        left: list[_Pending] = []
        away: StoreError | None = None
        for pending, answer in zip(batch, answers, strict=True):
            if isinstance(answer, Unavailable | OutcomeUnknown | Contention):
                left.append(pending)  # a part of a large batch: the store went away between two calls
                away = answer
            elif isinstance(answer, QoError):
                self._cannot_store(pending, answer)
            elif answer == "cancel_asked":
                self._decide_again(pending)
            else:
                self._on_settled(pending.task, pending.settlement, answer)
        batch[:] = left
        if away is not None:
            raise away

    def _decide_again(self, pending: _Pending) -> None:
        """Somebody cancelled it meanwhile; that always wins, and what the handler did is kept."""
        settlement = pending.settlement
        # The opposite of what we believed, whatever that was: repeating ourselves would never end.
        asked = not settlement.cancel_requested
        if pending.task is None:  # unreadable: it fails all the same, and only the guard changes
            self._enter(_Pending(None, replace(settlement, cancel_requested=asked)))
            return
        outcome: Outcome = Returned(settlement.raw_output)
        if settlement.error is not None:
            outcome = Raised(settlement.error)
        self.add(replace(pending.task, cancel_requested=asked), outcome)

    def _cannot_store(self, pending: _Pending, error: QoError) -> None:
        """The store refuses this outcome (too large, say): fail the task with the reason instead."""
        message = f"the outcome could not be stored: {error}"
        if pending.task is None or pending.refused:
            log.error("task %s: %s; its lease will run out", pending.settlement.id, message)
            self._on_settled(pending.task, pending.settlement, None)
            return
        settlement = self._decided(pending.task, Raised(_useless(message)))
        self._enter(_Pending(pending.task, settlement, refused=True))

"""One round of what upkeep does first: end the leases that ran out. Shared by the worker's upkeep and `q.expire()`."""

import logging

from msgspec.structs import replace

from qo import lifecycle
from qo.changes import Settled, Settlement
from qo.clock import Clock
from qo.errors import QoError
from qo.stores.protocol import Store
from qo.task import Task

log = logging.getLogger("qo.worker")
AT_ONCE = 500


async def expire_once(store: Store, clock: Clock, max_losses: int) -> int:
    """Settle every lease that ran out; how many there were."""
    done = 0
    while found := await store.expired(AT_ONCE):
        now = store.now()
        settlements: list[Settlement] = []
        for one in found:
            if isinstance(one, Task):
                settlements.append(lifecycle.expire(one, now, clock.chance(), max_losses))
            else:
                settlements.append(lifecycle.give_up(one.id, one.lease_id, one.attempt, one.message, now, expired=True))
        answers = await store.settle(settlements)
        answers = await _with_cancellation(store, settlements, answers)
        written = [pair for pair in zip(found, settlements, answers, strict=True) if pair[2] == "written"]
        for one, settlement, _ in written:
            log.warning("task %s: the lease of attempt %d ran out; now %s", one.id, one.attempt, settlement.state)
        done += len(written)
        if len(found) < AT_ONCE or not written:
            break
    return done


async def _with_cancellation(
    store: Store, settlements: list[Settlement], answers: list[Settled | QoError]
) -> list[Settled | QoError]:
    """Once more for those cancelled since they were read, or unreadable and cancelled: nobody else will end them."""
    asked = [index for index, answer in enumerate(answers) if answer == "cancel_asked"]
    if not asked:
        return answers
    again = [replace(settlements[index], cancel_requested=True, state="cancelled") for index in asked]
    for index, answer in zip(asked, await store.settle(again), strict=True):
        answers[index] = answer
    return answers

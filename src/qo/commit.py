"""Group commit: concurrent calls of one verb share one store call. The client and the worker write through this.

The first call goes at once; those that arrive while it is under way form the next batch. No timer, no added latency
when alone, and a caller is answered only after its batch is durable. The committer owns the store call: a caller that
is cancelled (a client that hung up) takes nothing from the others. An error of one item is not an error of the batch:
data that the store refuses as a whole is bisected until the culprit stands alone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Generic, TypeVar

from qo.changes import Amended, Amendment, Lease, Renewed, Settled, Settlement
from qo.clock import SYSTEM, Clock
from qo.errors import Contention, OutcomeUnknown, QoError, StoreError, Unavailable, UsageError
from qo.stores.protocol import Store, Submitted
from qo.task import Task

Item = TypeVar("Item")
Answer = TypeVar("Answer")
StoreCall = Callable[[Sequence[Item]], Awaitable[Sequence[Answer | QoError]]]

MOST_ITEMS = 500
MOST_BYTES = 4 * 1024 * 1024
REPEATS = 6
"""How often a call whose outcome is unknown is repeated before its callers are told so: about 3 s."""

CLOSED = "the queue is closed; nothing was written"


class _Waiting(Generic[Item, Answer]):
    """What one caller brought, and where its answer goes."""

    __slots__ = ("answered", "items", "size")

    def __init__(self, items: Sequence[Item], size: int, answered: "asyncio.Future[list[Answer | QoError]]") -> None:
        self.items = items
        self.size = size
        self.answered = answered


class Committer(Generic[Item, Answer]):
    """Turns concurrent calls into batches for one store call."""

    def __init__(self, call: StoreCall[Item, Answer], size: Callable[[Item], int]) -> None:
        self._call = call
        self._size = size
        self._waiting: deque[_Waiting[Item, Answer]] = deque()
        self._runner: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def idle(self) -> bool:
        """Is nothing waiting and nothing under way?"""
        return self._runner is None

    async def add(self, item: Item) -> Answer:
        """The store's answer for one item; raises when that is an error."""
        (answer,) = await self._enter([item], self._size(item))
        if isinstance(answer, QoError):
            raise answer
        return answer

    async def add_many(self, items: Sequence[Item]) -> list[Answer | QoError]:
        """The store's answer for each item.

        More than fit into one batch go one batch after the other. When one of them cannot be written, its items and
        those after it are answered by the error: what was written before must not be hidden by raising it.
        """
        answers: list[Answer | QoError] = []
        for piece, size in self._pieces(items):
            try:
                answers += await self._enter(piece, size)
            except StoreError as error:
                if not answers:
                    raise
                return [*answers, *[error] * (len(items) - len(answers))]
        return answers

    async def close(self) -> None:
        """Take nothing more, and wait until what was taken is written."""
        self._closed = True
        while self._runner is not None:
            await asyncio.wait([self._runner])

    def _pieces(self, items: Sequence[Item]) -> list[tuple[list[Item], int]]:
        """At most as many items together as fit into one batch, each piece with its bytes."""
        pieces: list[tuple[list[Item], int]] = []
        piece: list[Item] = []
        total = 0
        for item in items:
            size = self._size(item)
            if piece and (len(piece) >= MOST_ITEMS or total + size > MOST_BYTES):
                pieces.append((piece, total))
                piece, total = [], 0
            piece.append(item)
            total += size
        return [*pieces, (piece, total)] if piece else pieces

    async def _enter(self, items: Sequence[Item], size: int) -> list[Answer | QoError]:
        if self._closed:
            raise Unavailable(CLOSED)
        answered: asyncio.Future[list[Answer | QoError]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(items, size, answered))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(), name="qo-group-commit")
        return await answered

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                await self._commit(batch)
        finally:
            self._runner = None
            while self._waiting:  # only when the loop is being torn down
                self._waiting.popleft().answered.cancel()

    def _next_batch(self) -> list[_Waiting[Item, Answer]]:
        batch = [self._waiting.popleft()]
        count, size = len(batch[0].items), batch[0].size
        while self._waiting:
            count += len(self._waiting[0].items)
            size += self._waiting[0].size
            if count > MOST_ITEMS or size > MOST_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _commit(self, batch: list[_Waiting[Item, Answer]]) -> None:
        items = [item for waiting in batch for item in waiting.items]
        try:
            answers = await self._answers(items)
        except BaseException as error:
            for waiting in batch:
                if not waiting.answered.done():
                    _pass_on(error, waiting.answered)
            if not isinstance(error, Exception):
                raise
            return
        start = 0
        for waiting in batch:
            end = start + len(waiting.items)
            if not waiting.answered.done():
                waiting.answered.set_result(answers[start:end])
            start = end

    async def _answers(self, items: Sequence[Item]) -> list[Answer | QoError]:
        """Ask the store; when the data of one item spoils the call for all, find the item."""
        try:
            return list(await self._call(items))
        except StoreError:
            raise
        except QoError as error:
            if len(items) == 1:
                return [error]
            middle = len(items) // 2
            return [*await self._answers_of_half(items[:middle]), *await self._answers_of_half(items[middle:])]

    async def _answers_of_half(self, items: Sequence[Item]) -> list[Answer | QoError]:
        """The other half may be written, so a store that fails now fails these items, not the batch."""
        try:
            return await self._answers(items)
        except StoreError as error:
            return [error] * len(items)


def _pass_on(error: BaseException, answered: "asyncio.Future[list[Answer | QoError]]") -> None:
    if isinstance(error, asyncio.CancelledError):
        answered.cancel()
    else:
        answered.set_exception(error)


class GroupCommit:
    """The committers of one store. Keyed submits go apart, so that somebody's open transaction on a key cannot hold up
    the others, and in the order of their keys, so that two of them never wait for each other."""

    def __init__(self, store: Store, clock: Clock = SYSTEM) -> None:
        self._store = store
        self._clock = clock
        self._plain = Committer[Task, Submitted](self._submit, _task_size)
        self._keyed = Committer[Task, Submitted](self._submit_keyed, _task_size)
        self._settle = Committer[Settlement, Settled](self._repeated(store.settle), _settlement_size)
        self._amend = Committer[Amendment, Amended](self._repeated(store.amend), lambda _: 500)
        self._renewals: dict[float, Committer[Lease, Renewed]] = {}
        self._closed = False

    async def submit(self, task: Task) -> Submitted:
        """Store one task; durable when this returns."""
        return await (self._plain if task.key is None else self._keyed).add(task)

    async def submit_many(self, tasks: Sequence[Task]) -> list[Submitted | QoError]:
        """Store many tasks, answering for each."""
        plain = [task for task in tasks if task.key is None]
        keyed = [task for task in tasks if task.key is not None]
        if not keyed or not plain:
            return await (self._keyed if keyed else self._plain).add_many(tasks)
        both = await asyncio.gather(self._plain.add_many(plain), self._keyed.add_many(keyed), return_exceptions=True)
        errors = [answers for answers in both if isinstance(answers, BaseException)]
        if len(errors) == 2 or not all(isinstance(error, StoreError) for error in errors):
            raise errors[0]
        # An error of one half must not hide what the other wrote.
        answers = (_for_each(plain, both[0]), _for_each(keyed, both[1]))
        return [next(answers[task.key is not None]) for task in tasks]

    async def settle(self, settlement: Settlement) -> Settled:
        """End one attempt."""
        return await self._settle.add(settlement)

    async def settle_many(self, settlements: Sequence[Settlement]) -> list[Settled | QoError]:
        """End many attempts, answering for each."""
        return await self._settle.add_many(settlements)

    async def amend(self, amendment: Amendment) -> Amended:
        """Change one task from outside."""
        return await self._amend.add(amendment)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> list[Renewed | QoError]:
        """Let leases run out later."""
        if self._closed:
            raise Unavailable(CLOSED)
        committer = self._renewals.get(ttl)
        if committer is None:

            async def call(some: Sequence[Lease]) -> Sequence[Renewed | QoError]:
                return await self._store.renew(some, ttl)

            committer = self._renewals[ttl] = Committer[Lease, Renewed](self._repeated(call), lambda _: 200)
        try:
            return await committer.add_many(leases)
        finally:
            # A ttl may be any number, so those out of use are forgotten.
            if committer.idle and self._renewals.get(ttl) is committer:
                del self._renewals[ttl]

    async def close(self) -> None:
        """Write what is waiting; take nothing more."""
        self._closed = True
        committers = (self._plain, self._keyed, self._settle, self._amend, *self._renewals.values())
        await asyncio.gather(*(committer.close() for committer in committers))

    async def _submit(self, tasks: Sequence[Task]) -> Sequence[Submitted | QoError]:
        tries: list[None] = []

        async def call(some: Sequence[Task]) -> Sequence[Submitted | QoError]:
            tries.append(None)
            return await self._store.submit(some)

        answers = await self._repeated(call)(tasks)
        if len(tries) == 1:
            return answers
        # Ids are fresh, so one that exists after a repeat was written by the try whose reply was lost.
        return [
            Submitted(answer.task, "created")
            if isinstance(answer, Submitted) and answer.outcome == "id_exists"
            else answer
            for answer in answers
        ]

    async def _submit_keyed(self, tasks: Sequence[Task]) -> Sequence[Submitted | QoError]:
        """The first of each key goes to the store, in the order of the keys; its twins share its answer."""
        if not all(_holds(task) for task in tasks):
            return await self._submit(tasks)  # a window of 0 holds nothing, so these have no twins; the store decides
        first: dict[tuple[str, str | None], int] = {}
        for index, task in enumerate(tasks):
            first.setdefault((task.queue, task.key), index)
        order = sorted(first.values(), key=lambda index: (tasks[index].queue, tasks[index].key))
        answers = await self._submit([tasks[index] for index in order])
        found = dict(zip(order, answers, strict=True))
        # What is wrong with the data of one is not wrong with that of its twins: they try without it.
        alone = [
            index
            for index, task in enumerate(tasks)
            if index not in found and isinstance(found[first[task.queue, task.key]], UsageError)
        ]
        if alone:
            try:
                again = await self._submit_keyed([tasks[index] for index in alone])
            except QoError as error:  # the others are written all the same
                again = [error] * len(alone)
            found |= zip(alone, again, strict=True)
        return [
            found[index] if index in found else _for_twin(found[first[task.queue, task.key]])
            for index, task in enumerate(tasks)
        ]

    def _repeated(self, call: StoreCall[Item, Answer]) -> StoreCall[Item, Answer]:
        """The same call, repeated while its outcome is unknown: ids make every verb repeatable."""

        async def repeat(items: Sequence[Item]) -> Sequence[Answer | QoError]:
            unknown: OutcomeUnknown | None = None
            for tried in range(REPEATS + 1):
                if tried:
                    await self._clock.sleep(0.05 * 2 ** (tried - 1) * (0.5 + self._clock.chance()))
                try:
                    return await call(items)
                except OutcomeUnknown as error:
                    unknown = error
                except (Unavailable, Contention):
                    # This try wrote nothing, but an earlier one may have: nobody may be told otherwise.
                    if unknown is None:
                        raise
            assert unknown is not None
            raise unknown

        return repeat


def _for_each(items: Sequence[Item], answers: list[Answer | QoError] | BaseException) -> Iterator[Answer | QoError]:
    """The answers one by one; an error is that of each item."""
    if isinstance(answers, QoError):
        return iter([answers] * len(items))
    assert isinstance(answers, list)
    return iter(answers)


def _holds(task: Task) -> bool:
    return task.key_until is not None and task.key_until > task.created_at


def _for_twin(answer: Submitted | QoError) -> Submitted | QoError:
    return Submitted(answer.task, "key_held") if isinstance(answer, Submitted) else answer


def _task_size(task: Task) -> int:
    return len(bytes(task.raw_input)) + 500


def _settlement_size(settlement: Settlement) -> int:
    error = settlement.error
    return len(bytes(settlement.raw_output)) + 300 + (len(error.traceback or "") if error else 0)

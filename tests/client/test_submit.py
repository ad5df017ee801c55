"""Submitting: what is stored, what is refused, what the handle knows."""

import asyncio
import sys
import types
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pydantic
import pytest
from tests.client.conftest import MakeQueue
from tests.client.tools import finish

from qo import InvalidInput, PartlySubmitted, QoError, Queue, TaskHandle, Unavailable
from qo.clock import ManualClock
from qo.settings import Settings
from qo.stores.memory import MemoryStore
from qo.stores.protocol import Submitted


class Person(pydantic.BaseModel):
    name: str
    born: datetime


@dataclass
class Point:
    x: int
    y: int


async def test_a_typed_call_is_stored_as_keywords(q: Queue) -> None:
    """Positional arguments are bound to names; defaults are left to the run."""

    @q.task
    async def send_email(to: str, subject: str = "hi", *, copies: int = 1) -> None: ...

    handle = await send_email.submit("a@b.c", copies=2)
    assert handle.created
    assert (handle.state, handle.task.type, handle.task.input) == (
        "pending",
        "send_email",
        {"to": "a@b.c", "copies": 2},
    )
    assert (await q.get(handle.id)).input == {"to": "a@b.c", "copies": 2}


async def test_rich_values_survive(q: Queue) -> None:
    """Models, dataclasses, times, ids and bytes go in and come out as themselves."""

    @q.task
    def echo(person: Person, point: Point, when: datetime, id: UUID, data: bytes) -> Person: ...

    person = Person(name="Ada", born=datetime(1815, 12, 10, tzinfo=UTC))
    moment, key = datetime(2030, 1, 1, tzinfo=UTC), UUID(int=7)
    handle = await echo.submit(person, Point(1, 2), moment, id=key, data=b"\x00\xff")
    _, arguments = echo.handler.arguments(handle.task.raw_input)
    assert arguments == {"person": person, "point": Point(1, 2), "when": moment, "id": key, "data": b"\x00\xff"}
    await finish(q, person)
    assert await handle.result() == person


async def test_calling_a_task_runs_the_function(q: Queue) -> None:
    """A task function is still the function, with its name and its docs."""

    @q.task
    def double(x: int) -> int:
        """Twice as much."""
        return 2 * x

    @q.task(name="other")
    async def halve(x: int) -> float:
        return x / 2

    assert double(4) == 8
    assert await halve(3) == 1.5
    assert (double.__name__, double.__doc__, double.type, halve.type) == ("double", "Twice as much.", "double", "other")
    assert double.__wrapped__ is double.handler.fn
    assert (await q.stats()).pending == 0


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "'to' is missing"),
        ((5,), {}, "valid string"),
        (("a", "b", "c"), {}, "takes 2 positional arguments, 3 were given"),
        (("a",), {"subjekt": "x"}, "there is no 'subjekt'"),
        (("a",), {"to": "b"}, "two values for 'to'"),
    ],
)
async def test_bad_arguments_store_nothing(q: Queue, args: tuple[Any, ...], kwargs: dict[str, Any], said: str) -> None:
    """InvalidInput says what is wrong and shows the signature, before anything is stored."""

    @q.task
    async def send_email(to: str, subject: str = "hi") -> None: ...

    with pytest.raises(InvalidInput, match=said):
        await send_email.submit(*args, **kwargs)
    assert (await q.find(total=True)).total == 0


async def test_by_name_needs_no_handler(q: Queue) -> None:
    """Any JSON value or bytes, and what Pydantic can turn into JSON."""
    for value in ({"url": "x"}, [1, 2], "text", None, b"\x00", 1.5):
        assert (await q.submit("crawl", value)).task.input == value
    handle = await q.submit("crawl", {"person": Person(name="Ada", born=datetime(1815, 12, 10, tzinfo=UTC))})
    assert handle.task.input == {"person": {"name": "Ada", "born": "1815-12-10T00:00:00Z"}}


async def test_by_name_is_checked_when_the_handler_is_here(q: Queue) -> None:
    """A registered signature is honoured whichever way a task comes."""

    @q.task
    async def send_email(to: str, subject: str = "hi") -> None: ...

    assert (await q.submit("send_email", {"to": "x"})).task.input == {"to": "x"}
    for wrong in (None, {}, {"to": 1}, ["x"], "x"):
        with pytest.raises(InvalidInput):
            await q.submit("send_email", wrong)
    assert (await q.stats()).pending == 1


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object(), {1, 2, object()}])
async def test_what_no_store_can_hold_is_refused(q: Queue, value: object) -> None:
    """NaN, half characters and objects are refused before they reach a store."""
    with pytest.raises(InvalidInput):
        await q.submit("crawl", {"value": value})
    assert (await q.stats()).pending == 0


async def test_inputs_have_a_limit(make: MakeQueue) -> None:
    """max_input_bytes bounds typed and untyped inputs."""
    async with make(max_input_bytes=100) as q:

        @q.task
        async def take(text: str) -> None: ...

        await take.submit("x" * 50)
        for submit in (take.submit("x" * 100), q.submit("crawl", "x" * 100), q.submit("take", {"text": "x" * 100})):
            with pytest.raises(InvalidInput, match="the limit is 100"):
                await submit


async def test_a_key_is_taken_once(q: Queue) -> None:
    """The second submit with a key gets the task of the first, and says so; so do twins in one batch."""

    @q.task
    async def greet(name: str) -> str: ...

    first = await greet.options(key="welcome:42").submit("a")
    second = await greet.options(key="welcome:42").submit("b")
    assert (first.created, second.created) == (True, False)
    assert second.id == first.id and second.task.input == {"name": "a"}
    third, fourth, plain = await q.submit_many(
        [greet.options(key="k").call("c"), greet.options(key="k").call("d"), greet.call("e")]
    )
    assert [third.created, fourth.created, plain.created] == [True, False, True]
    assert third.id == fourth.id
    assert (await q.stats()).pending == 3


async def test_a_key_held_by_another_type_decodes_by_that_type(q: Queue) -> None:
    """The handle speaks for the task that is there."""

    @q.task
    def one() -> datetime: ...

    @q.task
    def two() -> int: ...

    await one.options(key="k").submit()
    handle = await two.options(key="k").submit()
    await finish(q, datetime(2030, 1, 1, tzinfo=UTC))
    assert await handle.result() == datetime(2030, 1, 1, tzinfo=UTC)


async def test_a_key_is_free_again_after_its_window(url: str) -> None:
    """key_window bounds how long a key keeps others out."""
    clock = ManualClock()
    async with Queue(store=MemoryStore(clock=clock), settings=Settings(), clock=clock, key_window="1m") as q:
        await q.submit("x", key="k")
        clock.advance(59)
        assert not (await q.submit("x", key="k")).created
        clock.advance(2)
        assert (await q.submit("x", key="k")).created


async def test_many_are_stored_together_in_order(q: Queue) -> None:
    """submit_many answers in the order of the calls, and mixes typed and named ones."""

    @q.task
    async def step(n: int) -> None: ...

    calls = [step.call(n) if n % 2 else q.call("other", {"n": n}) for n in range(1200)]
    handles = await q.submit_many(calls)
    assert [handle.task.input["n"] for handle in handles] == list(range(1200))
    assert all(handle.created for handle in handles)
    assert (await q.stats()).pending == 1200
    assert await q.submit_many([]) == []


class Refusing(MemoryStore):
    """Refuses some tasks by their input."""

    async def submit(self, tasks: Any) -> list[Submitted | QoError]:
        if any(task.input == "away" for task in tasks):
            raise Unavailable("away")
        good = iter(await super().submit([task for task in tasks if task.input != "bad"]))
        return [InvalidInput("refused") if task.input == "bad" else next(good) for task in tasks]


async def test_nothing_is_lost_when_some_are_refused() -> None:
    """PartlySubmitted has a handle for each task that was stored and an error for each that was not."""
    async with Queue(store=Refusing(), settings=Settings()) as q:
        with pytest.raises(PartlySubmitted, match="1 of 3 tasks were not stored: refused") as caught:
            await q.submit_many([q.call("x", value) for value in ("a", "bad", "c")])
        first, second, third = caught.value.results
        assert isinstance(first, TaskHandle) and isinstance(third, TaskHandle)
        assert isinstance(second, InvalidInput)
        assert [task.input for task in (await q.find(sort="oldest")).tasks] == ["a", "c"]
        with pytest.raises(InvalidInput, match="refused"):
            await q.submit("x", "bad")
        with pytest.raises(Unavailable):
            await q.submit_many([q.call("x", "away"), q.call("x", "b")])


async def test_a_late_batch_that_fails_does_not_hide_the_earlier_ones() -> None:
    """More calls than fit into a batch: those stored before the store went away are told."""
    async with Queue(store=Refusing(), settings=Settings()) as q:
        with pytest.raises(PartlySubmitted) as caught:
            await q.submit_many([q.call("x", n) for n in range(500)] + [q.call("x", "away")])
        stored = [one for one in caught.value.results if isinstance(one, TaskHandle)]
        assert len(stored) == (await q.stats()).pending == 500


class Slow(MemoryStore):
    """Stores when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.go = asyncio.Event(), asyncio.Event()

    async def submit(self, tasks: Any) -> list[Submitted | QoError]:
        self.entered.set()
        await self.go.wait()
        return await super().submit(tasks)


async def test_a_cancelled_caller_takes_nothing_from_the_others() -> None:
    """A client that hangs up does not cancel the batch it shares."""
    store = Slow()
    async with Queue(store=store, settings=Settings()) as q:
        first, second = (asyncio.create_task(q.submit("x", n)) for n in (1, 2))
        await store.entered.wait()
        first.cancel()
        store.go.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second).created
        assert (await q.stats()).pending == 2


async def test_the_current_trace_is_kept(q: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that uses OpenTelemetry gets its traceparent stored; others pay nothing."""
    assert (await q.submit("x")).task.trace is None
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    fake = types.ModuleType("opentelemetry.propagate")
    fake.inject = lambda carrier: carrier.update(traceparent=parent)  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "opentelemetry", types.ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", types.ModuleType("opentelemetry.trace"))
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", fake)
    assert (await q.submit("x")).task.trace == parent


async def test_delays_are_counted_from_the_submit(q: Queue) -> None:
    """A bound delay counts from each submit, not from when it was said; run_after is a time."""
    later = q.task(_nothing).options(delay=timedelta(minutes=1))
    one, two = await later.submit(), await later.submit()
    for handle in (one, two):
        assert handle.task.available_at - handle.task.created_at == timedelta(minutes=1)
    moment = datetime(2100, 1, 1, tzinfo=UTC)
    assert (await later.options(run_after=moment).submit()).task.available_at == moment
    assert (await q.stats()).delayed == 3


def _nothing() -> None: ...

"""Ids grow and never repeat, over threads and after a fork; the manual clock wakes sleepers in order."""

import asyncio
import os
import re
import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.clock import SYSTEM, ManualClock, SystemClock, from_micros, micros, wait_until
from qo.task import check_name

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@given(st.integers(-(10**15), 10**17))
def test_micros_are_exact(value: int) -> None:
    """Microseconds and datetimes convert exactly both ways."""
    assert micros(from_micros(value)) == value


@given(st.datetimes(timezones=st.just(UTC)))
def test_datetimes_are_exact(moment: datetime) -> None:
    """Any UTC time converts exactly both ways."""
    assert from_micros(micros(moment)) == moment


@pytest.mark.parametrize("clock", [SystemClock(), ManualClock()], ids=["system", "manual"])
def test_ids_grow(clock: SystemClock | ManualClock) -> None:
    """Later ids of one clock sort after earlier ones, even when no time passes, and are UUIDv7."""
    made = [clock.new_id() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert all(UUID7.fullmatch(id) for id in made)
    check_name("id", made[0])


def test_id_carries_the_time() -> None:
    """The first 48 bits of an id are the milliseconds of its making."""
    clock = ManualClock(datetime(2031, 5, 6, tzinfo=UTC))
    assert int(clock.new_id().replace("-", "")[:12], 16) == micros(clock.now()) // 1000


def test_ids_grow_with_time() -> None:
    """An id made later sorts later, across clocks too."""
    early, late = ManualClock(seed=1), ManualClock(seed=2)
    first = early.new_id()
    late.advance(0.001)
    assert first < late.new_id()


def test_last_digits_are_spread() -> None:
    """The last hex digit, which chooses the shard, takes every value."""
    assert len({SYSTEM.new_id()[-1] for _ in range(1000)}) == 16


def test_ids_over_threads() -> None:
    """Threads that share a clock never get the same id."""
    clock, made = SystemClock(), [[] for _ in range(8)]
    threads = [threading.Thread(target=lambda own=own: own.extend(clock.new_id() for _ in range(2000))) for own in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = [id for own in made for id in own]
    assert len(set(together)) == len(together) == 16_000
    assert all(own == sorted(own) for own in made)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_ids_after_a_fork() -> None:
    """Parent and child never make the same id, nor draw the same chance."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, "\n".join([str(SYSTEM.chance()), *(SYSTEM.new_id() for _ in range(500))]).encode())
        os._exit(0)
    os.close(writing)
    mine = [str(SYSTEM.chance()), *(SYSTEM.new_id() for _ in range(500))]
    with os.fdopen(reading) as pipe:
        theirs = pipe.read().split("\n")
    os.waitpid(child, 0)
    assert len(theirs) == 501
    assert not set(mine) & set(theirs)
    # The random tails must differ as well: the times alone could be luck.
    assert not {id[-12:] for id in mine} & {id[-12:] for id in theirs}


def test_system_time_is_utc() -> None:
    """The time has a zone, and chance is a share."""
    assert SYSTEM.now().tzinfo is UTC
    assert all(0 <= SYSTEM.chance() < 1 for _ in range(100))


def test_manual_clock_repeats() -> None:
    """The same seed makes the same ids and chances."""
    one, other = ManualClock(seed=3), ManualClock(seed=3)
    assert [one.new_id(), one.chance()] == [other.new_id(), other.chance()]
    assert one.new_id() != ManualClock(seed=4).new_id()


def test_manual_clock_stands_still() -> None:
    """Time moves by what it is advanced, exactly."""
    clock = ManualClock()
    start = clock.now()
    clock.advance(90.5)
    assert clock.now() - start == timedelta(seconds=90.5)
    assert clock.monotonic() == 90.5


async def test_sleepers_wake_in_order() -> None:
    """Sleepers wake when their time has come, the earliest first; no time means no wait."""
    clock, woken = ManualClock(), []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.ensure_future(sleeper(seconds)) for seconds in (30, 10, 20, 0)]
    await asyncio.sleep(0)
    assert woken == [0]
    clock.advance(9.9)
    await asyncio.sleep(0)
    assert woken == [0]
    clock.advance(10.1)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert woken == [0, 10, 20]
    clock.advance(100)
    await asyncio.gather(*tasks)
    assert woken == [0, 10, 20, 30]


async def test_cancelled_sleeper() -> None:
    """A sleeper that was cancelled does not disturb the clock."""
    clock = ManualClock()
    task = asyncio.ensure_future(clock.sleep(1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    clock.advance(5)


async def test_wait_until() -> None:
    """A wait ends with the event, or with its time, and leaves nothing running."""
    clock, event = ManualClock(), asyncio.Event()
    waiting = asyncio.ensure_future(wait_until(event, clock, 60))
    await asyncio.sleep(0)
    event.set()
    await waiting
    event.clear()
    waiting = asyncio.ensure_future(wait_until(event, clock, 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.advance(60)
    await waiting

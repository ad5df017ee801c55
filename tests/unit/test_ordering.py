"""Rank: strict between fresh levels, first in first out inside one, and nobody is overtaken for long."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.clock import micros
from qo.errors import InvalidInput
from qo.ordering import LEVELS, Priority, check_priority, effective_priority, patience, rank

NOW = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ints = st.integers(-(2**31) + 1, 2**31 - 1)
levels: st.SearchStrategy[Priority] = st.sampled_from(LEVELS)
priorities: st.SearchStrategy[Priority] = levels | ints
moments = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


def minutes(value: int) -> float:
    return value / 60_000_000


def test_patience() -> None:
    """High 0, medium 20 and low 30 minutes."""
    assert [minutes(patience(level)) for level in ("high", "medium", "low")] == [0, 20, 30]


@given(moments, st.timedeltas(timedelta(microseconds=1), timedelta(days=1000)), priorities)
def test_first_in_first_out(moment: datetime, later: timedelta, priority: Priority) -> None:
    """Inside one priority the older task always goes first."""
    assert rank(moment, priority) < rank(moment + later, priority)


@given(moments, st.timedeltas(timedelta(0), timedelta(days=1000)), priorities, priorities)
def test_overtaken_for_30_minutes_at_most(moment: datetime, later: timedelta, own: Priority, other: Priority) -> None:
    """Whatever the priorities, a task that is 30 minutes older goes first."""
    overtaken = rank(moment + later, other) < rank(moment, own)
    assert not overtaken or later <= 30 * MINUTE


@pytest.mark.parametrize(
    ("own", "other", "bound"), [("low", "high", 30), ("low", "medium", 10), ("medium", "high", 20)]
)
def test_bounds_between_levels(own: Priority, other: Priority, bound: int) -> None:
    """A newer task of a higher level overtakes until exactly the bound."""
    just = timedelta(microseconds=1)
    assert rank(NOW + bound * MINUTE - just, other) < rank(NOW, own)
    assert rank(NOW + bound * MINUTE, other) == rank(NOW, own)
    assert rank(NOW + bound * MINUTE + just, other) > rank(NOW, own)


@given(ints, ints)
def test_larger_ints_go_first(one: int, other: int) -> None:
    """A larger int never waits longer than a smaller one."""
    if one > other:
        assert patience(one) <= patience(other)


@given(st.integers(-100, 100))
def test_small_ints_are_all_different(number: int) -> None:
    """Ints as people use them differ by a noticeable time."""
    assert patience(number) - patience(number + 1) > 100_000


@given(ints)
def test_ints_stand_between_high_and_low(number: int) -> None:
    """No int beats high or loses to low; positive ones beat medium, negative ones lose to it."""
    assert patience("high") <= patience(number) <= patience("low")
    assert (patience(number) < patience("medium")) == (number > 0)
    assert (patience(number) > patience("medium")) == (number < 0)


def test_zero_is_medium() -> None:
    """0 is another word for medium, and stored so."""
    assert check_priority(0) == "medium"
    assert patience(0) == patience("medium")


@pytest.mark.parametrize("wrong", ["", "High", None, True, 1.0, 2**31, -(2**31)])
def test_refused(wrong: object) -> None:
    """Other words, floats, bools and ints beyond 32 bits are no priorities."""
    with pytest.raises(InvalidInput):
        check_priority(wrong)


@pytest.mark.parametrize(
    ("own", "waited", "effective"),
    [
        ("low", "0:00", "low"),
        ("low", "9:59", "low"),
        ("low", "10:00", "medium"),
        ("low", "20:00", "medium"),
        ("low", "29:59", "medium"),
        ("low", "30:00", "high"),
        ("medium", "0:00", "medium"),
        ("medium", "10:00", "medium"),
        ("medium", "19:59", "medium"),
        ("medium", "20:00", "high"),
        ("high", "0:00", "high"),
        ("high", "59:00", "high"),
        (5, "0:00", 5),
        (5, "30:00", "high"),
        (-5, "0:00", -5),
        (-5, "10:00", "medium"),
    ],
)
def test_effective_priority(own: Priority, waited: str, effective: Priority) -> None:
    """Low counts as medium after 10 minutes and as high after 30, medium as high after 20."""
    minute, second = waited.split(":")
    now = NOW + timedelta(minutes=int(minute), seconds=int(second))
    assert effective_priority(own, rank(NOW, own), now) == effective


@given(priorities, moments, st.timedeltas(timedelta(0), timedelta(hours=2)))
def test_never_below_its_own(own: Priority, moment: datetime, waited: timedelta) -> None:
    """Waiting never lowers a priority."""
    assert patience(effective_priority(own, rank(moment, own), moment + waited)) <= patience(own)


@given(priorities, moments, st.timedeltas(timedelta(0), timedelta(hours=2)))
def test_effective_level_has_that_rank(own: Priority, moment: datetime, waited: timedelta) -> None:
    """A fresh task of the level it was raised to would not be claimed before this one."""
    now = moment + waited
    level = effective_priority(own, rank(moment, own), now)
    assert level == own or rank(moment, own) <= rank(now, level)


@given(moments)
def test_rank_is_exact(moment: datetime) -> None:
    """The rank of a high task is its time in microseconds."""
    assert rank(moment, "high") == micros(moment)

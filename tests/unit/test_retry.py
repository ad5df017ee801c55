"""Backoff: the presets are those of the source documents, delays grow to their maximum, jitter stays in its share."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.errors import ConfigError
from qo.retry import PRESETS, RetryPolicy, preset

HOUR = 3600.0


@pytest.mark.parametrize(
    ("name", "initial", "multiplier", "maximum", "jitter", "growth"),
    [
        ("default", 5, 2, 6 * HOUR, 0.2, 1.0),
        ("a", 1, 2, 60, 0.25, 1.0),
        ("b", 0, 1, 6 * HOUR, 0, 1.5),
        ("d", 10, 4, 6 * HOUR, 0.2, 1.0),
        ("e", 5, 2, 6 * HOUR, 0, 1.0),
    ],
)
def test_presets(name: str, initial: float, multiplier: float, maximum: float, jitter: float, growth: float) -> None:
    """Each preset has exactly the numbers of its document."""
    assert preset(name) == RetryPolicy(
        initial=initial, multiplier=multiplier, maximum=maximum, jitter=jitter, timeout_growth=growth
    )


def test_no_other_preset() -> None:
    """There are five presets, and another name is refused with their names."""
    assert set(PRESETS) == {"default", "a", "b", "d", "e"}
    with pytest.raises(ConfigError, match="default, a, b, d, e"):
        preset("c")


@pytest.mark.parametrize(
    ("name", "delays"),
    [
        ("default", [5, 10, 20, 40]),
        ("a", [1, 2, 4, 8, 16, 32, 60, 60]),
        ("b", [0, 0, 0]),
        ("d", [10, 40, 160, 640, 2560, 10240, 6 * HOUR, 6 * HOUR]),
        ("e", [5, 10, 20, 40]),
    ],
)
def test_delays(name: str, delays: list[float]) -> None:
    """In the middle of the jitter the n-th failure waits initial * multiplier ** (n - 1), up to the maximum."""
    assert [preset(name).delay(failures, 0.5) for failures in range(1, len(delays) + 1)] == delays


def test_timeout_growth() -> None:
    """B's timeout grows by half with each failure; others stay; none stays none."""
    assert [preset("b").timeout(300, failures) for failures in (0, 1, 2)] == [300, 450, 675]
    assert preset("default").timeout(300, 5) == 300
    assert preset("b").timeout(None, 5) is None
    assert preset("b").timeout(300, 10_000) == 7 * 86_400


policies = st.builds(
    RetryPolicy,
    initial=st.just(0.0) | st.floats(1e-6, 1e6),
    multiplier=st.floats(1, 100),
    maximum=st.floats(0, 1e7),
    jitter=st.floats(0, 1),
    timeout_growth=st.floats(1, 3),
)


@given(policies, st.integers(1, 10**9), st.floats(0, 1))
def test_delay_is_bounded(policy: RetryPolicy, failures: int, chance: float) -> None:
    """No delay is negative or longer than the maximum and its jitter, however many failures."""
    assert 0 <= policy.delay(failures, chance) <= policy.maximum * (1 + policy.jitter) * (1 + 1e-9)


@given(policies, st.integers(1, 200))
def test_delay_never_shrinks(policy: RetryPolicy, failures: int) -> None:
    """The next failure waits at least as long."""
    assert policy.delay(failures, 0.5) <= policy.delay(failures + 1, 0.5) * (1 + 1e-9)


@given(policies, st.integers(1, 50), st.floats(0, 1))
def test_jitter_stays_in_its_share(policy: RetryPolicy, failures: int, chance: float) -> None:
    """Jitter moves a delay by its share at most, to both sides."""
    middle, spread = policy.delay(failures, 0.5), policy.jitter
    assert middle * (1 - spread) * (1 - 1e-9) <= policy.delay(failures, chance) <= middle * (1 + spread) * (1 + 1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": -1},
        {"maximum": float("inf")},
        {"jitter": 1.1},
        {"jitter": float("nan")},
        {"multiplier": 0.5},
        {"timeout_growth": 0},
        {"initial": "5"},
    ],
)
def test_refused(wrong: dict) -> None:
    """A policy that makes no sense is refused."""
    with pytest.raises(ConfigError):
        RetryPolicy(**wrong)

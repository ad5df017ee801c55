"""Durations, sizes and URLs as text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qo.units import byte_count, seconds, show_bytes, show_seconds, show_url


@given(st.integers(0, 10**12))
def test_shown_milliseconds_read_back(milliseconds: int) -> None:
    """What is shown of a duration can be written into a setting."""
    assert seconds(show_seconds(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


@given(st.integers(1, 2**50))
def test_shown_bytes_read_back(size: int) -> None:
    """What is shown of a size can be written into a setting."""
    assert byte_count(show_bytes(size)) == size


def test_shown_as_people_write_it() -> None:
    """The largest unit that divides."""
    assert [show_seconds(value) for value in (0.0, 0.1, 20.0, 90.0, 300.0, 7200.0, 86_400.0, None, math.inf)] == (
        ["0s", "0.1s", "20s", "90s", "5m", "2h", "1d", "none", "forever"]
    )
    assert [show_bytes(value) for value in (1, 1000, 65_536, 2**20, 3 * 2**30)] == [
        "1",
        "1000",
        "64KiB",
        "1MiB",
        "3GiB",
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@db:5432/qo", "postgresql://me:***@db:5432/qo"),
        ("redis://:hunter2@h/0", "redis://:***@h/0"),
        ("redis://me:hun/ter@2@h/0", "redis://me:***@h/0"),
        (
            "s3://b/p?region=r&secret_access_key=hunter2&endpoint=e",
            "s3://b/p?region=r&secret_access_key=***&endpoint=e",
        ),
        ("https://h/?token=hunter2", "https://h/?token=***"),
        ("postgresql://me@db:5432/qo", "postgresql://me@db:5432/qo"),
        ("sqlite:////tmp/a:b@c.db", "sqlite:////tmp/a:b@c.db"),
        ("memory://", "memory://"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    """Passwords and secret parameters are hidden, the rest stays readable."""
    assert show_url(url) == shown

"""How times and foreign text look."""

from datetime import UTC, datetime, timedelta

import pytest

from qo.cli.show import exactly, plain, relative

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (3, "3 s ago"),
        (89, "89 s ago"),
        (120, "2 min ago"),
        (7200, "2 h ago"),
        (86_400 * 3, "3 d ago"),
        (-5, "in 5 s"),
        (-300, "in 5 min"),
    ],
)
def test_relative(seconds: float, text: str) -> None:
    """One unit, past and future."""
    assert relative(NOW - timedelta(seconds=seconds), NOW) == text


def test_exact() -> None:
    """UTC, to the second."""
    assert exactly(NOW) == "2031-05-01T12:00:00Z"


def test_foreign_text_cannot_steer_the_terminal() -> None:
    """Escape sequences of an input or error are shown, not obeyed."""
    assert plain("a\x1b[31mb\x07\x9bc\td\ne") == "a\\x1b[31mb\\x07\\x9bc\td\ne"

"""docs/reference/errors.md has every public error, in its place of the tree and with a remedy."""

import re

from tests.docs.pages import ROOT

import qo
from qo import errors

PAGE = (ROOT / "docs" / "reference" / "errors.md").read_text()
PUBLIC = [
    name for name in qo.__all__ if isinstance(getattr(qo, name), type) and issubclass(getattr(qo, name), qo.QoError)
]


def tree(text: str) -> list[tuple[int, str]]:
    """The names of a drawn tree with their depths."""
    return [(len(bars) // 4, name) for bars, name in re.findall(r"^ {4}([│├└─ ]*)([A-Z]\w+)", text, re.MULTILINE)]


def test_the_trees_are_the_classes() -> None:
    """The tree on the page and the one at the top of `qo.errors` show the classes as they are."""
    drawn = tree(PAGE)
    assert drawn == tree(errors.__doc__ or "")
    assert {name for _, name in drawn} == {
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)
    }
    parents: list[str] = []
    for depth, name in drawn:
        parents[depth:] = [name]
        if depth:
            assert getattr(errors, name).__base__.__name__ == parents[depth - 1]


def test_every_public_error_has_a_remedy() -> None:
    """Each but the root has a row in a table."""
    rows = set(re.findall(r"^\| `(\w+)` \| ", PAGE, re.MULTILINE))
    assert rows == set(PUBLIC) - {"QoError"}


def test_what_handlers_raise_is_there() -> None:
    """The exceptions a handler raises are explained where a reader of errors looks."""
    for name in ("Retry", "Fail", "Snooze", "Stopped"):
        assert f"`qo.{name}" in PAGE

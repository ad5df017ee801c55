"""The SQL files beside this module, and how a batch of any size becomes one statement.

One statement a batch, because sqlite3 gives up Python's lock for each step and may wait 5 ms to get it back while a
handler computes: 100 rows by executemany ran at 200 a second then, as one VALUES list at 3,000. Sizes are fixed so
that the prepared statements are found again.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TypeVar

_SIZES = (256, 64, 16, 4, 1)
_Item = TypeVar("_Item")


@lru_cache
def sql(name: str, **parts: str) -> str:
    """The text of sql/{name}.sql without its comments, {parts} filled in."""
    lines = (files("qo.stores.sqlite") / "sql" / f"{name}.sql").read_text("utf-8").splitlines()
    text = "\n".join(kept for line in lines if (kept := line.partition("--")[0].rstrip()))
    for part, value in parts.items():
        text = text.replace("{" + part + "}", value)
    return text


@lru_cache
def sql_rows(name: str, width: int, count: int) -> str:
    """The same with {rows} filled by that many lists of `width` parameters."""
    row = "(" + ",".join("?" * width) + ")"
    return sql(name, rows=",".join([row] * count))


def chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """The items in pieces of the fixed sizes, the largest first."""
    start = 0
    for size in _SIZES:
        while len(items) - start >= size:
            yield items[start : start + size]
            start += size

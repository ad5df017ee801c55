"""How many tasks there are of each kind, kept by every transaction, so that stats never count rows."""

import sqlite3
from collections import Counter

from qo.stores.sqlite.text import sql

Counts = Counter[tuple[str, str, str | int, str]]
"""(queue, type, priority, state) to a difference."""


def count(connection: sqlite3.Connection, differences: Counts) -> None:
    """Add the differences to the counters."""
    for kind, n in differences.items():
        if n:
            connection.execute(sql("count"), (*kind, n))

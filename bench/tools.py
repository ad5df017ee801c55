"""What every measurement needs: rounds, medians, a fresh file, and a report that says on what machine it ran."""

import os
import platform
import sqlite3
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from qo import lifecycle
from qo.clock import SYSTEM
from qo.stores.protocol import Store
from qo.task import Task
from qo.values import encode_value

INPUT = encode_value({"to": "someone@example.org", "subject": "hello"})


def tasks(store: Store, count: int, type: str = "send_email", **options: object) -> list[Task]:
    """That many new tasks."""
    now = store.now()
    return [
        lifecycle.submit(id=SYSTEM.new_id(), type=type, now=now, input=INPUT, **options)  # pyright: ignore[reportArgumentType]
        for _ in range(count)
    ]


@contextmanager
def fresh_file() -> Iterator[Path]:
    """A path for a new SQLite file."""
    with tempfile.TemporaryDirectory(prefix="qo-bench-") as folder:
        yield Path(folder, "qo.db")


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """Median with the smallest and largest value."""
    return f"{median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def machine() -> str:
    """Where this ran."""
    load = os.getloadavg()[0]
    return (
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}, load {load:.1f} at the end"
    )


def command() -> str:
    """What repeats this."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if spec else Path(sys.argv[0]).name
    return " ".join(["python -m", name, *sys.argv[1:]])


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [f"### {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join([*lines, ""])

"""How answers look: JSON for machines, tables and words for people."""

import os
import re
import sys
from datetime import UTC, datetime
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.json import JSON
from rich.table import Table
from rich.text import Text

from qo.task import State, Task

STYLES: dict[str, str] = {
    "pending": "yellow",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
    "archived": "dim",
    "active": "green",
    "draining": "yellow",
    "dead": "red",
}
PIPE_WIDTH = 500
"""Columns when nobody looks: lines are cut for a terminal's sake only."""
SHORT_VALUE, LONGEST_VALUE = 60, 4000
"""Characters up to which a value stands on one line, and beyond which it is cut."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def console(*, stderr: bool = False) -> Console:
    """Where people read. Tasks hold anybody's text, so nothing in it is markup."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def plain(text: str) -> str:
    """Text that cannot steer the terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def emit(value: object) -> None:
    """One JSON value on a line of its own."""
    click.echo(msgspec.json.encode(value, enc_hook=str))


def note(text: str) -> None:
    """A remark beside the answer, for people only."""
    console(stderr=True).print(Text(text, "dim"), soft_wrap=True)


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """A table as all commands have it."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis")
    return made


def styled(word: str) -> Text:
    """A state in its colour."""
    return Text(word, STYLES.get(word, ""))


def counted(number: int, noun: str) -> str:
    """`1 task`, `1,200 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# Times.


def span(seconds: float) -> str:
    """A length of time in one unit."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for limit, unit, size in ((90, "s", 1), (5400, "min", 60), (129_600, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def exactly(when: datetime) -> str:
    """A time to the second, in UTC; --json has the rest."""
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def relative(when: datetime, now: datetime) -> str:
    """`3 s ago`, `in 5 min`."""
    seconds = (now - when).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def when_of(task: Task, now: datetime, exact: bool = False) -> str:
    """The time that matters most for a task in its state."""
    if task.state == "running" and task.started_at:
        return exactly(task.started_at) if exact else f"for {span(max(0.0, (now - task.started_at).total_seconds()))}"
    moment = task.completed_at or (task.available_at if task.available_at > now else task.created_at)
    return exactly(moment) if exact else relative(moment, now)


# Tasks.


def state_of(task: Task) -> Text:
    """Its state, and that somebody asked it to stop."""
    return styled("running") + Text("!", "magenta") if stopping(task) else styled(task.state)


def stopping(task: Task) -> bool:
    """It runs, and somebody cancelled it."""
    return task.state == "running" and task.cancel_requested


def task_object(task: Task, now: datetime) -> dict[str, Any]:
    """A task for machines: every field, always."""
    pairs = zip(task.__struct_fields__, task.__struct_encode_fields__, strict=True)
    fields: dict[str, Any] = {encoded: getattr(task, name) for name, encoded in pairs}
    fields["error"] = msgspec.structs.asdict(task.error) if task.error else None
    return fields | {"effective_priority": task.effective_priority(now)}


def value_of(raw: msgspec.Raw) -> JSON | Text:
    """An input or output, readable; cut when it is long."""
    text = bytes(raw).decode("utf-8", "replace")
    if len(text) > LONGEST_VALUE:
        return Text(f"{plain(text[:LONGEST_VALUE])}… {len(text):,} characters in all; --json shows them")
    try:
        return JSON(text, ensure_ascii=False, indent=2 if len(text) > SHORT_VALUE else None)
    except ValueError:
        return Text(plain(text))


def state_counts(counts: dict[State, int]) -> Text:
    """`3 pending, 1 failed` in the colours of the states."""
    parts = [Text(f"{counts[state]:,} {state}", STYLES[state]) for state in STYLES if counts.get(state)]  # pyright: ignore[reportArgumentType]
    return Text(", ").join(parts)

"""Cursors and filters, as every store that keeps records understands them. Pure."""

from datetime import datetime

import msgspec

from qo.clock import from_micros, micros
from qo.errors import UsageError
from qo.stores.protocol import Filter, Sort
from qo.task import Task

_NEVER = from_micros(0)


def cursor_after(task: Task, sort: Sort) -> str:
    """A cursor that continues behind this task."""
    return make_cursor(sort, task.id, None if task.completed_at is None else micros(task.completed_at))


def make_cursor(sort: Sort, id: str, completed_at: int | None) -> str:
    """The same from the columns alone (time in microseconds), for records that cannot be read."""
    return f"ended:{completed_at or 0}:{id}" if sort == "ended" else f"{sort}:{id}"


def read_cursor(cursor: str, sort: Sort) -> tuple[datetime, str]:
    """The place a cursor stands at: end time (1970 unless sorted by it) and id."""
    head, *rest = cursor.split(":")
    if head != sort or len(rest) != (2 if sort == "ended" else 1):
        raise UsageError(f"cursor {cursor!r} does not belong to the sort {sort!r}; start again without it")
    try:
        return (from_micros(int(rest[0])), rest[1]) if sort == "ended" else (_NEVER, rest[0])
    except (ValueError, OverflowError) as error:
        raise UsageError(f"cursor {cursor!r} cannot be read; start again without it") from error


def matches(task: Task, filter: Filter) -> bool:
    """Does the task pass the filter?"""
    return (
        (filter.queue is None or task.queue == filter.queue)
        and (task.state in filter.states if filter.states else task.state != "archived")
        and (not filter.types or task.type in filter.types)
        and (not filter.priorities or task.priority in filter.priorities)
        and all(task.tags.get(name) == value for name, value in filter.tags.items())
        and (filter.key is None or task.key == filter.key)
        and (filter.worker_id is None or task.worker_id == filter.worker_id)
        and (filter.created_from is None or task.created_at >= filter.created_from)
        and (filter.created_before is None or task.created_at < filter.created_before)
        and (
            filter.completed_before is None or (task.completed_at or filter.completed_before) < filter.completed_before
        )
        and (filter.text is None or _mentions(task, filter.text))
    )


def json_text(text: str) -> str:
    """A piece of text as it stands inside JSON, so that a search in raw input finds quotes, newlines and the like."""
    return msgspec.json.encode(text).decode()[1:-1]


def _mentions(task: Task, text: str) -> bool:
    if ascii_lower(json_text(text)) in ascii_lower(bytes(task.raw_input).decode()):
        return True
    return task.error is not None and ascii_lower(text) in ascii_lower(task.error.message)


def ascii_lower(text: str) -> str:
    """Lower case for ASCII letters only: the folding every engine agrees on."""
    return text.translate(_ASCII_LOWER)


_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}

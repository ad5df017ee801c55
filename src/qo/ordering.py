"""The order of claiming: one number, the rank. Pure; see docs/design/001-core.md.

    rank = scheduled_at + patience(priority)

Smaller is sooner. Fresh tasks of a higher level go first, equal levels go by age, and nobody is overtaken for longer
than the difference in patience, so no background job has to promote anything.
"""

from datetime import datetime
from functools import lru_cache
from typing import Literal, get_args

from qo.clock import micros
from qo.errors import InvalidInput

Level = Literal["high", "medium", "low"]
Priority = Level | int

LEVELS: tuple[Level, ...] = get_args(Level)
_MINUTE = 60 * 1_000_000
_PATIENCE: dict[Level, int] = {"high": 0, "medium": 20 * _MINUTE, "low": 30 * _MINUTE}


@lru_cache(maxsize=1024)
def patience(priority: Priority) -> int:
    """Microseconds a task lets newer, more urgent ones go first.

    Any int has its own place between high and low: 0 is medium, larger is sooner, and even the largest never beats
    `high` nor the smallest loses to `low`, so the bound of 30 minutes holds for all of them.
    """
    if isinstance(priority, str):
        return _PATIENCE[priority]
    share = abs(priority) / (abs(priority) + 10)
    reach = _PATIENCE["high"] if priority > 0 else _PATIENCE["low"]
    return round(_PATIENCE["medium"] + (reach - _PATIENCE["medium"]) * share)


def check_priority(priority: object) -> Priority:
    """The priority as it is stored, or InvalidInput. 0 is another word for medium."""
    if isinstance(priority, bool) or not isinstance(priority, (str, int)):
        raise InvalidInput(f"priority must be one of {', '.join(LEVELS)} or an int (higher first), not {priority!r}")
    if isinstance(priority, str):
        for level in LEVELS:
            if level == priority:
                return level
        raise InvalidInput(f"no priority {priority!r}; there are {', '.join(LEVELS)}, or an int (higher first)")
    if abs(priority) >= 2**31:
        raise InvalidInput(f"priority {priority} is out of range: an int of 32 bits")
    return priority or "medium"


def rank(scheduled_at: datetime, priority: Priority) -> int:
    """Where a task scheduled then stands in the order of claiming."""
    return micros(scheduled_at) + patience(priority)


def effective_priority(own: Priority, task_rank: int, now: datetime) -> Priority:
    """The level whose fresh tasks would get this rank now; never lower than the task's own. Computed, never stored."""
    remaining = task_rank - micros(now)
    for level in LEVELS:
        if remaining <= _PATIENCE[level]:
            return level if _PATIENCE[level] < patience(own) else own
    return own

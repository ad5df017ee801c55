"""Options that choose tasks, for `list` and the commands that change many at once."""

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
import msgspec

from qo.cli.frame import given, names, past, priority, tag
from qo.cli.show import exactly
from qo.task import STATES
from qo.views import Where

_OPTIONS = (
    click.option(
        "--state",
        "--status",
        "state",
        multiple=True,
        type=click.Choice(STATES),
        help="Tasks in this state; may be repeated.",
    ),
    click.option("--type", "type", multiple=True, metavar="TYPE", help="Tasks of this type; may be repeated."),
    click.option(
        "--priority", "priority", multiple=True, type=priority, metavar="LEVEL", help="high, medium, low or a number."
    ),
    click.option("--tag", "tag", multiple=True, type=tag, metavar="NAME=TEXT", help="Tasks with this tag."),
    click.option("--key", metavar="KEY", help="The task with this idempotency key."),
    click.option("--text", metavar="TEXT", help="Found in the input or the error, if the store can search."),
    click.option("--worker", metavar="ID", help="Tasks that this worker ran last."),
    click.option("--since", type=past, metavar="TIME", help="Created since: a time, or how long ago (2h, 7d)."),
    click.option("--until", type=past, metavar="TIME", help="Created before: a time, or how long ago."),
)


class Choice(msgspec.Struct, frozen=True):
    """Which tasks were asked for."""

    state: tuple[str, ...]
    type: tuple[str, ...]
    priority: tuple[str | int, ...]
    tag: tuple[tuple[str, str], ...]
    key: str | None
    text: str | None
    worker: str | None
    since: datetime | None
    until: datetime | None

    @property
    def empty(self) -> bool:
        """Nothing was said: all tasks."""
        return not given(**msgspec.structs.asdict(self))

    def where(self, *states: str) -> Where:
        """The same for `q.find`; `states` hold when none were chosen."""
        where = Where(state=self.state or states, type=names(self.type), tags=dict(self.tag))
        where["priority"] = self.priority  # pyright: ignore[reportGeneralTypeIssues] - checked by make_filter
        where["key"], where["text"], where["worker_id"] = self.key, self.text, self.worker
        where["created_from"], where["created_before"] = self.since, self.until
        return where

    def words(self, *states: str) -> str:
        """The same for people."""
        said = {
            "state": " or ".join(self.state or states),
            "type": " or ".join(names(self.type)),
            "priority": " or ".join(map(str, self.priority)),
            "tag": " and ".join(f"{name}={value}" for name, value in self.tag),
            "key": self.key,
            "text": self.text,
            "worker": self.worker,
            "since": self.since and exactly(self.since),
            "until": self.until and exactly(self.until),
        }
        return ", ".join(f"{name} {value}" for name, value in said.items() if value)


def filter_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the function gets them as `choice`."""

    @functools.wraps(function)
    def wrapped(*args: Any, **options: Any) -> None:
        choice = Choice(**{name: options.pop(name) for name in Choice.__struct_fields__})
        function(*args, choice=choice, **options)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped

"""What the commands have in common: which queue is meant, how it is opened, how options are read."""

import asyncio
import functools
import getpass
import sys
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from qo.cli.said import Said
from qo.clock import SYSTEM
from qo.errors import ConfigError, Unavailable, UsageError
from qo.queue import Queue
from qo.stores.sqlite.store import SqliteStore
from qo.units import seconds, show_url

T = TypeVar("T")


def store_options(*, json: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add --url, --queue and --json; the function gets them as its first argument, a `Said`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def wrapped(*args: Any, url: str | None, queue: str | None, json: bool = False, **rest: Any) -> None:
            before = click.get_current_context().find_object(Said) or Said()
            function(Said(url or before.url, queue or before.queue, json), *args, **rest)

        if json:
            wrapped = click.option("--json", is_flag=True, help="Print JSON for machines.")(wrapped)
        wrapped = click.option("--queue", metavar="NAME", help="Which queue; else default.")(wrapped)
        return click.option("--url", metavar="URL", help="Where the queue lives; else QO_URL.")(wrapped)

    return decorate


def queue_of(said: Said) -> Queue:
    """The queue that is meant, not opened yet."""
    queue = Queue(said.url, name=said.queue or "default")
    if queue.url.startswith("memory:"):
        raise ConfigError(
            "memory:// lives inside one process and ends with it; name another store with --url or QO_URL"
        )
    return queue


def with_queue(said: Said, work: Callable[[Queue], Awaitable[T]], *, create: bool = False) -> T:
    """Do something with the opened queue. Only `create` makes a SQLite file that is not there: looking must not."""
    queue = queue_of(said)

    async def run() -> T:
        store = queue.open_store()
        if not create and isinstance(store, SqliteStore) and store.path.parent.is_dir() and not store.path.exists():
            raise Unavailable(
                f"there is no queue at {show_url(queue.url)}: `qo submit` or a worker makes one; "
                "name another with --url or QO_URL"
            )
        async with queue:
            return await work(queue)

    return asyncio.run(run())


async def now_of(queue: Queue) -> datetime:
    """The store's time, against which everything is shown."""
    return (await queue.session()).store.now()


def actor() -> str:
    """Who asks, for the history of a task."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError, ImportError):
        return "cli"


# Values of options. A function as click's `type` is called with the text.


def duration(text: str) -> float:
    """Seconds, from 10s, 5m, 24h, 7d or a number."""
    try:
        return seconds(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a duration; write seconds or 10s, 5m, 24h, 7d") from None


def duration_or_none(text: str) -> float | str:
    """The same, or `none`."""
    return "none" if text.strip().lower() == "none" else duration(text)


def moment(text: str) -> datetime:
    """A time; without a zone it is local."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a time; write 2031-05-01T12:00 or 2031-05-01T12:00Z") from None


def past(text: str) -> datetime:
    """A time, or how long ago."""
    try:
        return SYSTEM.now() - timedelta(seconds=seconds(text))
    except ValueError:
        pass
    try:
        return moment(text)
    except click.BadParameter:
        raise click.BadParameter(f"{text!r} is neither a time (2031-05-01T12:00) nor how long ago (2h, 7d)") from None


def tag(text: str) -> tuple[str, str]:
    """NAME=TEXT."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is not NAME=TEXT")
    return name, value


def priority(text: str) -> str | int:
    """high, medium, low, or a whole number."""
    try:
        return int(text)
    except ValueError:
        return text


def names(values: tuple[str, ...]) -> list[str]:
    """Options that may be repeated or hold several names with commas between them."""
    return [name for value in values for part in value.split(",") if (name := part.strip())]


def content_of(source: str) -> bytes:
    """What an argument means: - is stdin, @file a file, anything else itself."""
    if source == "-":
        return sys.stdin.buffer.read()
    if source.startswith("@"):
        try:
            return Path(source[1:]).read_bytes()
        except OSError as error:
            raise UsageError(f"{source[1:]}: {error.strerror}") from error
    return source.encode("utf-8", "surrogateescape")


def given(**options: Any) -> dict[str, Any]:
    """Only the options that were given."""
    return {name: value for name, value in options.items() if value not in (None, (), [], {})}

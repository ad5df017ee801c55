"""`qo worker`: run tasks."""

import asyncio
import logging
import sys
from collections.abc import Mapping
from typing import Any

import click
import msgspec
from click.core import ParameterSource

from qo.cli.frame import duration, given, names, store_options
from qo.cli.said import Said
from qo.cli.target import find_queue
from qo.clock import Clock
from qo.errors import UsageError
from qo.handlers import Registry
from qo.logs import configure
from qo.queue import Queue
from qo.settings import Settings, load
from qo.stores.protocol import Store
from qo.worker.supervisor import Leash, Supervisor
from qo.worker.worker import Worker

log = logging.getLogger("qo.worker")
EXTRA_PATIENCE = 10.0
"""Seconds beyond drain and last writes after which a worker without its supervisor is ended by force."""
_NOT_FOR_CHILDREN = frozenset({"processes", "target", "url", "queue", "leash"})


class Adjusted(msgspec.Struct, frozen=True):
    """A queue with settings said on the command line; the user's own object stays as it is."""

    queue: Queue
    settings: Settings

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def registry(self) -> Registry:
        return self.queue.registry

    @property
    def clock(self) -> Clock:
        return self.queue.clock

    def open_store(self) -> Store:
        """A fresh store of the queue."""
        return self.queue.open_store()


def child_arguments(said: Said, target: str, ctx: click.Context) -> list[str]:
    """The command line of one of several processes: what was said of this one, without --processes."""
    arguments = [target]
    for name in ("url", "queue"):
        if value := getattr(said, name):
            arguments += [f"--{name}", value]
    for option in ctx.command.params:
        name = option.name or ""
        if not isinstance(option, click.Option):
            continue
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE or name in _NOT_FOR_CHILDREN:
            continue
        value: Any = ctx.params[name]
        if value is True:
            arguments.append(option.opts[0])
            continue
        several: tuple[object, ...] = value if option.multiple else (value,)
        for one in several:
            arguments += [option.opts[0], str(one)]
    return arguments


def _run(source: Adjusted, options: Mapping[str, Any], leash: Leash | None, *, burst: bool, once: bool) -> None:
    worker = Worker(source, **options)
    if leash is not None:
        settings = source.settings
        leash.on_end(worker.stop, settings.shutdown_deadline + settings.lease + EXTRA_PATIENCE)

    async def work() -> None:
        if once:
            log.info("ran %d tasks", await worker.run_once())
        else:
            await worker.run(burst=burst)

    asyncio.run(work())


@click.command("worker", short_help="Run tasks.")
@click.argument("target", metavar="MODULE:QUEUE", required=False)
@click.option("--concurrency", "-c", type=click.IntRange(1), metavar="N", help="Tasks at a time in one process.")
@click.option("--types", multiple=True, metavar="TYPE,…", help="Only these types; else all that have a handler.")
@click.option("--any-type", is_flag=True, help="Claim every type; what has no handler fails.")
@click.option("--capabilities", multiple=True, metavar="NAME,…", help="What this worker has: gpu, eu, …")
@click.option(
    "--processes", "-p", type=click.IntRange(1), default=1, metavar="N", help="Processes; dead ones come back."
)
@click.option("--burst", is_flag=True, help="End when nothing is left that could run now.")
@click.option("--once", is_flag=True, help="Claim once, run that, end; for cron.")
@click.option(
    "--no-upkeep", "--no-monitor", is_flag=True, envvar="QO_NO_MONITOR", help="Leave lost workers to `qo monitor`."
)
@click.option("--lease", type=duration, metavar="TIME", help="How long this worker's silence is believed.")
@click.option("--heartbeat", type=duration, metavar="TIME", help="How often it reports that it lives.")
@click.option("--shutdown-deadline", type=duration, metavar="TIME", help="How long it waits for tasks when stopped.")
@click.option("--id", "id", metavar="ID", help="Its name; else made of host and process.")
@click.option("--log", "log_level", type=click.Choice(["debug", "info", "warning", "error"]), help="What is logged.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Logs for people or for machines.")
@click.option("--leash", type=int, hidden=True)
@store_options(json=False)
@click.pass_context
def command(
    ctx: click.Context,
    said: Said,
    target: str | None,
    concurrency: int | None,
    types: tuple[str, ...],
    any_type: bool,
    capabilities: tuple[str, ...],
    processes: int,
    burst: bool,
    once: bool,
    no_upkeep: bool,
    lease: float | None,
    heartbeat: float | None,
    shutdown_deadline: float | None,
    id: str | None,
    log_level: str | None,
    log_format: str | None,
    leash: int | None,
) -> None:
    """Run the tasks of a queue until SIGTERM or Ctrl-C; then what runs may end, and a second signal leaves at once.

    MODULE:QUEUE is the module with your tasks and the name of the queue in it; MODULE alone is enough when it has one.

    \b
      qo worker app.tasks:q
      qo worker app.tasks:q --processes 4 --concurrency 50
    """
    held = Leash(leash) if leash is not None else None
    if burst and once:
        raise UsageError("--burst and --once both say when to end; give one of them")
    if id is not None and processes > 1:
        raise UsageError("--id is for one process; each of several needs its own")
    changes: dict[str, Any] = given(
        lease=lease, heartbeat=heartbeat, shutdown_deadline=shutdown_deadline, log=log_level, log_format=log_format
    )
    if target and processes > 1:
        settings = load().override(**changes)
        _configure(settings)
        line = [sys.executable, "-m", "qo", "worker", *child_arguments(said, target, ctx)]
        supervisor = Supervisor(lambda leash: [*line, "--leash", str(leash)], processes, until_done=burst or once)
        ctx.exit(asyncio.run(supervisor.run()))
    queue = find_queue(target, url=said.url, name=said.queue)
    source = Adjusted(queue, queue.settings.override(**changes))
    _configure(source.settings)
    options = {
        "concurrency": concurrency,
        "types": names(types) or None,
        "any_type": any_type,
        "capabilities": names(capabilities),
        "upkeep": not no_upkeep,
        "id": id,
    }
    _run(source, options, held, burst=burst, once=once)


def _configure(settings: Settings) -> None:
    configure(settings.log, "json" if settings.log_format == "json" else "text")

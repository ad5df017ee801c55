"""`qo purge`: delete what ended long ago."""

import sys
from contextlib import nullcontext
from datetime import datetime

import click

from qo.cli.bulk import confirm
from qo.cli.frame import past, store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import console, counted, emit, exactly
from qo.queue import Queue


@click.command("purge")
@click.option(
    "--older-than", required=True, type=past, metavar="TIME", help="Ended before: how long ago (7d), or a time."
)
@click.option(
    "--state",
    "--status",
    "states",
    multiple=True,
    default=("completed",),
    show_default=True,
    type=click.Choice(["completed", "failed", "cancelled", "archived"]),
    help="Which tasks; may be repeated.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@store_options()
def command(said: Said, older_than: datetime, states: tuple[str, ...], yes: bool) -> None:
    """Delete tasks that ended long ago, with their history."""

    async def work(queue: Queue) -> int:
        if not yes:
            page = await queue.find(states=states, completed_before=older_than, limit=1, total=True)
            if page.total:
                what = f"{counted(page.total, 'task')} ({', '.join(states)}, ended before {exactly(older_than)})"
                confirm(f"delete {what}")
        screen = console(stderr=True)
        with screen.status("deleting …") if screen.is_terminal and sys.stdout.isatty() else nullcontext():
            return await queue.purge(older_than, states=states)

    deleted = with_queue(said, work)
    if said.json:
        emit({"deleted": deleted})
    else:
        click.echo(f"deleted {counted(deleted, 'task')}")

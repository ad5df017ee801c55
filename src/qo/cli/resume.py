"""`qo resume`: take back `qo pause`."""

import click

from qo.cli.controls import show
from qo.cli.frame import store_options, with_queue
from qo.cli.said import Said


@click.command("resume", short_help="Let workers claim again.")
@click.argument("type", metavar="[TYPE]", required=False)
@store_options()
def command(said: Said, type: str | None) -> None:
    """Let workers claim again: take back the pause of the queue, or that of TYPE."""
    show(said, with_queue(said, lambda queue: queue.resume(type)))

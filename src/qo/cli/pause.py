"""`qo pause`: let no worker claim."""

import click

from qo.cli.controls import show
from qo.cli.frame import store_options, with_queue
from qo.cli.said import Said


@click.command("pause", short_help="Let workers claim nothing, or nothing of one type.")
@click.argument("type", metavar="[TYPE]", required=False)
@store_options()
def command(said: Said, type: str | None) -> None:
    """Let workers claim nothing, or nothing of TYPE, until `qo resume`. What runs goes on."""
    show(said, with_queue(said, lambda queue: queue.pause(type), create=True))

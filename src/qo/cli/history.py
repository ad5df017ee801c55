"""`qo history`: all that happened to a task."""

from datetime import datetime
from typing import Any

import click
import msgspec
from rich.text import Text

from qo.cli.frame import now_of, store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import console, emit, exactly, plain, relative, styled, table
from qo.queue import Queue
from qo.task import Transition


def line_object(line: Transition) -> dict[str, Any]:
    """One line for machines: every field, always."""
    error = msgspec.structs.asdict(line.error) if line.error else None
    pairs = zip(line.__struct_fields__, line.__struct_encode_fields__, strict=True)
    return {encoded: getattr(line, name) for name, encoded in pairs} | {"error": error}


def show(lines: list[Transition], now: datetime, exact: bool) -> None:
    """For people, oldest first."""
    rows = table("when", "became", "attempt", "by", "why", right=("attempt",))
    rows.columns[-1].no_wrap = False
    rows.columns[-1].overflow = "fold"
    for line in lines:
        why = f"{line.error.reason}: {line.error.message}" if line.error else ""
        asked = "cancel asked" if line.was == line.became == "running" and line.actor else ""
        rows.add_row(
            exactly(line.at) if exact else relative(line.at, now),
            styled(line.became or "deleted"),
            str(line.attempt),
            Text(line.actor or line.worker_id or "", "dim"),
            Text(plain(why or asked), "red" if why else ""),
        )
    console().print(rows)


@click.command("history")
@click.argument("id", metavar="ID")
@click.option("--exact", is_flag=True, help="Show exact times in UTC.")
@store_options()
def command(said: Said, id: str, exact: bool) -> None:
    """Show every transition of a task, oldest first."""

    async def work(queue: Queue) -> None:
        lines = await queue.history(id)
        if not said.json:
            show(lines, await now_of(queue), exact)
        for line in lines if said.json else ():
            emit(line_object(line))

    with_queue(said, work)

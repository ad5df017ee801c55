"""`qo types`: the task types of a queue."""

import click
from rich.text import Text

from qo.cli.frame import store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import console, emit, note, plain, state_counts, table
from qo.queue import Queue
from qo.views import TypeInfo


def show(types: list[TypeInfo]) -> None:
    """For people; what nobody handles stands out."""
    rows = table("type", "workers", "tasks")
    rows.columns[-1].no_wrap = False
    for one in types:
        waits = one.workers == 0 and one.counts.get("pending", 0) > 0
        workers = Text("none, they wait", "yellow") if waits else Text(str(one.workers))
        paused = Text(" (paused)", "yellow") if one.paused else Text()
        rows.add_row(Text(plain(one.name)) + paused, workers, state_counts(one.counts))
    console().print(rows)


@click.command("types", short_help="Show the task types, who runs them, and their tasks.")
@store_options()
def command(said: Said) -> None:
    """Show every task type: how many workers run it, and its tasks by state.

    With --json there is one type on each line, with the JSON Schema of its input.
    """

    async def work(queue: Queue) -> None:
        types = await queue.types()
        if said.json:
            for one in types:
                emit(one)
        elif types:
            show(types)
        else:
            note(f"no types in queue {queue.name} yet: nobody has submitted a task or started a worker")

    with_queue(said, work)

"""`qo workers`: who works for a queue."""

from datetime import datetime
from typing import Any

import click
import msgspec
from rich.text import Text

from qo.cli.frame import now_of, store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import console, emit, note, plain, relative, styled, table
from qo.queue import Queue
from qo.records import WorkerInfo


def worker_object(worker: WorkerInfo) -> dict[str, Any]:
    """For machines: every field, always."""
    return msgspec.structs.asdict(worker) | {"capabilities": sorted(worker.capabilities)}


def show(workers: list[WorkerInfo], now: datetime) -> None:
    """For people, the oldest first."""
    rows = table("worker", "state", "running", "heartbeat", "types", right=("running",))
    rows.columns[0].overflow = "fold"
    rows.columns[-1].no_wrap = False
    rows.columns[-1].overflow = "fold"
    for worker in sorted(workers, key=lambda one: one.started_at):
        has = f" [{', '.join(sorted(worker.capabilities))}]" if worker.capabilities else ""
        rows.add_row(
            worker.id,
            styled(worker.state),
            f"{len(worker.running)}/{worker.capacity}",
            relative(worker.heartbeat_at, now),
            Text(plain(", ".join(sorted(worker.types)) + has), "dim"),
        )
    console().print(rows)


@click.command("workers", short_help="Show the workers of the queue.")
@store_options()
def command(said: Said) -> None:
    """Show the workers of the queue: state, running tasks, last heartbeat, types and capabilities.

    With --json there is one worker on each line.
    """

    async def work(queue: Queue) -> None:
        workers = await queue.workers()
        if said.json:
            for worker in workers:
                emit(worker_object(worker))
        elif workers:
            show(workers, await now_of(queue))
        else:
            note(f"no workers for queue {queue.name}; start one with: qo worker MODULE:QUEUE")

    with_queue(said, work)

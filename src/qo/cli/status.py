"""`qo status`: one task, everything about it."""

from datetime import datetime

import click
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qo.cli.frame import now_of, store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import console, emit, exactly, plain, relative, span, state_of, stopping, task_object, value_of
from qo.queue import Queue
from qo.task import Task
from qo.units import show_seconds
from qo.values import NULL


def describe(task: Task, now: datetime) -> Table:
    """What is known of a task, the most asked first."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")

    def add(name: str, value: RenderableType | None) -> None:
        if value is not None and value != "":
            grid.add_row(name, value)

    def at(moment: datetime | None) -> str | None:
        return f"{exactly(moment)} ({relative(moment, now)})" if moment else None

    add("id", task.id)
    add("type", Text(plain(task.type), "bold"))
    add("state", state_of(task) + Text(" (asked to stop)" if stopping(task) else ""))
    add("was", task.archived_from)
    add("queue", task.queue)
    effective = task.effective_priority(now)
    aged = f" (by now {effective})" if effective != task.priority and not task.ended else ""
    add("priority", f"{task.priority}{aged}")
    add("key", plain(task.key) if task.key else None)
    add("tags", plain(", ".join(f"{name}={value}" for name, value in task.tags.items())))
    add("requires", ", ".join(task.requires))
    add("created", at(task.created_at))
    add("available", at(task.available_at) if task.state == "pending" and task.available_at > now else None)
    add("started", at(task.started_at))
    add("ended", at(task.completed_at))
    if task.completed_at and task.started_at:
        add("took", span((task.completed_at - task.started_at).total_seconds()))
    add("attempts", f"{task.attempt} ({task.failures} failed, {task.losses} lost, {task.max_retries} retries allowed)")
    add("timeout", show_seconds(task.timeout))
    add("worker", task.worker_id)
    add("lease ends", at(task.lease_expires_at) if task.state == "running" else None)
    add("trace", task.trace)
    add("progress", value_of(task.raw_progress) if bytes(task.raw_progress) != bytes(NULL) else None)
    add("input", value_of(task.raw_input))
    if task.ended and bytes(task.raw_output) != bytes(NULL):
        add("output", value_of(task.raw_output))
    if task.error:
        kind = f"{task.error.type}: " if task.error.type else ""
        add("error", Text(f"{task.error.reason}: {plain(kind + task.error.message)}", "red"))
    return grid


def show(screen: Console, task: Task, now: datetime) -> None:
    """For people."""
    screen.print(describe(task, now))
    if task.error and task.error.traceback:
        screen.print(Padding(Text(plain(task.error.traceback.rstrip()), "dim"), (1, 0, 0, 2)))


@click.command("status", short_help="Show a task and everything about it.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@store_options()
def command(said: Said, ids: tuple[str, ...]) -> None:
    """Show a task: its state, times, attempts, input, output and error."""

    async def work(queue: Queue) -> None:
        for number, id in enumerate(ids):
            task, now = await queue.get(id), await now_of(queue)
            if said.json:
                emit(task_object(task, now))
                continue
            if number:
                click.echo()
            show(console(), task, now)

    with_queue(said, work)

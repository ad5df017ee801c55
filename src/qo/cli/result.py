"""`qo result`: what a task returned."""

import sys
from contextlib import nullcontext
from datetime import datetime

import click
import msgspec

from qo.cli.frame import duration, now_of, store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import console, emit, plain, task_object
from qo.errors import TaskCancelled, TaskFailed
from qo.queue import Queue
from qo.task import Task
from qo.values import decode_value


async def wait_for(queue: Queue, id: str, timeout: float | None) -> Task:
    """The task when it has ended, with a sign of life meanwhile."""
    screen = console(stderr=True)
    with screen.status(f"waiting for {id} …") if screen.is_terminal else nullcontext():
        return await queue.ended(id, timeout)


def answer(said: Said, queue: Queue, task: Task, now: datetime) -> int:
    """Print the output of an ended task; the exit code is 1 when it has none."""
    state = task.archived_from if task.state == "archived" else task.state
    if said.json:
        emit(task_object(task, now))
        return 0 if state == "completed" else 1
    try:
        queue.output_of(task)
    except (TaskFailed, TaskCancelled) as error:
        click.echo(f"qo: {' '.join(plain(str(error)).split())}", err=True)
        return 1
    value = decode_value(task.raw_output)
    if isinstance(value, bytes):
        sys.stdout.buffer.write(value)
    elif sys.stdout.isatty():
        console().print_json(bytes(task.raw_output).decode(), ensure_ascii=False)
    else:
        click.echo(msgspec.json.format(bytes(task.raw_output), indent=2))
    return 0


@click.command("result", short_help="Print what a task returned; waits for it.")
@click.argument("id", metavar="ID")
@click.option("--timeout", type=duration, metavar="TIME", help="Give up waiting after that: 10s, 5m; 0 does not wait.")
@store_options()
def command(said: Said, id: str, timeout: float | None) -> None:
    """Print what a task returned; waits until it has ended.

    The output is JSON, or bytes as they are. Exit code 1: it failed, was cancelled, or did not end in time. With --json
    the whole task is printed, however it ended.
    """

    async def work(queue: Queue) -> int:
        return answer(said, queue, await wait_for(queue, id, timeout), await now_of(queue))

    click.get_current_context().exit(with_queue(said, work))

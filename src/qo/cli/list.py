"""`qo list`: some of the tasks."""

from datetime import datetime
from typing import cast

import click
from rich.console import Console
from rich.text import Text

from qo.cli.choosing import Choice, filter_options
from qo.cli.frame import now_of, store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import console, counted, emit, note, plain, state_of, table, task_object, when_of
from qo.queue import Queue
from qo.stores.protocol import Sort
from qo.task import Task

WIDE = 110
"""Columns from which there is room for more than what identifies a task."""
AT_ONCE = 1000


def show(screen: Console, tasks: list[Task], now: datetime, exact: bool) -> None:
    """For people. Ids are never cut, so that they can be copied."""
    wide = screen.width >= WIDE
    rows = table("id", "state", "type", *(("priority", "tries") if wide else ()), "when", *(("error",) if wide else ()))
    # Only type and error may be cut: what is left after id 36, state 9, priority 8, tries 5, a time, two spaces each.
    left = screen.width - 36 - 9 - (20 if exact else 10) - 6 - (19 if wide else 0)
    rows.columns[2].max_width = max(6, left * 2 // 3 if wide else left)
    if wide:
        longest = max(len(plain(task.type)) for task in tasks)
        rows.columns[-1].max_width = max(6, left - max(4, min(longest, left * 2 // 3)))
    for task in tasks:
        more = (str(task.priority), str(task.attempt)) if wide else ()
        error = f"{task.error.reason}: {task.error.message}" if task.error else ""
        last = (Text(plain(error.partition("\n")[0]), "red" if task.state == "failed" else "dim"),) if wide else ()
        rows.add_row(task.id, state_of(task), Text(plain(task.type)), *more, when_of(task, now, exact), *last)
    screen.print(rows)


@click.command("list")
@filter_options
@click.option(
    "--sort",
    type=click.Choice(["newest", "oldest", "ended"]),
    default="newest",
    show_default=True,
    help="By creation, or those that ended last.",
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, metavar="N", help="How many at most."
)
@click.option("--all", "everything", is_flag=True, help="All of them, however many.")
@click.option("--cursor", metavar="CURSOR", help="Continue where the last page ended.")
@click.option("--exact", is_flag=True, help="Show exact times in UTC.")
@store_options()
def command(
    said: Said, choice: Choice, sort: str, limit: int, everything: bool, cursor: str | None, exact: bool
) -> None:
    """List tasks, the newest first. Archived ones are left out unless --state archived asks for them.

    With --json there is one task on each line. `running!` was asked to stop.
    """

    async def work(queue: Queue) -> None:
        at, left, found = cursor, limit, 0
        while True:
            page = await queue.find(
                sort=cast("Sort", sort),
                limit=AT_ONCE if everything else min(left, AT_ONCE),
                cursor=at,
                **choice.where(),
            )
            now = await now_of(queue)
            found, left, at = found + len(page.tasks), left - len(page.tasks), page.cursor
            if said.json:
                for task in page.tasks:
                    emit(task_object(task, now))
            elif page.tasks:
                show(console(), page.tasks, now, exact)
            if at is None or (left <= 0 and not everything):
                break
        _finish(said, choice, found, at)

    with_queue(said, work)


def _finish(said: Said, choice: Choice, found: int, cursor: str | None) -> None:
    if cursor is not None:
        note(f"{counted(found, 'task')} shown; there are more: --all, or --cursor {cursor}")
    elif not found and not said.json:
        hint = "submit one with: qo submit TYPE '{\"…\": …}'" if choice.empty else f"none has {choice.words()}"
        note(f"no tasks in queue {said.queue or 'default'}; {hint}")

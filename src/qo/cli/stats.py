"""`qo stats`: the queue in numbers."""

import click
from rich.console import Console
from rich.text import Text

from qo.cli.frame import store_options, with_queue
from qo.cli.said import Said
from qo.cli.show import STYLES, console, counted, emit, note, plain, span, state_counts, styled, table
from qo.queue import Queue
from qo.views import QueueStats


def show(screen: Console, stats: QueueStats) -> None:
    """For people: states, then what waits, then who works."""
    rows = table("state", "tasks", "", right=("tasks",))
    for state in ("pending", "running", "completed", "failed", "cancelled", "archived"):
        number: int = getattr(stats, state)
        more = f"{stats.ready:,} ready, {stats.delayed:,} delayed" if state == "pending" and number else ""
        rows.add_row(styled(state), Text(f"{number:,}", "" if number else "dim"), Text(more, "dim"))
    screen.print(rows)
    if stats.by_priority:
        rows = table("\npriority", "\nready", "\noldest", right=("\nready",))
        for priority, depth in stats.by_priority.items():
            rows.add_row(str(priority), f"{depth.depth:,}", f"waits for {span(depth.oldest_age)}")
        screen.print(rows)
    if stats.by_type:
        rows = table("\ntype", "\ntasks")
        rows.columns[-1].no_wrap = False
        for name, counts in sorted(stats.by_type.items()):
            paused = Text(" (paused)", "yellow") if name in stats.paused_types else Text()
            rows.add_row(Text(plain(name)) + paused, state_counts(counts))
        screen.print(rows)
    workers = [Text(f"{number} {state}", STYLES[state]) for state, number in stats.workers.items() if number]
    none = Text("none; start one with qo worker MODULE:QUEUE", "yellow")
    screen.print(Text.assemble("\nworkers     ", Text(", ").join(workers) if workers else none))
    screen.print(f"throughput  {counted(stats.throughput, 'task')} ended in the last minute")
    if stats.paused:
        screen.print(Text("the queue is paused; qo resume lets it go on", "yellow"))


@click.command("stats", short_help="Show the queue in numbers.")
@store_options()
def command(said: Said) -> None:
    """Show the queue in numbers: tasks by state, priority and type, workers, throughput."""

    async def work(queue: Queue) -> None:
        stats = await queue.stats()
        if said.json:
            emit(stats)
            return
        show(console(), stats)
        if not stats.by_type:
            note(f"no tasks in queue {queue.name} yet; submit one with: qo submit TYPE '{{\"…\": …}}'")

    with_queue(said, work)

"""`qo demo`: the example application of `qo.demo`, a worker and a live view in one process."""

import asyncio
import contextlib
import logging
import shutil
import signal
import tempfile
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from qo import demo
from qo.cli.frame import store_options
from qo.cli.said import Said
from qo.cli.show import STYLES, console, counted, emit, plain, table
from qo.clock import SYSTEM, wait_until
from qo.errors import UsageError
from qo.queue import Queue
from qo.task import State
from qo.units import show_url
from qo.views import QueueStats
from qo.worker.worker import Worker

PATIENCE = 90.0
"""Seconds for all of `--once`, on a machine that has other things to do."""
EVENTS = 10
SHOWN: tuple[State, ...] = ("pending", "running", "completed", "failed")
EVERY = 0.25


class Events(logging.Handler):
    """The last things that happened, as the worker logs them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: deque[Text] = deque(maxlen=EVENTS)
        self.ended = 0

    def emit(self, record: logging.LogRecord) -> None:
        state = getattr(record, "state", None)
        if state is None:
            return
        self.ended += state != "pending"
        word = "will retry" if state == "pending" else state
        error = getattr(record, "error", "")
        when = datetime.fromtimestamp(record.created, UTC).astimezone()
        self.lines.append(
            Text.assemble(
                (f"{when:%H:%M:%S}  ", "dim"),
                (f"{getattr(record, 'type', ''):<16}", ""),
                (f"{word:<12}", STYLES.get(state, "")),
                (plain(error) if error else f"{getattr(record, 'seconds', 0) * 1000:,.0f} ms", "dim"),
                no_wrap=True,
                overflow="ellipsis",
            )
        )


def listen() -> Events:
    """Hear the worker, instead of having it write over the screen."""
    events = Events()
    logger = logging.getLogger("qo")
    logger.handlers[:] = [events]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return events


def watch_hint(url: str, name: str) -> str:
    """How to look at the same queue from another terminal."""
    place = f"--url {url}" + ("" if name == "default" else f" --queue {name}")
    return f"dashboard: not in this version yet; watch with:\n  qo {place} stats\n  qo {place} list"


def view(stats: QueueStats, events: Events, rate: float, hint: str, height: int) -> RenderableType:
    """The live picture, with as many events as there is room for."""
    room = max(1, height - len(stats.by_type) - hint.count("\n") - 9)
    rows = table("type", *SHOWN, right=SHOWN)
    for name, counts in sorted(stats.by_type.items()):
        rows.add_row(name, *(_number(counts.get(state, 0), state) for state in SHOWN))
    rows.add_row(Text("all", "bold"), *(_number(getattr(stats, state), state) for state in SHOWN))
    return Group(
        Text.assemble(
            ("qo demo", "bold"),
            f"  {rate:,.0f} tasks/s, {stats.delayed:,} delayed or backing off",
            ("  Ctrl-C ends it\n", "dim"),
        ),
        rows,
        Text("\nlast events", "bold"),
        *list(events.lines)[-room:],
        Text(f"\n{hint}", "dim"),
    )


def _number(value: int, state: str) -> Text:
    return Text(f"{value:,}", STYLES[state] if value else "dim")


async def live(queue: Queue, run: str) -> None:
    """Until Ctrl-C: a stream of tasks, a worker, and what they do."""
    screen, events, stop = console(), listen(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    hint = watch_hint(show_url(queue.url), queue.name)
    worker = Worker(queue, concurrency=20)
    async with queue:
        await queue.session()
        working = asyncio.create_task(worker.run(signals=False))
        streaming = asyncio.create_task(demo.stream(queue, run))
        try:
            await _watch(screen, queue, events, stop, hint, working, streaming)
        finally:
            streaming.cancel()
            worker.stop()
            await asyncio.gather(streaming, working, return_exceptions=True)
        stats = await queue.stats()
    screen.print(f"ended: {counted(stats.completed, 'task')} completed, {stats.failed:,} failed")


async def _watch(
    screen: Console,
    queue: Queue,
    events: Events,
    stop: asyncio.Event,
    hint: str,
    *running: asyncio.Task[None],
) -> None:
    if not screen.is_terminal:
        screen.print(hint, soft_wrap=True)
    seen: deque[tuple[float, int]] = deque(maxlen=round(5 / EVERY))
    picture = Live(console=screen, screen=screen.is_terminal, auto_refresh=False)
    with picture if screen.is_terminal else contextlib.nullcontext():
        while not stop.is_set():
            for task in running:
                if task.done():
                    task.result()
            seen.append((queue.clock.monotonic(), events.ended))
            past = seen[-1][0] - seen[0][0]
            rate = (seen[-1][1] - seen[0][1]) / past if past else 0.0
            stats = await queue.stats()
            if screen.is_terminal:
                picture.update(view(stats, events, rate, hint, screen.height), refresh=True)
            else:
                screen.print(f"{stats.completed:,} completed, {stats.failed:,} failed, {rate:,.0f} tasks/s")
            await wait_until(stop, queue.clock, EVERY if screen.is_terminal else 2.0)


async def once(queue: Queue, run: str, json: bool) -> int:
    """Run every example to its end and check what became of it; the exit code."""
    events, screen = listen(), console(stderr=True)
    began = queue.clock.monotonic()
    worker = Worker(queue, concurrency=20)
    async with queue:
        await demo.submit_all(queue, run)
        working = asyncio.create_task(worker.run(signals=False))

        async def meanwhile() -> None:
            if working.done():
                working.result()

        with screen.status("running the examples …") if screen.is_terminal else contextlib.nullcontext():
            try:
                ended = await demo.until_ended(queue, run, PATIENCE, meanwhile)
                took = queue.clock.monotonic() - began
            finally:
                worker.stop()
                await working
        found = await demo.tally(queue, run)
    problems = {type: text for type, kind in demo.KINDS.items() if (text := found[type].problem(kind))}
    if json:
        types = {type: {"expected": type not in problems, **_sums(sums)} for type, sums in found.items()}
        emit({"ok": not problems, "seconds": round(took, 3), "tasks": events.ended, "types": types})
    else:
        _summary(found, problems, took, ended)
    return 1 if problems else 0


def _sums(sums: demo.Tally) -> dict[str, int]:
    return {"completed": sums.completed, "failed": sums.failed, "unfinished": sums.unfinished, "retried": sums.retried}


def _summary(found: dict[str, demo.Tally], problems: dict[str, str], took: float, ended: bool) -> None:
    rows = table("type", "completed", "failed", "retried", "", right=("completed", "failed", "retried"))
    for type, sums in found.items():
        rows.add_row(
            type,
            _number(sums.completed, "completed"),
            _number(sums.failed, "failed"),
            _number(sums.retried, "pending"),
            Text(problems[type], "red") if type in problems else Text("as expected", "dim"),
        )
    count = sum(sums.completed + sums.failed for sums in found.values())
    screen = console()
    screen.print(rows)
    screen.print(
        f"\n{counted(count, 'task')} in {took:.1f} s, {count / took:,.0f} tasks/s, retries and delays included"
    )
    if problems or not ended:
        screen.print(Text("not everything went as expected" if ended else f"not done after {PATIENCE:g} s", "bold red"))


@click.command("demo", short_help="Watch a queue at work, or run the examples once.")
@click.option("--once", "only_once", is_flag=True, help="Run every example to its end, print a summary, check it, end.")
@store_options()
def command(said: Said, only_once: bool) -> None:
    """Watch a queue at work: example tasks, a worker and a live view in this terminal, until Ctrl-C.

    It uses a SQLite file in a temporary folder, which is gone afterwards; QO_URL is not touched. --url uses another
    place, where the tasks stay, in a queue named demo.
    """
    if said.json and not only_once:
        raise UsageError("--json is for --once")
    run = SYSTEM.new_id()[-12:]
    folder = None if said.url else Path(tempfile.mkdtemp(prefix="qo-demo-"))
    url = said.url or f"sqlite:///{folder}/demo.db"
    name = said.queue or ("demo" if said.url else "default")
    try:
        queue = demo.make_queue(url, name)
        code = asyncio.run(once(queue, run, said.json)) if only_once else asyncio.run(live(queue, run))
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    click.get_current_context().exit(code or 0)

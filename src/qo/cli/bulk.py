"""Changing tasks: what cancel, replay, archive, unarchive and delete have in common.

Each takes ids, or a filter that is counted and confirmed first.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec
from rich.progress import Progress

from qo.admin import Verb
from qo.cli.choosing import Choice, filter_options
from qo.cli.frame import actor, store_options, with_queue
from qo.cli.main import complain, exit_code
from qo.cli.said import Said
from qo.cli.show import console, counted, emit, note, stopping
from qo.errors import QoError, UsageError
from qo.queue import Queue
from qo.task import Task

AT_ONCE = 500
ERRORS_SHOWN = 5


class Words(msgspec.Struct, frozen=True):
    """How a verb is spoken of, and which states a filter means unless it says."""

    short: str
    done: str
    states: tuple[str, ...]


WORDS: dict[Verb, Words] = {
    "cancel": Words("Cancel tasks, waiting or running.", "cancelled", ("pending", "running")),
    "replay": Words("Run failed tasks again; also called retry.", "replayed", ("failed",)),
    "archive": Words("Put ended tasks away.", "archived", ("completed", "failed", "cancelled")),
    "unarchive": Words("Bring archived tasks back.", "unarchived", ("archived",)),
    "delete": Words("Remove ended tasks.", "deleted", ("completed", "failed", "cancelled")),
}


def bulk_command(verb: Verb, explanation: str, *, force: str | None = None) -> click.Command:
    """The command for a verb; `force` explains --force where there is one."""
    states = ", ".join(WORDS[verb].states)

    @filter_options
    @store_options()
    def run(said: Said, choice: Choice, ids: tuple[str, ...], yes: bool, force: bool = False) -> None:
        if bool(ids) != choice.empty:
            example = f"--state {WORDS[verb].states[0]}"
            raise UsageError(
                "ids and a filter both choose tasks; give one of them"
                if ids
                else f"which tasks? Name their ids (- reads them from stdin), or choose them: {example}"
            )
        named = [line for id in ids for line in (sys.stdin.read().split() if id == "-" else [id])]

        async def work(queue: Queue) -> int:
            chosen = named or await _choose(queue, choice, WORDS[verb].states)
            if not chosen:
                note(
                    f"no task to {verb}: none has {choice.words(*WORDS[verb].states)}" if not ids else "no ids on stdin"
                )
                return 0
            if not named and not yes:
                confirm(f"{verb} {counted(len(chosen), 'task')} ({choice.words(*WORDS[verb].states)})")
            answers = await _with_progress(queue, verb, chosen, force)
            return _report(said, verb, chosen, answers, bool(named))

        click.get_current_context().exit(with_queue(said, work))

    decorators: list[Callable[[Any], Any]] = [
        click.argument("ids", metavar="[ID]...", nargs=-1),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
    ]
    if force:
        decorators.append(click.option("--force", is_flag=True, help=force))
    function: Any = run
    for decorator in reversed(decorators):
        function = decorator(function)
    choosing = f"Give ids (- reads them from stdin), or a filter; a filter without --state means {states}."
    return click.command(verb, short_help=WORDS[verb].short, help=f"{explanation}\n\n{choosing}")(function)


async def _choose(queue: Queue, choice: Choice, states: Sequence[str]) -> list[str]:
    ids: list[str] = []
    cursor = None
    while True:
        page = await queue.find(limit=1000, cursor=cursor, sort="oldest", **choice.where(*states))
        ids += [task.id for task in page.tasks]
        cursor = page.cursor
        if cursor is None:
            return ids


def confirm(question: str) -> None:
    """Ask on a terminal; anywhere else --yes must have been said."""
    if not sys.stdin.isatty():
        raise UsageError(f"this would {question}; say --yes if that is meant")
    click.confirm(f"{question[0].upper()}{question[1:]}?", abort=True, err=True)


async def _with_progress(queue: Queue, verb: Verb, ids: Sequence[str], force: bool) -> list[Task | QoError]:
    answers: list[Task | QoError] = []
    screen = console(stderr=True)
    with Progress(console=screen, transient=True, disable=len(ids) <= AT_ONCE or not screen.is_terminal) as bar:
        line = bar.add_task(verb, total=len(ids))
        for start in range(0, len(ids), AT_ONCE):
            some = ids[start : start + AT_ONCE]
            answers += await queue.bulk(verb, some, force=force, actor=actor())
            bar.advance(line, len(some))
    return answers


def _report(said: Said, verb: Verb, ids: Sequence[str], answers: Sequence[Task | QoError], each: bool) -> int:
    errors = [answer for answer in answers if isinstance(answer, QoError)]
    asked = 0
    for id, answer in zip(ids, answers, strict=True):
        waits = isinstance(answer, Task) and verb == "cancel" and stopping(answer)
        asked += waits
        if said.json:
            emit(_as_object(verb, id, answer))
        elif each and not isinstance(answer, QoError):
            click.echo(f"{WORDS[verb].done if not waits else 'asked to stop'} {id}")
    for error in errors if each else errors[:ERRORS_SHOWN]:
        complain(str(error))
    if not each and not said.json:
        done = f"{WORDS[verb].done} {counted(len(answers) - len(errors), 'task')}"
        stops = f", {asked:,} of them as soon as their handlers notice" if asked else ""
        click.echo(f"{done}{stops}{f'; {len(errors):,} could not be' if errors else ''}")
    codes = {exit_code(error) for error in errors}
    return 0 if not codes else codes.pop() if len(codes) == 1 else 1


def _as_object(verb: Verb, id: str, answer: Task | QoError) -> dict[str, object]:
    if isinstance(answer, QoError):
        return {"id": id, "done": False, "state": None, "cancel_requested": False, "error": str(answer)}
    state = None if verb == "delete" else answer.state
    return {"id": id, "done": True, "state": state, "cancel_requested": answer.cancel_requested, "error": None}

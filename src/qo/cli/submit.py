"""`qo submit`: store a task."""

from datetime import datetime
from typing import Any

import click
import msgspec

from qo.calls import TaskHandle
from qo.cli.frame import (
    Said,
    content_of,
    duration,
    duration_or_none,
    given,
    moment,
    names,
    now_of,
    queue_of,
    store_options,
    tag,
    with_queue,
)
from qo.cli.frame import priority as priority_type
from qo.cli.result import answer, wait_for
from qo.cli.show import emit, note, relative, task_object
from qo.errors import InvalidInput, UsageError
from qo.queue import Queue


def input_of(source: str | None, *, text: bool, as_bytes: bool) -> object:
    """The value of the task's input, or InvalidInput that says what to write."""
    if text and as_bytes:
        raise UsageError("--text and --bytes both say what the input is; give one of them")
    if source is None:
        if text or as_bytes:
            raise UsageError("which input? Write it, or - for stdin, or @file")
        return None
    content = content_of(source)
    if as_bytes:
        return content
    try:
        if text:
            return content.decode()
        return msgspec.json.decode(content)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the input is not UTF-8 text ({error.reason}); --bytes takes it as it is") from error
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the input is not JSON ({error}); --text takes it as plain text") from error


@click.command("submit")
@click.argument("task_type", metavar="TYPE", required=False)
@click.argument("source", metavar="[INPUT]", required=False)
@click.option("--type", "type_option", metavar="TYPE", help="The same as the argument TYPE.")
@click.option("--input", "input_option", metavar="INPUT", help="The same as the argument INPUT.")
@click.option("--text", is_flag=True, help="INPUT is plain text, not JSON.")
@click.option("--bytes", "as_bytes", is_flag=True, help="INPUT is bytes, not JSON.")
@click.option("--delay", type=duration, metavar="TIME", help="Run it that much later: 30s, 5m, 24h.")
@click.option(
    "--run-after", type=moment, metavar="TIME", help="Run it at that time: 2031-05-01T12:00, local or with Z."
)
@click.option("--priority", type=priority_type, metavar="LEVEL", help="high, medium, low or a number, higher first.")
@click.option("--key", metavar="KEY", help="Idempotency key: a second task with it is not stored.")
@click.option("--tag", "tags", multiple=True, type=tag, metavar="NAME=TEXT", help="Mark it; may be repeated.")
@click.option(
    "--max-retries", type=click.IntRange(min=0), metavar="N", help="Failures it may have before it is failed."
)
@click.option("--timeout", type=duration_or_none, metavar="TIME", help="How long one attempt may run; none: no limit.")
@click.option("--requires", multiple=True, metavar="NAME", help="Capability its worker must have; may be repeated.")
@click.option("--wait", is_flag=True, help="Wait for it and print its result; exit code 1 when it failed.")
@click.option("--result-timeout", type=duration, metavar="TIME", help="With --wait: give up waiting after that.")
@store_options()
def command(
    said: Said,
    task_type: str | None,
    source: str | None,
    type_option: str | None,
    input_option: str | None,
    text: bool,
    as_bytes: bool,
    delay: float | None,
    run_after: datetime | None,
    priority: str | int | None,
    key: str | None,
    tags: tuple[tuple[str, str], ...],
    max_retries: int | None,
    timeout: float | str | None,
    requires: tuple[str, ...],
    wait: bool,
    result_timeout: float | None,
) -> None:
    """Store a task and print its id.

    INPUT is JSON (- reads stdin, @file a file); a handler declared with @q.task takes an object of its arguments.

    \b
      qo submit send_email '{"to": "a@b.c"}' --delay 5m
      qo submit crawl --text https://example.com --wait
    """
    if type_option and task_type and source:
        raise UsageError("--type and an argument both name the type")
    if type_option:
        task_type, source = type_option, task_type
    if task_type is None:
        raise UsageError('which type? Write: qo submit send_email \'{"to": "a@b.c"}\'')
    if input_option is not None and source is not None:
        raise UsageError("--input and an argument both give the input")
    value = input_of(input_option if source is None else source, text=text, as_bytes=as_bytes)
    if result_timeout is not None and not wait:
        raise UsageError("--result-timeout is for --wait")
    options = given(
        delay=delay,
        run_after=run_after,
        priority=priority,
        key=key,
        tags=dict(tags),
        max_retries=max_retries,
        requires=names(requires),
    )
    if timeout is not None:
        options["timeout"] = None if timeout == "none" else timeout
    # Checked before the store is opened, so that what is refused leaves no file behind.
    call = queue_of(said).call(task_type, value, **options)

    async def work(queue: Queue) -> int:
        handle = await queue.submit_call(call)
        now = await now_of(queue)
        if not handle.created:
            note(
                f"qo: the key {key!r} is held by this task, which was submitted {relative(handle.task.created_at, now)}"
            )
        if not wait:
            return _submitted(said, handle, now)
        if not said.json:
            note(f"qo: submitted {handle.id}")
        return answer(said, queue, await wait_for(queue, handle.id, result_timeout), now)

    click.get_current_context().exit(with_queue(said, work, create=True))


def _submitted(said: Said, handle: TaskHandle[Any], now: datetime) -> int:
    if said.json:
        emit(task_object(handle.task, now) | {"created": handle.created})
    else:
        click.echo(handle.id)
    return 0

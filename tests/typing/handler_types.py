"""User code as a type checker sees it: right calls with their types, wrong ones with the rule pyright must report.

`test_typing` fails when a line with `pyright: ignore` has no such error. Nothing here is run.
"""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import msgspec

from qo.handlers import Handler, Registry
from qo.options import Options
from qo.retry import RetryPolicy


async def fetch(url: str, depth: int = 1) -> bytes: ...


def send_email(to: str, subject: str = "hi") -> dict[str, int]: ...


class Mailer:
    def send(self, to: str) -> None: ...


def output_is_what_the_function_gives(raw: msgspec.Raw) -> None:
    """An async function gives what its coroutine gives."""
    assert_type(Handler(fetch).decode_output(raw), bytes)
    assert_type(Handler(send_email).decode_output(raw), dict[str, int])
    assert_type(Handler(Mailer().send).decode_output(raw), None)
    assert_type(Handler(fetch, "other", options=Options.of(timeout=5)).decode_output(raw), bytes)
    assert_type(Registry().add(Handler(fetch)).decode_output(raw), bytes)
    assert_type(Registry().get("fetch").decode_output(raw), Any)


def bind_is_called_like_the_function() -> None:
    """Names, order and types of the arguments are those of the function."""
    handler = Handler(fetch)
    assert_type(handler.bind("x"), msgspec.Raw)
    handler.bind("x", 2)
    handler.bind(url="x", depth=2)
    handler.bind_within(1024, "x", depth=2)
    handler.bind()  # pyright: ignore[reportCallIssue]
    handler.bind(5)  # pyright: ignore[reportArgumentType]
    handler.bind("x", depth="2")  # pyright: ignore[reportArgumentType]
    handler.bind("x", 2, 3)  # pyright: ignore[reportCallIssue]
    handler.bind("x", dept=2)  # pyright: ignore[reportCallIssue]
    handler.bind_within(1024)  # pyright: ignore[reportCallIssue]
    Handler(Mailer().send).bind("x")
    Handler(Mailer().send).bind()  # pyright: ignore[reportCallIssue]


def handlers_are_made_of_functions() -> None:
    """What cannot be called is refused by the editor too."""
    Handler(5)  # pyright: ignore[reportArgumentType, reportCallIssue]
    Handler(fetch, 5)  # pyright: ignore[reportArgumentType, reportCallIssue]


def options_have_types() -> None:
    """Each option says what it takes; None is a timeout but no number of retries."""
    Options.of(timeout=None, delay=timedelta(1), priority="high", retry="d", requires=["gpu"], tags={"team": "a"})
    Options.of(timeout="5m", priority=7, retry=RetryPolicy(initial=1), key=None, run_after=datetime.now(UTC))
    Options.of(concurrency=3, rate_limit=0.5, isolation="process", key_window=60, max_retries=0)
    assert_type(Options.of(timeout=5).merged(Options.of(key="k")), Options)
    Options.of(max_retries=None)  # pyright: ignore[reportArgumentType]
    Options.of(priority="urgent")  # pyright: ignore[reportArgumentType]
    Options.of(retry="z")  # pyright: ignore[reportArgumentType]
    Options.of(isolation="fibre")  # pyright: ignore[reportArgumentType]
    Options.of(max_retry=1)  # pyright: ignore[reportCallIssue]

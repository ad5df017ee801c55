"""Runs handlers with isolation="process": the glue between attempts and `processes`, and what runs in the child."""

import asyncio
import inspect
from functools import lru_cache
from typing import Any

import msgspec

from qo import outcomes
from qo.codec import decode_task, encode_task
from qo.context import Context, enter
from qo.handlers import Handler
from qo.outcomes import GivenBack, Outcome, Raised, Returned
from qo.task import ErrorInfo
from qo.worker.child import Channel
from qo.worker.coroutines import Finish
from qo.worker.jobs import Answered, Crashed, EntryRaised, Job, Reply, Stopped, TimedOut, refer
from qo.worker.processes import ProcessPool
from qo.worker.run import Run, bad_input, raised, stopped

CANCEL_GRACE = 10.0
"""Seconds a handler in a process has to notice that it was cancelled, before it is killed."""

_outcome = msgspec.json.Decoder(Outcome)


class Isolated:
    """Attempts in child processes, at most `size` at once."""

    def __init__(self, size: int, finish: Finish, output_limit: int) -> None:
        self._pool = ProcessPool(size)
        self._finish = finish
        self._output_limit = output_limit
        self._started = False
        self._waiting: set[asyncio.Task[None]] = set()

    def start(self, run: Run) -> None:
        """Hand it to the pool."""
        task = asyncio.create_task(self._run(run), name="qo-process")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def interrupt(self, run: Run) -> None:
        """Ask it to end, then make it end. One that lost its lease or its worker ends at once."""
        if run.process is None:
            return
        if run.stop == "cancelled":
            run.process.cancel()
            asyncio.get_running_loop().call_later(CANCEL_GRACE, run.process.kill)
        else:
            run.process.kill()

    async def close(self, deadline: float = 0.0) -> None:
        """End the children."""
        if self._started:
            await self._pool.close(deadline)
        await asyncio.gather(*self._waiting, return_exceptions=True)

    async def _run(self, run: Run) -> None:
        try:
            outcome = await self._outcome(run)
        except Exception as error:  # a handler no child can find, a pool that cannot start
            outcome = raised(error, run)
        finally:
            run.process = None
        self._finish(run, outcome)

    async def _outcome(self, run: Run) -> Outcome:
        if not self._started:
            await self._pool.start()
            self._started = True
        if (outcome := stopped(run)) is not None:
            return outcome  # interrupted before it began
        context = _Context(task=encode_task(run.task), whole=run.handler.whole, output_limit=self._output_limit)
        job = Job(
            function=refer(run.handler.fn),
            raw_input=bytes(run.task.raw_input),
            context=msgspec.msgpack.encode(context),
            timeout=run.timeout,
            entry=_ENTRY,
        )
        run.process = self._pool.begin(job, run.take_progress)
        return _understood(await run.process.reply(), run)


def _understood(reply: Reply, run: Run) -> Outcome:
    match reply:
        case Answered(raw):
            return _outcome.decode(raw)
        case TimedOut(seconds):
            return outcomes.timed_out(seconds)
        case Crashed(message, traceback):
            error = ErrorInfo(reason="crashed", message=message, traceback=traceback)
            return stopped(run) or Raised(error)
        case EntryRaised(type, message, traceback):
            return Raised(ErrorInfo(reason="raised", message=message, type=type, traceback=traceback))
        case Stopped():
            return stopped(run) or GivenBack()


class _Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the child must know besides the input."""

    task: bytes
    whole: bool
    output_limit: int


_contexts = msgspec.msgpack.Decoder(_Context)


@lru_cache
def _handler_of(function: Any, whole: bool) -> Handler[..., Any]:
    known: Handler[..., Any] | None = getattr(function, "handler", None)
    return known if isinstance(known, Handler) else Handler(inspect.unwrap(function), whole=whole)


def run_in_child(function: object, raw_input: bytes, context: bytes, channel: Channel) -> bytes:
    """The entry of every handler in a child process; answers with the outcome as JSON."""
    told = _contexts.decode(context)
    run = Run(decode_task(told.task), _handler_of(function, told.whole), 0.0)
    enter(Context(run.task, channel.progress, lambda: channel.cancelled))
    return msgspec.json.encode(_execute(run, told.output_limit, channel))


_ENTRY = refer(run_in_child)


def _execute(run: Run, output_limit: int, channel: Channel) -> Outcome:
    try:
        try:
            args, kwargs = run.handler.arguments(run.task.raw_input)
        except Exception as error:
            return bad_input(error)
        value = run.handler.fn(*args, **kwargs)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        return Returned(run.handler.encode_output(value, output_limit))
    except BaseException as error:
        run.stop = "cancelled" if channel.cancelled else None  # all that a child is ever asked
        return raised(error, run)

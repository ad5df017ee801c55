"""What `@q.task` returns, the calls it makes, and the handle of a submitted task. Made by `queue`.

send_email("a@b.c")                              runs the plain function, here and now
await send_email.submit("a@b.c")                 stores a task, returns its TaskHandle
send_email.options(delay=60).submit("a@b.c")     the same with options
send_email.call("a@b.c")                         the call alone, for `q.submit_many`
"""

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

import msgspec

from qo.handlers import Handler
from qo.options import NO_OPTIONS, CallOptions, Duration, Options
from qo.plans import Plan
from qo.task import State, Task, Transition
from qo.values import decode_value

if TYPE_CHECKING:
    from qo.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")


class Call(Generic[R]):
    """A task to be: its type, its checked input and its options. Made by `fn.call(…)` and `q.call(…)`."""

    __slots__ = ("plan", "raw_input", "type")

    def __init__(self, type: str, raw_input: msgspec.Raw, plan: Plan) -> None:
        self.type = type
        self.raw_input = raw_input
        self.plan = plan

    def __repr__(self) -> str:
        return f"Call({self.type!r}, {decode_value(self.raw_input)!r})"

    @property
    def input(self) -> Any:
        """The input as JSON knows it."""
        return decode_value(self.raw_input)


class TaskHandle(Generic[R]):
    """A submitted task, as of then; `refresh` reads it again. `R` is what its handler returns."""

    __slots__ = ("_queue", "created", "task")

    def __init__(self, queue: "Queue", task: Task, created: bool = False) -> None:
        self._queue = queue
        self.task = task
        self.created = created
        """False when the key was held already, so that this is the task that holds it."""

    def __repr__(self) -> str:
        return f"TaskHandle({self.task.id} {self.task.queue}/{self.task.type} {self.task.state})"

    @property
    def id(self) -> str:
        """Its id, to find it again with `q.get` or `q.result`."""
        return self.task.id

    @property
    def state(self) -> State:
        """Its state when it was last read."""
        return self.task.state

    @property
    def type(self) -> str:
        """The name of its type."""
        return self.task.type

    async def result(self, timeout: Duration | None = None) -> R:
        """What the handler returned; waits for it. Raises TaskFailed, TaskCancelled or ResultTimeout."""
        self.task = await self._queue.ended(self.task.id, timeout)
        return cast("R", self._queue.output_of(self.task))

    def result_sync(self, timeout: Duration | None = None) -> R:
        """The same from code without an event loop."""
        return self._queue.sync.result(self, timeout)

    async def refresh(self) -> Task:
        """The task as it is now."""
        self.task = await self._queue.get(self.task.id)
        return self.task

    async def cancel(self, *, actor: str | None = None) -> Task:
        """Cancel it: at once when it waits, as soon as its handler notices when it runs."""
        self.task = await self._queue.cancel(self.task.id, actor=actor)
        return self.task

    async def history(self) -> list[Transition]:
        """All that happened to it, oldest first."""
        return await self._queue.history(self.task.id)


class TaskFunction(Generic[P, R]):
    """A function whose calls can be stored as tasks. Calling it runs it; `submit` stores the call."""

    __name__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, queue: "Queue", handler: Handler[P, R]) -> None:
        functools.update_wrapper(self, handler.fn)
        self._queue = queue
        self._options = NO_OPTIONS
        self._plan: Plan | None = None
        self._planned = -1
        self.handler = handler
        """How its arguments and its output become JSON."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.type} {self.handler.place}>"

    @property
    def type(self) -> str:
        """The name that connects its tasks to it."""
        return self.handler.type

    async def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """Store a task for this call; durable when this returns. InvalidInput, before anything is stored, if the
        arguments do not fit."""
        return await self._queue.submit_call(self.call(*args, **kwargs))

    def submit_sync(self, /, *args: P.args, **kwargs: P.kwargs) -> TaskHandle[R]:
        """The same from code without an event loop."""
        return self._queue.sync.submit_call(self.call(*args, **kwargs))

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The call, checked but not stored; for `q.submit_many`."""
        raw = self.handler.bind_within(self._queue.settings.max_input_bytes, *args, **kwargs)
        return Call(self.handler.type, raw, self._current_plan())

    def options(self, **options: Unpack[CallOptions]) -> Self:
        """The same function with options for the tasks submitted through it."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._options = self._options.merged(Options.of(**options))
        bound._planned = -1
        return bound

    def _current_plan(self) -> Plan:
        planner = self._queue.planner
        if self._plan is None or self._planned != planner.version:
            self._plan, self._planned = planner.plan(self.handler.type, self._options), planner.version
        return self._plan


class SyncTaskFunction(TaskFunction[P, R]):
    """The TaskFunction of a `def`."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", self.handler.fn(*args, **kwargs))


class AsyncTaskFunction(TaskFunction[P, R]):
    """The TaskFunction of an `async def`."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        return cast("Coroutine[Any, Any, R]", self.handler.fn(*args, **kwargs))


class TaskDecorator(Protocol):
    """What `@q.task(…)` with options decorates with."""

    # Every coroutine function is a function too; the first that fits wins, which is what is meant.
    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTaskFunction[P, R]: ...

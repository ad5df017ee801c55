"""The queue as a user meets it: declare tasks, submit them, ask for results. Start here after `lifecycle`.

Looking and changing is in `admin`, what `@q.task` returns in `calls`, pulling by hand in `pull`, the chainable form in
`chain`, the blocking form in `sync`. A queue opens its store on first use, see `session`.
"""

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast, overload

import msgspec

from qo.admin import Admin
from qo.calls import AsyncTaskFunction, Call, SyncTaskFunction, TaskDecorator, TaskFunction, TaskHandle
from qo.chain import Chain
from qo.clock import SYSTEM, Clock
from qo.embedded import EmbeddedWorker
from qo.errors import (
    ConfigError,
    InvalidInput,
    PartlySubmitted,
    QoError,
    UsageError,
)
from qo.handlers import Handler, Registry
from qo.options import NO_OPTIONS, CallOptions, Duration, Options, TaskOptions, TypeOptions
from qo.plans import Planner
from qo.pull import Claim
from qo.session import Lending, Sessions
from qo.settings import ROWS, Settings, load
from qo.signature import Value
from qo.stores.open import StoreFactory, store_factory
from qo.stores.protocol import Store
from qo.task import check_name
from qo.units import DURATION, show_url
from qo.values import encode_value
from qo.views import duration

if TYPE_CHECKING:
    from qo.sync import SyncQueue

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("qo")


class QueueOptions(TaskOptions, total=False):
    """What can be said of a queue: options of its tasks, and settings of its workers."""

    lease: float | str
    max_losses: int
    concurrency: int
    heartbeat: float | str
    max_input_bytes: int | str
    max_output_bytes: int | str


class WorkerOptions(TypedDict, total=False):
    """What can be said of a worker: `q.start(concurrency=50)`."""

    concurrency: int | None
    types: Iterable[str] | None
    any_type: bool
    capabilities: Iterable[str]
    upkeep: bool
    id: str | None


class Queue(Admin):
    """A queue in a store: `Queue("sqlite:///tasks.db")`, or QO_URL from the environment.

    `store` takes a function that makes stores, or a store, instead of a URL; `levels="b"` gives each priority its own
    retries and timeout; what else is said here holds for all tasks that do not say otherwise.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str = "default",
        store: StoreFactory | Store | None = None,
        settings: Settings | None = None,
        levels: str | None = None,
        clock: Clock = SYSTEM,
        **defaults: Unpack[QueueOptions],
    ) -> None:
        if url is not None and store is not None:
            raise ConfigError("url and store both say where the queue lives; give one of them")
        said = cast("dict[str, Any]", defaults)
        of_settings = {
            key: value for key, value in said.items() if key in ROWS and key not in Options.__struct_fields__
        }
        of_settings |= {"concurrency": said["concurrency"]} if "concurrency" in said else {}
        settings = settings or load()
        settings = settings.override("queue", **of_settings)
        self.name = _queue_name(name)
        self.settings = settings if url is None else settings.override(url=url)
        self.registry = Registry()
        self.clock = clock
        self._factory = _factory_of(store) if store is not None else store_factory(self.settings.url, clock)
        self.url = self.settings.url if store is None else f"store://{getattr(store, '__name__', type(store).__name__)}"
        of_tasks = Options.of(**{key: value for key, value in said.items() if key not in of_settings})
        self.planner = Planner(self.name, self.settings, self.registry, of_tasks, levels)
        """Resolves options; for `calls` and `chain`."""
        self._sessions = Sessions(self.open_store, clock)
        self._sync: SyncQueue | None = None
        self._embedded: EmbeddedWorker | None = None
        for warning in self.settings.warnings:
            log.warning("%s", warning)

    def __repr__(self) -> str:
        return f"Queue({show_url(self.url)!r}, name={self.name!r})"

    # Opening and closing.

    def open_store(self) -> Store:
        """A fresh, unopened store on the same place; for those who need one of their own, such as a worker."""
        return self._factory()

    async def __aenter__(self) -> Self:
        await self._sessions.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is under way and close the store as this event loop has it open. The next use opens it again."""
        await self._sessions.close()
        if self._sync is not None:
            from qo.sync import close_behind

            await close_behind(self)

    # Declaring.

    # Every coroutine function is a function too; the first that fits wins, which is what is meant.
    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTaskFunction[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> SyncTaskFunction[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, **options: Unpack[TypeOptions]) -> TaskDecorator: ...
    def task(
        self, fn: Callable[..., Any] | None = None, /, *, name: str | None = None, **options: Unpack[TypeOptions]
    ) -> Any:
        """Make a function a task: `@q.task`, or `@q.task(max_retries=5, timeout=30)`. Its type is its name."""
        said = Options.of(**options) if options else NO_OPTIONS

        def decorate(function: Callable[..., Any]) -> TaskFunction[..., Any]:
            handler = self.register(Handler(function, name, options=said))
            return AsyncTaskFunction(self, handler) if handler.is_async else SyncTaskFunction(self, handler)

        return decorate if fn is None else decorate(fn)

    def register(self, handler: Handler[P, R]) -> Handler[P, R]:
        """Add a handler; what `task` and `set_worker` do."""
        self.registry.add(handler)
        self.planner.changed()
        return handler

    # Submitting.

    async def submit(self, type: str, input: object = None, **options: Unpack[CallOptions]) -> TaskHandle[Any]:
        """Store a task by the name of its type; durable when this returns. No handler is needed here, but if there is
        one the input is checked against it."""
        return await self.submit_call(self.call(type, input, **options))

    async def submit_call(self, call: Call[R]) -> TaskHandle[R]:
        """Store one call made by `fn.call(…)` or `q.call(…)`."""
        session = self._sessions.ready() or await self._sessions.open()
        task = call.plan.task(call.raw_input, session.store.now(), self.clock)
        submitted = await session.commits.submit(task)
        return TaskHandle(self, submitted.task, submitted.outcome == "created")

    async def submit_many(self, calls: Iterable[Call[R]]) -> list[TaskHandle[R]]:
        """Store many calls together, in order; PartlySubmitted says which when only some of them could be stored."""
        session = await self.session()
        now = session.store.now()
        tasks = [call.plan.task(call.raw_input, now, self.clock) for call in calls]
        answers = await session.commits.submit_many(tasks)
        results: list[TaskHandle[R] | QoError] = [
            one if isinstance(one, QoError) else TaskHandle(self, one.task, one.outcome == "created") for one in answers
        ]
        errors = [one for one in results if isinstance(one, QoError)]
        if not errors:
            return cast("list[TaskHandle[R]]", results)
        if len(errors) == len(results) == 1:
            raise errors[0]
        message = f"{len(errors)} of {len(results)} tasks were not stored: {errors[0]}; .results answers for each"
        raise PartlySubmitted(message, results) from errors[0]

    def call(self, type: str, input: object = None, **options: Unpack[CallOptions]) -> Call[Any]:
        """A call by the name of its type, checked but not stored; for `submit_many`."""
        said = Options.of(**options) if options else NO_OPTIONS
        return Call(type, self._raw_input(type, input), self.planner.plan(type, argument=said))

    def _raw_input(self, type: str, input: object) -> msgspec.Raw:
        limit = self.settings.max_input_bytes
        handler = self.registry.find(type)
        if handler is None:
            try:
                return encode_value(input, limit=limit)
            except InvalidInput:
                # Models and the like are no JSON by themselves; what is wrong for other reasons is refused again.
                return Value(type, Any, "its input").encode(input, limit)
        if handler.whole:
            return handler.bind_within(limit, input)
        if input is None:
            return handler.bind_within(limit)
        if not isinstance(input, Mapping):
            raise InvalidInput(f"{type}: its input is an object of keywords, such as {{'name': …}}, not {input!r:.100}")
        return handler.bind_within(limit, **cast("Mapping[str, Any]", input))

    def __call__(self, type: str) -> Chain:
        """One task type, chainable: `q("crawl").set_worker(fn).set_timeout(300).add({"url": "…"})`."""
        return Chain(self, type)

    # Running.

    def claim(
        self,
        *types: str,
        limit: int = 1,
        capabilities: Iterable[str] = (),
        lease: Duration | None = None,
        wait: Duration = 0,
    ) -> Claim:
        """Pull tasks by hand: `async with q.claim("crawl", limit=5) as tasks`; without a type, any. Waits up to `wait`
        seconds for work. What the block does not settle is given back at its end."""
        if limit < 1:
            raise InvalidInput(f"limit must be at least 1, not {limit}")
        has = frozenset(check_name("capability", name) for name in capabilities)
        named = tuple(check_name("type", name) for name in types)
        seconds = self.settings.lease if lease is None else duration("lease", lease, DURATION)
        return Claim(self, named, limit, has, seconds, duration("wait", wait))

    async def run_once(self, limit: int = 100, **options: Unpack[WorkerOptions]) -> int:
        """Claim once, run what was claimed to its end, settle it; how many there were. For tests and cron."""
        from qo.worker.worker import Worker

        return await Worker(self, **options).run_once(limit)

    def start(self, **options: Unpack[WorkerOptions]) -> None:
        """Run a worker in a thread of this process, until `stop`. It runs the handlers registered by now."""
        if self._embedded is not None and self._embedded.alive:
            raise UsageError("the worker of this queue runs already; q.stop() stops it")
        if not len(self.registry) and not options.get("any_type"):
            raise ConfigError("there is nothing to run yet: declare tasks with @q.task or set_worker before q.start()")
        self._embedded = EmbeddedWorker(self, **options)

    def stop(self, timeout: float | None = None) -> None:
        """Let the worker of `start` finish what runs, and wait for it. Raises what ended it, if something did."""
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.stop(timeout)

    @property
    def sync(self) -> "SyncQueue":
        """The same queue for code without an event loop: `q.sync.submit(…)`."""
        if self._sync is None:
            from qo.sync import SyncQueue

            self._sync = SyncQueue(self)
        return self._sync


def _queue_name(name: str) -> str:
    try:
        return check_name("queue", name)
    except InvalidInput as error:
        raise ConfigError(str(error)) from error


def _factory_of(store: StoreFactory | Store) -> StoreFactory:
    return store if callable(store) else Lending(store).lend

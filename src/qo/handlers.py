"""What the client and the worker know of a user's function: its type name, its options, how it is called. No I/O.

`queue` makes a Handler for each `@q.task` and `set_worker` and keeps it in a Registry; the worker asks it for the
arguments of a run and for the JSON of the output. How values become JSON is in `signature`.
"""

import difflib
import inspect
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Generic, ParamSpec, TypeVar, cast, get_type_hints, overload

import msgspec
from msgspec import UNSET

from qo.errors import ConfigError, InvalidInput, UnknownType
from qo.options import NO_OPTIONS, Isolation, Options
from qo.signature import OutputTooLarge, Signature, UnusableOutput, Value
from qo.task import check_name
from qo.values import NULL

P = ParamSpec("P")
R = TypeVar("R")


class Handler(Generic[P, R]):
    """A function that runs the tasks of one type.

    `whole` handlers take the input as their one argument, the others take it as keywords. Everything that can be known
    without its annotations is checked at once, the rest on first use, because an annotation may name a class that is
    defined further down.
    """

    @overload
    def __init__(
        self,
        fn: Callable[P, Coroutine[Any, Any, R]],
        name: str | None = None,
        *,
        options: Options = NO_OPTIONS,
        whole: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self, fn: Callable[P, R], name: str | None = None, *, options: Options = NO_OPTIONS, whole: bool = False
    ) -> None: ...
    def __init__(
        self, fn: Callable[P, Any], name: str | None = None, *, options: Options = NO_OPTIONS, whole: bool = False
    ) -> None:
        if isinstance(fn, staticmethod):
            fn = cast("Callable[P, Any]", fn.__func__)
        if not callable(fn) or inspect.isclass(fn):
            raise ConfigError(f"{fn!r} cannot handle tasks: it must be a function")
        self.fn: Callable[..., Any] = fn
        self.type = _type_name(fn, name)
        self.options = options
        self.whole = whole
        code = _code_of(fn)
        if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            raise ConfigError(f"{self.place} is a generator; a handler returns its output at once")
        self.is_async = inspect.iscoroutinefunction(code)
        self.isolation = self._isolation()
        self._parameters = _parameters_of(fn)
        self._check_parameters(code)
        self._hints = _local_hints_of(fn)

    def __repr__(self) -> str:
        return f"Handler({self.type!r}, {self.place})"

    @property
    def place(self) -> str:
        """Where the function is: module, name, file and line."""
        code = _code_of(self.fn)
        name = f"{code.__module__}.{code.__qualname__}"
        inner = getattr(inspect.unwrap(code), "__code__", None)
        return f"{name} ({inner.co_filename}:{inner.co_firstlineno})" if inner else name

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> msgspec.Raw:
        """The input of a task for this call, or InvalidInput."""
        return self.bind_within(None, *args, **kwargs)

    def bind_within(self, limit: int | None, /, *args: P.args, **kwargs: P.kwargs) -> msgspec.Raw:
        """The same, of at most that many bytes."""
        if not self.whole:
            return self._signature.bind(args, kwargs, limit)
        if len(args) != 1 or kwargs:
            raise InvalidInput(f"{self.type} takes its input whole: give one positional argument")
        return self._whole.bind(args[0], limit)

    def arguments(self, raw: msgspec.Raw) -> tuple[Sequence[Any], dict[str, Any]]:
        """What to call the function with: `fn(*args, **kwargs)`. InvalidInput when the stored input does not fit."""
        return ((self._whole.decode(raw),), {}) if self.whole else self._signature.arguments(raw)

    def encode_output(self, value: object, limit: int | None = None) -> msgspec.Raw:
        """JSON of what the function returned; InvalidInput, or OutputTooLarge when it has more bytes than the limit."""
        if value is None:
            return NULL
        try:
            raw = self._signature.output.encode(value)
        except InvalidInput as error:
            raise UnusableOutput(str(error)) from error
        if limit is not None and len(bytes(raw)) > limit:
            raise OutputTooLarge(
                f"{self.type}: the return value takes {len(bytes(raw)):,} bytes, the limit is {limit:,}; "
                "store it elsewhere and return a reference"
            )
        return raw

    def decode_output(self, raw: msgspec.Raw) -> R:
        """What the function returned; InvalidInput when it is not what its annotation says."""
        return cast("R", self._signature.output.decode(raw))

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the input; ConfigError for annotations that cannot be used, so a worker asks at its start."""
        return self._whole.schema() | {"title": self.type} if self.whole else self._signature.schema()

    @cached_property
    def _signature(self) -> Signature:
        hints = _hints_of(self.fn) if self._hints is None else self._hints
        return Signature(self.type, self._parameters, hints)

    @cached_property
    def _whole(self) -> Value:
        return self._signature.whole()

    def _isolation(self) -> Isolation:
        said = self.options.isolation
        if said is UNSET:
            return "async" if self.is_async else "thread"
        if said == "async" and not self.is_async:
            raise ConfigError(f"{self.place} would block the event loop: make it async def, or use isolation='thread'")
        if said == "thread" and self.is_async:
            raise ConfigError(f"{self.place} is async def: use isolation='async' or 'process'")
        return said

    def _check_parameters(self, code: Any) -> None:
        parameters = list(self._parameters.values())
        if parameters and parameters[0].name in ("self", "cls") and "." in code.__qualname__.rpartition("<locals>.")[2]:
            raise ConfigError(f"{self.place} is a method without its object: make it static, or register object.method")
        if not self.whole:
            return
        try:
            inspect.Signature(parameters).bind(None)
        except TypeError as error:
            raise ConfigError(f"{self.place} gets its input whole, as one positional argument: {error}") from error


class Registry:
    """The handlers of a queue by type name."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler[..., Any]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._handlers

    def __iter__(self) -> Iterator[Handler[..., Any]]:
        return iter(list(self._handlers.values()))

    def __len__(self) -> int:
        return len(self._handlers)

    @property
    def types(self) -> tuple[str, ...]:
        """The names, in the order of registration."""
        return tuple(self._handlers)

    def add(self, handler: Handler[P, R]) -> Handler[P, R]:
        """Register it, or ConfigError when another function has its name. The same function may come again."""
        known = self._handlers.get(handler.type)
        if known and not _same_function(known.fn, handler.fn):
            raise ConfigError(f"two handlers for {handler.type!r}: {known.place} and {handler.place}; name one of them")
        self._handlers[handler.type] = handler
        return handler

    def find(self, name: str) -> Handler[..., Any] | None:
        """The handler of that type, if there is one."""
        return self._handlers.get(name)

    def get(self, name: str) -> Handler[..., Any]:
        """The handler of that type, or UnknownType with the names that are close."""
        handler = self._handlers.get(name)
        if handler is None:
            close = difflib.get_close_matches(name, self._handlers, n=3)
            known = ", ".join(list(self._handlers)[:10]) or "none yet"
            hint = f"did you mean {' or '.join(close)}?" if close else f"registered: {known}"
            raise UnknownType(f"no handler for type {name!r}; {hint}")
        return handler


def _same_function(old: Callable[..., Any], new: Callable[..., Any]) -> bool:
    if old == new:
        return True
    if not (inspect.isfunction(old) and inspect.isfunction(new)) or old.__qualname__ != new.__qualname__:
        return False
    # In a notebook or a prompt, running a definition again replaces it.
    if not hasattr(sys.modules.get("__main__"), "__file__"):
        return old.__module__ == new.__module__
    # A module that was reloaded, or run as __main__ and imported too.
    one, two = old.__code__, new.__code__
    return (one.co_filename, one.co_firstlineno) == (two.co_filename, two.co_firstlineno)


def _type_name(fn: Callable[..., Any], name: str | None) -> str:
    if name is None:
        inner: object = cast("partial[Any]", fn).func if isinstance(fn, partial) else fn
        name = getattr(inner, "__name__", None)
        if name is None or name == "<lambda>":
            raise ConfigError(f"{fn!r} has no name of its own; give it one: name='…'")
    try:
        return check_name("type", name)
    except InvalidInput as error:
        raise ConfigError(str(error)) from error


def _parameters_of(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{fn!r} does not say which parameters it has; wrap it in a function that does") from error


def _hints_of(fn: Callable[..., Any], local_names: dict[str, Any] | None = None) -> dict[str, Any]:
    """Its annotations as types, or ConfigError."""
    code = _code_of(fn)
    try:
        return get_type_hints(code, localns=local_names, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"an annotation of {code.__qualname__} names {error.name!r}, which is not there: import it outside "
            "`if TYPE_CHECKING`, and define it at the top of its module or before the function"
        ) from error
    except Exception as error:
        raise ConfigError(f"an annotation of {code.__qualname__} cannot be read: {error}") from error


def _local_hints_of(fn: Callable[..., Any]) -> dict[str, Any] | None:
    """The annotations of a function inside a function, while the names around it can still be seen; else None."""
    code = _code_of(fn)
    outer, inside, _ = code.__qualname__.rpartition(".<locals>")
    frame = inspect.currentframe() if inside else None
    while frame and (frame.f_code.co_qualname != outer or frame.f_globals is not getattr(code, "__globals__", None)):
        frame = frame.f_back
    try:
        return _hints_of(fn, dict(frame.f_locals)) if frame else None
    except ConfigError:
        return None  # Asked again on first use, when names defined further down may be there.


def _code_of(fn: Callable[..., Any]) -> Any:
    """The function behind partials and callable objects: what has the name, the annotations and the line."""
    while isinstance(fn, partial):
        fn = cast("partial[Any]", fn).func
    return fn if hasattr(fn, "__qualname__") else type(fn).__call__

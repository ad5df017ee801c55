"""Handlers: what a function takes and gives becomes JSON and comes back, and wrong calls are refused before that."""

import functools
import json
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Unpack
from uuid import UUID

import msgspec
import pytest
from msgspec import UNSET
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field
from typing_extensions import TypedDict

from qo.errors import ConfigError, InvalidInput, UnknownType
from qo.handlers import Handler, Registry
from qo.options import NO_OPTIONS, Options
from qo.retry import PRESETS, RetryPolicy
from qo.signature import OutputTooLarge


class Colour(Enum):
    RED = "red"


class Address(BaseModel):
    model_config = ConfigDict(extra="forbid")
    street: str
    zip_code: str = Field(default="0000", alias="zipCode")
    seen: datetime | None = Field(default=None, validation_alias="lastSeen")

    @computed_field
    @property
    def label(self) -> str:
        return f"{self.street} {self.zip_code}"


@dataclass
class Point:
    x: int
    y: int = 0


class Words(TypedDict, total=False):
    said: str


class Pair(NamedTuple):
    left: int
    right: str


class Shape(msgspec.Struct):
    sides: int
    at: datetime | None = None


class Needed(TypedDict):
    url: str


class Keywords(Needed, total=False):
    depth: int


def send_email(to: str, subject: str = "hi") -> dict[str, str]:
    return {"to": to, "subject": subject}


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


def plain(value: msgspec.Raw) -> Any:
    return json.loads(bytes(value))


def run(handler: Handler[..., Any], stored: msgspec.Raw) -> Any:
    args, kwargs = handler.arguments(stored)
    return handler.fn(*args, **kwargs)


# --- bind and arguments


def test_bind_gives_the_keywords_as_json() -> None:
    """Positional arguments are bound to names, and a default is not stored unless it was given."""
    handler = Handler(send_email)
    assert plain(handler.bind("a@b.c")) == {"to": "a@b.c"}
    assert plain(handler.bind("a@b.c", "hi")) == {"to": "a@b.c", "subject": "hi"}
    assert plain(handler.bind(to="a@b.c", subject="yo")) == {"to": "a@b.c", "subject": "yo"}
    assert run(handler, handler.bind("a@b.c")) == {"to": "a@b.c", "subject": "hi"}


NOW = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
VALUES: list[tuple[Any, Any]] = [
    (int, 5),
    (float, 0.1),
    (bool, True),
    (str, "Grüße \x00 𝄞"),
    (bytes, b"\x00\xff\xfe?>"),
    (datetime, NOW),
    (date, date(2030, 1, 2)),
    (timedelta, timedelta(days=3, microseconds=7)),
    (UUID, UUID(int=7)),
    (Decimal, Decimal("0.10")),
    (Path, Path("/tmp/x")),
    (Colour, Colour.RED),
    (Literal["a", 1], 1),
    (int | None, None),
    (int | str, "5"),
    (Address, Address.model_validate({"street": "s", "zipCode": "1234", "lastSeen": NOW})),
    (Point, Point(1, 2)),
    (Words, {"said": "x"}),
    (Pair, Pair(1, "r")),
    (Shape, Shape(3, NOW)),
    (Shape | None, Shape(3)),
    (list[Shape], [Shape(1), Shape(2, NOW)]),
    (list[Point], [Point(1), Point(2, 3)]),
    (dict[str, Address], {"home": Address(street="s")}),
    (dict[UUID, bytes], {UUID(int=1): b"\xff"}),
    (list[bytes | None], [b"\xff", None]),
    (set[int], {1, 2}),
    (tuple[int, ...], (1, 2)),
    (Annotated[int, Field(gt=0)], 1),
]


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=lambda one: getattr(one, "__name__", str(one))[:30])
def test_values_come_back_as_they_were(annotation: Any, value: Any) -> None:
    """What is bound, taken whole or returned comes back equal and of the same class, through plain JSON."""

    def function(one: annotation) -> annotation:  # pyright: ignore[reportInvalidTypeForm]
        return one

    keywords, whole = Handler(function), Handler(function, whole=True)
    json.loads(bytes(keywords.bind(value)))
    for came_back in (
        run(keywords, keywords.bind(value)),
        run(keywords, keywords.bind(one=value)),
        run(whole, whole.bind(value)),
        keywords.decode_output(keywords.encode_output(value)),
    ):
        assert came_back == value
        assert type(came_back) is type(value)


def test_values_are_taken_as_leniently_as_by_pydantic() -> None:
    """Text that is a number will do for an int, and the number is what is stored."""

    def function(n: int, when: datetime, address: Address) -> None: ...

    stored = plain(
        Handler(function).bind("5", "2030-01-02T03:04:05Z", {"street": "s", "zipCode": "9"})  # pyright: ignore[reportArgumentType]
    )
    assert stored == {
        "n": 5,
        "when": "2030-01-02T03:04:05Z",
        "address": {"street": "s", "zip_code": "9", "seen": None},
    }


def test_unannotated_parameters_take_any_json() -> None:
    """Without an annotation any JSON value passes; richer ones arrive as the JSON they were stored as."""

    def function(one, two=2):
        return one, two

    handler: Handler[..., Any] = Handler(function)
    assert run(handler, handler.bind({"a": [1, None, "x"]})) == ({"a": [1, None, "x"]}, 2)
    assert run(handler, handler.bind(Shape(3), two=(1, NOW))) == (
        {"sides": 3, "at": None},
        [1, "2030-01-02T03:04:05.000678Z"],
    )


def test_variable_parameters() -> None:
    """*rest is stored as a list under its name, **others beside the named ones, and both are checked."""

    def function(a: int, b: int = 2, /, c: int = 3, *rest: datetime, d: int = 4, **others: timedelta) -> object:
        return a, b, c, rest, d, others

    handler: Handler[..., Any] = Handler(function)
    assert run(handler, handler.bind(1)) == (1, 2, 3, (), 4, {})
    assert run(handler, handler.bind(1, c=5)) == (1, 2, 5, (), 4, {})
    full = handler.bind(1, 7, 8, NOW, d=9, x=timedelta(1))
    assert plain(full) == {"a": 1, "b": 7, "c": 8, "rest": ["2030-01-02T03:04:05.000678Z"], "d": 9, "x": "P1D"}
    assert run(handler, full) == (1, 7, 8, (NOW,), 9, {"x": timedelta(1)})
    assert run(handler, raw({"a": 1, "rest": ["2030-01-02"]}))[:3] == (1, 2, 3)
    with pytest.raises(InvalidInput, match=r"'rest\.0'"):
        handler.bind(1, 2, 3, "no time")
    with pytest.raises(InvalidInput, match="'x'"):
        handler.bind(1, x="no duration")
    with pytest.raises(InvalidInput, match="two values for 'a'"):
        handler.bind(1, a=2)


def test_unpacked_keywords() -> None:
    """**keywords: Unpack[TypedDict] is checked field by field."""

    def function(**keywords: Unpack[Keywords]) -> object:
        return keywords

    handler = Handler(function)
    assert run(handler, handler.bind(url="x", depth=1)) == {"url": "x", "depth": 1}
    with pytest.raises(InvalidInput, match="'url' is missing; there is no 'other'"):
        handler.bind(other=1)  # pyright: ignore[reportCallIssue]


def test_a_changed_default_applies_to_tasks_that_wait() -> None:
    """Defaults are those of the function that runs, not of the one that submitted."""

    def later(to: str, subject: str = "new") -> str:
        return subject

    assert run(Handler(later), Handler(send_email).bind("a")) == "new"


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "send_email: 'to' is missing; it is send_email(to: str, subject: str = 'hi') -> dict[str, str]"),
        ((), {"to": 5}, "'to': Input should be a valid string, not 5"),
        ((), {"to": "a", "subjct": "x"}, "there is no 'subjct'"),
        (("a", "b", "c"), {}, "takes 2 positional arguments, 3 were given"),
        (("a",), {"to": "b"}, "two values for 'to'"),
        (("\ud800",), {}, "lone surrogate"),
    ],
)
def test_wrong_calls_are_refused(args: tuple[Any, ...], kwargs: dict[str, Any], says: str) -> None:
    """A wrong call is an InvalidInput that names the type, the parameter and the signature."""
    handler: Handler[..., Any] = Handler(send_email)
    with pytest.raises(InvalidInput) as caught:
        handler.bind(*args, **kwargs)
    assert says in str(caught.value)
    assert "send_email" in str(caught.value)


def test_values_json_cannot_hold_are_refused() -> None:
    """NaN, infinity, unknown objects, cycles and endless nesting are refused before they are stored."""

    def function(n: float = 0, free: Any = None) -> None: ...

    handler = Handler(function)
    cycle: list[Any] = []
    cycle.append(cycle)
    for wrong in (float("nan"), float("-inf")):
        with pytest.raises(InvalidInput, match="NaN or infinity"):
            handler.bind(wrong)
        with pytest.raises(InvalidInput, match="NaN or infinity"):
            handler.bind(free=[{"a": wrong}])
    for wrong in (object(), cycle):
        with pytest.raises(InvalidInput):
            handler.bind(free=wrong)


@pytest.mark.parametrize("depth", [100, 190, 199, 200, 220, 254, 300, 5000])
def test_deep_values_are_refused_at_once_or_can_be_read(depth: int) -> None:
    """What bind accepts, arguments reads, however deep it is."""

    def function(one: Any) -> None: ...

    value: Any = 1
    for _ in range(depth):
        value = [value]
    handler = Handler(function)
    try:
        stored = handler.bind(value)
    except InvalidInput:
        assert depth > 190
    else:
        assert depth < 200
        handler.arguments(stored)


def test_input_has_a_limit() -> None:
    """bind_within refuses what has more bytes than the limit."""
    handler = Handler(send_email)
    size = len(bytes(handler.bind("a")))
    assert handler.bind_within(size, "a") == handler.bind("a")
    with pytest.raises(InvalidInput, match=f"the limit is {size - 1}"):
        handler.bind_within(size - 1, "a")


def test_bytes_in_a_model_without_base64_are_refused_with_the_remedy() -> None:
    """A model keeps its own configuration: bytes it cannot show as text are refused at submit, never mangled."""

    class Blob(BaseModel):
        data: bytes

    class Encoded(Blob):
        model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    def function(blob: Blob | None = None, encoded: Encoded | None = None) -> object:
        return blob or encoded

    handler = Handler(function)
    assert run(handler, handler.bind(Blob(data=b"text"))).data == b"text"
    assert run(handler, handler.bind(encoded=Encoded(data=b"\xff"))).data == b"\xff"
    with pytest.raises(InvalidInput, match="val_json_bytes"):
        handler.bind(Blob(data=b"\xff"))


@pytest.mark.parametrize("stored", [[1], "x", None, {"to": [1]}, {"subject": "x"}, {"to": "a", "x": 1}])
def test_stored_input_that_does_not_fit_is_refused(stored: Any) -> None:
    """The worker gets InvalidInput for input that was written for another signature or by hand."""
    with pytest.raises(InvalidInput, match="send_email"):
        Handler(send_email).arguments(raw(stored))


def test_stored_bytes_are_no_keywords() -> None:
    """Bytes submitted by name to a handler that takes keywords are refused, even when it takes any keyword."""

    def function(**others: Any) -> object:
        return others

    handler = Handler(function)
    with pytest.raises(InvalidInput, match="object of keywords"):
        handler.arguments(Handler(lambda one: one, "x", whole=True).bind(b"\xff"))
    odd = {"$bytes": "not base64"}
    assert run(handler, handler.bind(**odd)) == odd


def test_a_validator_that_breaks_is_bad_input() -> None:
    """Whatever a user's validator raises, the worker sees InvalidInput with the cause."""
    handler = Handler(breaking)
    with pytest.raises(InvalidInput, match="surprise") as caught:
        handler.arguments(raw({"one": {"x": 1}}))
    assert isinstance(caught.value.__cause__, KeyError)


class Breaking(BaseModel):
    x: int

    def model_post_init(self, context: Any, /) -> None:
        raise KeyError("surprise")


def breaking(one: Breaking) -> None: ...


# --- whole


def test_whole_handlers_get_the_input_as_one_value() -> None:
    """Any JSON or bytes without an annotation; checked against it otherwise."""

    def anything(payload) -> None: ...

    def point(payload: Point, limit: object = None) -> None: ...

    free: Handler[..., Any] = Handler(anything, whole=True)
    for value in ({"url": "x"}, [1], "x", None, b"\xff", {"$bytes": 1}):
        assert free.arguments(free.bind(value)) == ((value,), {})
    typed = Handler(point, whole=True)
    assert typed.arguments(raw({"x": "1"})) == ((Point(1),), {})
    for wrong in ({"x": "one"}, None, 5):
        with pytest.raises(InvalidInput, match="its input 'payload'"):
            typed.arguments(raw(wrong))
        with pytest.raises(InvalidInput, match="its input 'payload'"):
            typed.bind(wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidInput, match="one positional argument"):
        free.bind(payload=1)


def test_whole_handlers_take_one_argument() -> None:
    """A function that cannot be called with one positional argument is refused when it is registered."""

    def two(a: int, b: int) -> None: ...
    def none() -> None: ...

    for function in (two, none):
        with pytest.raises(ConfigError, match="whole"):
            Handler(function, whole=True)


# --- outputs


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        ({"a": [1, "x"]}, {"a": [1, "x"]}),
        (Address(street="s"), {"street": "s", "zip_code": "0000", "seen": None}),
        (Point(1, 2), {"x": 1, "y": 2}),
        (Shape(3), {"sides": 3, "at": None}),
        ([NOW, UUID(int=1), Decimal("1.0")], ["2030-01-02T03:04:05.000678Z", str(UUID(int=1)), "1.0"]),
        (Colour.RED, "red"),
        (b"\xff", {"$bytes": "/w=="}),
    ],
)
def test_output_without_annotation_is_encoded_by_its_kind(value: Any, stored: Any) -> None:
    """A value that nothing is said about becomes the JSON of its own kind."""

    def function():
        return value

    assert plain(Handler(function).encode_output(value)) == stored


def test_output_of_another_kind_than_said_is_not_lost() -> None:
    """Work that is done is stored even if the annotation was wrong; who reads it by the annotation is told."""

    def function() -> int: ...  # pyright: ignore[reportReturnType]

    handler = Handler(function)
    stored = handler.encode_output("seven")
    assert plain(stored) == "seven"
    with pytest.raises(InvalidInput, match="function: the return value.*must be int"):
        handler.decode_output(stored)


def test_output_that_cannot_be_stored() -> None:
    """Unknown objects and NaN are an InvalidInput; too many bytes are told apart from them."""

    def function(): ...

    handler = Handler(function)
    for wrong in (object(), [object()], float("nan"), lambda: 1):
        with pytest.raises(InvalidInput, match="return value") as caught:
            handler.encode_output(wrong)
        assert not isinstance(caught.value, OutputTooLarge)
    assert handler.encode_output("12345678", 10)
    with pytest.raises(OutputTooLarge, match="11 bytes, the limit is 10"):
        handler.encode_output("123456789", 10)


# --- functions of every kind


class Mailer:
    def send(self, to: str) -> str:
        return to

    @staticmethod
    def plain(to: str) -> str:
        return to

    @classmethod
    def built(cls, to: str) -> str:
        return to

    async def __call__(self, to: str) -> str:
        return to


async def fetch(url: str) -> bytes:
    return url.encode()


def test_kinds_of_functions() -> None:
    """Functions, methods, partials and callable objects are bound like the call a user would write."""
    for function, name in (
        (Mailer().send, "send"),
        (Mailer.plain, "plain"),
        (Mailer.built, "built"),
        (functools.partial(send_email, subject="s"), "send_email"),
        (staticmethod(send_email), "send_email"),
    ):
        handler: Handler[..., Any] = Handler(function)
        assert (handler.type, handler.is_async, handler.isolation) == (name, False, "thread")
        assert plain(handler.bind("a")) == {"to": "a"}
        assert run(handler, handler.bind("a"))
    called = Handler(Mailer(), "mail")
    assert (called.is_async, called.isolation) == (True, "async")
    assert plain(called.bind("a")) == {"to": "a"}
    assert Handler(functools.partial(fetch)).is_async


def test_partials_keep_what_was_fixed() -> None:
    """Fixed positional arguments are no parameters; fixed keywords can be given anew."""
    handler: Handler[..., Any] = Handler(functools.partial(send_email, "a"), "greet")
    assert run(handler, handler.bind(subject="yo")) == {"to": "a", "subject": "yo"}
    with pytest.raises(InvalidInput, match="positional"):
        handler.bind("b", "c")


def test_explicit_name_wins() -> None:
    """A name that is given is the type, and must be one."""
    assert Handler(send_email, "mail.send").type == "mail.send"
    with pytest.raises(ConfigError, match="is no type"):
        Handler(send_email, "a\nb")


def test_functions_that_cannot_handle_tasks() -> None:
    """What could only fail later is refused when it is registered, with the place of the function."""

    def generator():
        yield 1

    async def async_generator():
        yield 1

    for function, says in (
        (generator, "is a generator"),
        (async_generator, "is a generator"),
        (lambda: 1, "no name of its own"),
        (Mailer(), "no name of its own"),
        (Mailer.send, "method without its object"),
        (Mailer, "must be a function"),
        (5, "must be a function"),
        (Mailer.__dict__["built"], "must be a function"),
        (dict.update, "which parameters"),
    ):
        with pytest.raises(ConfigError, match=says):
            Handler(function)  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize(
    ("function", "said", "isolation"),
    [
        (fetch, UNSET, "async"),
        (fetch, "async", "async"),
        (fetch, "process", "process"),
        (send_email, UNSET, "thread"),
        (send_email, "thread", "thread"),
        (send_email, "process", "process"),
    ],
)
def test_isolation(function: Callable[..., Any], said: Any, isolation: str) -> None:
    """Async functions run on the loop, others in threads, both in processes on request."""
    assert Handler(function, options=Options(isolation=said)).isolation == isolation


def test_isolation_that_does_not_fit() -> None:
    """A blocking function never runs on the loop, a coroutine function never in a thread."""
    with pytest.raises(ConfigError, match="block the event loop"):
        Handler(send_email, options=Options.of(isolation="async"))
    with pytest.raises(ConfigError, match="async def"):
        Handler(fetch, options=Options.of(isolation="thread"))


# --- annotations


def test_annotations_as_text() -> None:
    """`from __future__ import annotations`, inside a function and with a class defined further down, works."""
    module = types.ModuleType("future_module")
    source = """
from __future__ import annotations
from dataclasses import dataclass
from qo.handlers import Handler

def ahead(later: Later) -> Later: return later
handler = Handler(ahead)

@dataclass
class Later:
    x: int

def make():
    @dataclass
    class Local:
        x: int
    def inner(one: Local, two: list[Later]) -> Local: return one
    return Handler(inner), Local

local, Local = make()
"""
    sys.modules["future_module"] = module
    try:
        exec(compile(source, "future_module.py", "exec"), module.__dict__)
        names = module.__dict__
        assert run(names["handler"], names["handler"].bind(names["Later"](1))) == names["Later"](1)
        assert run(names["local"], raw({"one": {"x": 2}, "two": [{"x": 3}]})) == names["Local"](2)
    finally:
        del sys.modules["future_module"]


def test_annotations_that_cannot_be_used() -> None:
    """A missing name, a class without JSON or a masked secret is a ConfigError on first use, before submit."""

    class Opaque: ...

    @dataclass
    class Unfinished:
        x: "Nowhere"  # noqa: F821  # pyright: ignore[reportUndefinedVariable]

    def missing(one: "Nowhere") -> None: ...  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
    def unfinished(one: Unfinished) -> None: ...
    def opaque(one: Opaque) -> None: ...
    def returns(one: int) -> Opaque: ...  # pyright: ignore[reportReturnType]
    def secret(one: list[SecretStr] | None) -> None: ...
    def field(one: int = Field(5, gt=0)) -> None: ...
    def default(one: Annotated[int, Field(default=5)]) -> None: ...

    for function, says in (
        (missing, "names 'Nowhere'"),
        (unfinished, "Nowhere"),
        (opaque, "Opaque"),
        (returns, "the return value.*Opaque"),
        (secret, "stored as stars"),
        (field, "Annotated"),
        (default, "default"),
    ):
        handler: Handler[..., Any] = Handler(function)
        for use in (handler.schema, lambda one=handler: one.bind(1)):
            with pytest.raises(ConfigError, match=says):
                use()


def test_a_whole_handler_may_have_other_parameters_with_defaults() -> None:
    """Only the parameter that takes the input has to be JSON."""

    class Client: ...

    def function(payload: Point, client: Client = Client()) -> None: ...  # noqa: B008

    assert Handler(function, whole=True).schema()["title"] == "function"


def test_decorated_functions() -> None:
    """A decorator that uses functools.wraps keeps name and signature; one that does not takes any arguments."""

    def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return inner

    handler = Handler(wrapped(send_email))
    assert handler.type == "send_email"
    with pytest.raises(InvalidInput, match="'to' is missing"):
        handler.bind()


# --- schema


def test_schema_of_the_arguments() -> None:
    """JSON Schema names the type, what is required, defaults, descriptions and definitions."""

    def function(
        to: Annotated[str, Field(description="address")],
        n: int = 5,
        colour: Colour = Colour.RED,
        at: Address | None = None,
        odd: Any = object(),  # noqa: B008
        shape: Shape | None = None,
    ) -> None: ...

    schema = Handler(function).schema()
    assert (schema["title"], schema["type"], schema["required"]) == ("function", "object", ["to"])
    assert schema["additionalProperties"] is False
    assert schema["properties"]["to"]["description"] == "address"
    assert schema["properties"]["n"]["default"] == 5
    assert schema["properties"]["colour"]["default"] == "red"
    assert "default" not in schema["properties"]["odd"]
    assert "zip_code" in schema["$defs"]["Address"]["properties"]
    json.dumps(schema)


def test_schema_of_a_whole_input() -> None:
    """A whole input has the schema of its annotation, or any."""

    def point(payload: Point) -> None: ...
    def anything(payload: Any) -> None: ...

    assert Handler(point, whole=True).schema()["properties"].keys() == {"x", "y"}
    assert Handler(anything, whole=True).schema() == {"title": "anything"}


# --- options


def test_options_are_checked_and_brought_to_one_form() -> None:
    """Durations become seconds, presets policies, capabilities a sorted tuple; the rest is UNSET."""
    options = Options.of(
        timeout="5m", delay=timedelta(minutes=1), retry="d", requires={"gpu", "eu"}, tags={"team": "a"}, priority=0
    )
    assert options.given() == {
        "timeout": 300.0,
        "priority": "medium",
        "retry": PRESETS["d"],
        "requires": ("eu", "gpu"),
        "tags": {"team": "a"},
        "delay": 60.0,
    }
    assert Options.of() == NO_OPTIONS
    assert Options.of(timeout=None, key=None).given() == {"timeout": None, "key": None}
    assert Options.of(rate_limit=0, concurrency=3).rate_limit == 0.0
    assert Options.of(retry=RetryPolicy(initial=1)).retry == RetryPolicy(initial=1)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"max_retries": -1}, InvalidInput, "max_retries: -1"),
        ({"max_retries": True}, InvalidInput, "max_retries"),
        ({"timeout": 0}, InvalidInput, "timeout: 0"),
        ({"timeout": 400 * 86_400}, InvalidInput, "more than a year"),
        ({"timeout": "soon"}, InvalidInput, "timeout: 'soon'"),
        ({"delay": -1}, InvalidInput, "delay"),
        ({"delay": float("nan")}, InvalidInput, "delay"),
        ({"priority": "urgent"}, InvalidInput, "no priority 'urgent'"),
        ({"retry": "z"}, ConfigError, "no retry preset"),
        ({"retry": 5}, ConfigError, "RetryPolicy"),
        ({"requires": "gpu"}, InvalidInput, "list of capabilities"),
        ({"requires": ["g p u"]}, InvalidInput, "capability"),
        ({"tags": ["a"]}, InvalidInput, "mapping"),
        ({"tags": {"a": 1}}, InvalidInput, "tag value"),
        ({"tags": {str(n): "" for n in range(51)}}, InvalidInput, "51 tags"),
        ({"key": ""}, InvalidInput, "key"),
        ({"key_window": None}, InvalidInput, "key_window"),
        ({"run_after": datetime(2030, 1, 1)}, InvalidInput, "time zone"),  # noqa: DTZ001 - naive on purpose
        ({"run_after": NOW, "delay": 5}, InvalidInput, "both"),
        ({"concurrency": 0}, ConfigError, "concurrency"),
        ({"rate_limit": -1}, ConfigError, "rate_limit"),
        ({"rate_limit": float("inf")}, ConfigError, "rate_limit"),
        ({"isolation": "fibre"}, ConfigError, "isolation"),
        ({"max_retry": 1}, ConfigError, "did you mean 'max_retries'"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], error: type[Exception], says: str) -> None:
    """Each option says what it may be: InvalidInput for what concerns a task, ConfigError for a type."""
    with pytest.raises(error, match=says):
        Options.of(**given)


def test_merged_options() -> None:
    """What was said later wins, None included, and one way to say when replaces the other."""
    of_type = Options.of(timeout=5, max_retries=1, delay=60)
    assert of_type.merged(NO_OPTIONS) is of_type
    assert of_type.merged(Options.of(timeout=None)).given() == {"timeout": None, "max_retries": 1, "delay": 60.0}
    merged = of_type.merged(Options.of(run_after=NOW))
    assert (merged.run_after, merged.delay) == (NOW, UNSET)
    assert merged.merged(Options.of(delay=1)).given() == {"timeout": 5.0, "max_retries": 1, "delay": 1.0}


# --- registry


def test_registry_finds_handlers_by_type() -> None:
    """What was added is found, listed in order and iterated."""
    registry = Registry()
    first, second = registry.add(Handler(send_email)), registry.add(Handler(fetch))
    assert (registry.types, list(registry), len(registry)) == (("send_email", "fetch"), [first, second], 2)
    assert registry.get("fetch") is second
    assert registry.find("nothing") is None
    assert "fetch" in registry


def test_unknown_type_names_what_is_close() -> None:
    """UnknownType suggests similar names, or lists what there is."""
    registry = Registry()
    with pytest.raises(UnknownType, match="none yet"):
        registry.get("x")
    registry.add(Handler(send_email))
    with pytest.raises(UnknownType, match=r"did you mean send_email\?"):
        registry.get("send_emial")
    with pytest.raises(UnknownType, match="registered: send_email"):
        registry.get("crawl")


def test_two_functions_for_one_type_are_refused() -> None:
    """Another function under the same name is a ConfigError that names both places."""
    registry = Registry()
    registry.add(Handler(send_email))
    with pytest.raises(ConfigError) as caught:
        registry.add(Handler(fetch, "send_email"))
    assert str(caught.value).count(Path(__file__).name) == 2
    assert "fetch" in str(caught.value)
    one, two = Mailer(), Mailer()
    registry.add(Handler(one.send))
    registry.add(Handler(one.send))
    with pytest.raises(ConfigError):
        registry.add(Handler(two.send))


def test_the_same_function_may_be_registered_again() -> None:
    """A module that is loaded twice (reload, or __main__ and import) replaces its own handlers."""
    registry = Registry()
    code = compile("def task(x: int) -> int: return x", "app.py", "exec")
    for name in ("__main__", "app"):
        names: dict[str, Any] = {"__name__": name}
        exec(code, names)
        latest = registry.add(Handler(names["task"]))
        assert registry.get("task") is latest
    names = {"__name__": "app"}
    exec(compile("\n\ndef task(x: int) -> int: return -x", "app.py", "exec"), names)
    with pytest.raises(ConfigError, match="two handlers"):
        registry.add(Handler(names["task"]))


def test_a_prompt_may_define_a_function_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a notebook the last definition of a function wins."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    registry = Registry()
    for cell in ("cell-1", "cell-2"):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile("def task() -> None: ...", cell, "exec"), names)
        registry.add(Handler(names["task"]))
    assert "cell-2" in registry.get("task").place

"""What a function takes and gives, as JSON. `handlers` builds one Signature for each handler, on its first use.

Arguments are one JSON object of keywords, checked by one Pydantic validator for the whole call, which also reads the
object back before a run. It is a typed dictionary and not Pydantic's own schema for calls, because that one fills in
defaults: a default that is not stored can still be changed for tasks that wait. Fields are stored under their names and
accepted under their aliases too, so that what was dumped can always be read back.
"""

import inspect
import reprlib
import types
from collections.abc import Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from typing import (
    Annotated,
    Any,
    Literal,
    NoReturn,
    ParamSpecArgs,
    ParamSpecKwargs,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from pydantic import ConfigDict, GetCoreSchemaHandler, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, SchemaError, core_schema, to_jsonable_python

from qo.errors import ConfigError, InvalidInput
from qo.values import decode_value, encode_value

_CONFIG = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
_CORE_CONFIG = core_schema.CoreConfig(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
# Pydantic writes 255 levels of JSON but reads only 200: what has that many brackets is read back before it is stored.
_DEEP = 200
_ANY = (Any, object, Parameter.empty, NoReturn)
_NO_ARGUMENTS = msgspec.Raw(b"{}")

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100


class UnusableOutput(InvalidInput):
    """What a handler returned cannot be stored as JSON; running it again will not help."""


class OutputTooLarge(UnusableOutput):
    """What the handler returned is larger than the limit; settled with the reason `output_too_large`."""


class Signature:
    """The parameters of one function, by name; `hints` are its annotations as types."""

    def __init__(self, type: str, parameters: Mapping[str, Parameter], hints: Mapping[str, Any]) -> None:
        self.type = type
        self.parameters = parameters
        shown = [one.replace(annotation=hints.get(one.name, one.annotation)) for one in parameters.values()]
        returned = hints.get("return", Parameter.empty)
        self.text = _short(type + str(inspect.Signature(shown, return_annotation=returned)), 500)
        positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        self._positional = [one for one in shown if one.kind in positional]
        self._names = [one.name for one in self._positional]
        self._rest = next((one.name for one in shown if one.kind is Parameter.VAR_POSITIONAL), None)
        self._by_keyword = self._rest is None and all(one.kind is not Parameter.POSITIONAL_ONLY for one in shown)
        self._shown = shown
        self.output = Value(type, returned, "the return value")

    @cached_property
    def adapter(self) -> TypeAdapter[Any]:
        """Checks and dumps the keywords; made late, because a whole input has no use for it."""
        fields = _Fields()
        for one in self._shown:
            fields.add(one, f"{self.type}: parameter {one.name!r}")
        return _adapter(Annotated[Any, fields], f"{self.type}: its parameters")

    def bind(self, args: tuple[object, ...], given: dict[str, Any], limit: int | None) -> msgspec.Raw:
        """The JSON object of keywords for this call, or InvalidInput that shows the signature."""
        adapter = self.adapter
        if args:
            given = self._named(args, given)
        try:
            plain = _dump(adapter, adapter.validator.validate_python(given, by_alias=True, by_name=True))
        except Exception as error:
            raise self._refused(error) from error
        raw = encode_value(plain, limit=limit, what=f"the input of {self.type}")
        if _may_be_deep(raw):
            self._read(raw)
        return raw

    def arguments(self, raw: msgspec.Raw) -> tuple[Sequence[Any], dict[str, Any]]:
        """The stored input as Python objects, positional ones first, or InvalidInput."""
        # Submitted by name with no input, from where nobody knows that this handler takes keywords: no arguments.
        values = self._read(_NO_ARGUMENTS if bytes(raw) == b"null" else raw)
        if self._by_keyword:
            return (), values
        rest = values.pop(self._rest, ()) if self._rest else ()
        # Names before *rest can only be given by position once there is a rest.
        first = [one for one in self._positional if rest or one.kind is Parameter.POSITIONAL_ONLY]
        return (*(values.pop(one.name, one.default) for one in first), *rest), values

    def whole(self) -> "Value":
        """The one parameter that takes the input whole."""
        one = self._shown[0]
        return Value(self.type, one.annotation, f"its input {one.name!r}")

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the keywords, defaults included."""
        schema = _json_schema(self.adapter)
        for name, shape in cast("dict[str, dict[str, Any]]", schema.get("properties", {})).items():
            one = self.parameters.get(name)
            if one and one.default is not Parameter.empty:
                try:
                    shape["default"] = decode_value(encode_value(_plain(one.default)))
                except (InvalidInput, TypeError, ValueError):
                    continue  # A default JSON cannot show is still a default: the name stays optional.
        return schema | {"title": self.type}

    def _named(self, args: tuple[object, ...], given: dict[str, Any]) -> dict[str, Any]:
        named: dict[str, Any] = dict(zip(self._names, args, strict=False))
        if rest := args[len(self._names) :]:
            if self._rest is None:
                count = len(self._names)
                self._fail(f"takes {count} positional argument{'s'[: count != 1]}, {len(args)} were given")
            named[self._rest] = rest
        if twice := named.keys() & given.keys():
            self._fail(f"two values for {', '.join(map(repr, sorted(twice)))}")
        return named | given

    def _read(self, raw: msgspec.Raw) -> dict[str, Any]:
        adapter = self.adapter
        try:
            return _load(adapter, raw)
        except Exception as error:
            raise self._refused(error) from error

    def _fail(self, problem: str) -> NoReturn:
        raise InvalidInput(f"{self.type}: {problem}; it is {self.text}")

    def _refused(self, error: Exception) -> InvalidInput:
        return InvalidInput(f"{self.type}: {explain(error)}; it is {self.text}")


class Value:
    """One value by its annotation: a return value, or an input that is taken whole. Without one, any JSON or bytes."""

    def __init__(self, type: str, annotation: Any, what: str) -> None:
        self.where = f"{type}: {what}"
        self.text = inspect.formatannotation(annotation)
        self.adapter = None if _is_any(annotation) else _adapter(_known(annotation, self.where), self.where)

    def bind(self, value: object, limit: int | None) -> msgspec.Raw:
        """Its JSON, checked against the annotation, or InvalidInput."""
        if self.adapter is None:
            return self.encode(value, limit)
        try:
            value = self.adapter.validator.validate_python(value, by_alias=True, by_name=True)
        except Exception as error:
            raise self._refused(error) from error
        raw = self.encode(value, limit)
        if _may_be_deep(raw):
            self.decode(raw)
        return raw

    def encode(self, value: object, limit: int | None = None) -> msgspec.Raw:
        """Its JSON, unchecked: a value of another kind than the annotation is encoded by its own."""
        try:
            plain = _plain(value) if self.adapter is None else _dump(self.adapter, value)
        except Exception as error:
            raise InvalidInput(f"{self.where} cannot be stored as JSON: {explain(error)}") from error
        return encode_value(plain, limit=limit, what=self.where)

    def decode(self, raw: msgspec.Raw) -> Any:
        """The value behind `encode`, or InvalidInput."""
        try:
            return decode_value(raw) if self.adapter is None else _load(self.adapter, raw)
        except Exception as error:
            raise self._refused(error) from error

    def schema(self) -> dict[str, Any]:
        """JSON Schema; empty for any value."""
        return {} if self.adapter is None else _json_schema(self.adapter)

    def _refused(self, error: Exception) -> InvalidInput:
        return InvalidInput(f"{self.where}: {explain(error)}; it must be {self.text}")


class _Fields:
    """The parameters as the fields of one typed dictionary, in the form Pydantic asks for."""

    def __init__(self) -> None:
        self.named: dict[str, tuple[Any, bool]] = {}
        self.extra: Any = None

    def add(self, one: Parameter, where: str) -> None:
        if isinstance(one.default, FieldInfo):
            raise ConfigError(f"{where}: the function itself would get the Field; write Annotated[type, Field(…)]")
        if one.kind is Parameter.VAR_KEYWORD and get_origin(one.annotation) is Unpack:
            (keywords,) = get_args(one.annotation)
            for name, hint in get_type_hints(keywords, include_extras=True).items():
                self.named[name] = _known(hint, where), name in keywords.__required_keys__
            return
        hint = Any if _is_any(one.annotation) else _known(one.annotation, where)
        if one.kind is Parameter.VAR_KEYWORD:
            self.extra = hint
        elif one.kind is Parameter.VAR_POSITIONAL:
            self.named[one.name] = list[hint], False
        else:
            self.named[one.name] = hint, one.default is Parameter.empty

    def __get_pydantic_core_schema__(self, _source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(hint), required=required)
            for name, (hint, required) in self.named.items()
        }
        # A typed dictionary does not inherit the configuration of its adapter.
        if self.extra is None:
            return core_schema.typed_dict_schema(fields, extra_behavior="forbid", config=_CORE_CONFIG)
        extra = handler.generate_schema(self.extra)
        return core_schema.typed_dict_schema(fields, extra_behavior="allow", extras_schema=extra, config=_CORE_CONFIG)


class _StructSchema:
    """Teaches Pydantic msgspec's structs, which it does not know."""

    @staticmethod
    def __get_pydantic_core_schema__(source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        def convert(value: object) -> object:
            try:
                return value if isinstance(value, source) else msgspec.convert(value, source)
            except msgspec.ValidationError as error:
                raise ValueError(str(error)) from error

        to_json = core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins, when_used="json")
        return core_schema.no_info_plain_validator_function(convert, serialization=to_json)

    @staticmethod
    def __get_pydantic_json_schema__(_schema: CoreSchema, _handler: object) -> dict[str, Any]:
        return {"type": "object"}


def explain(error: Exception) -> str:
    """What was wrong, parameter by parameter."""
    if isinstance(error, UnicodeDecodeError):
        return f"{error}; bytes in a model or dataclass need ser_json_bytes and val_json_bytes='base64' in its config"
    if not isinstance(error, ValidationError):
        return _short(str(error) or type(error).__name__, 500)
    problems: list[str] = []
    for item in error.errors(include_url=False, include_context=False)[:5]:
        path = ".".join(map(str, item["loc"]))
        match item["type"]:
            case "missing":
                problems.append(f"{path!r} is missing")
            case "extra_forbidden":
                problems.append(f"there is no {path!r}")
            case "dict_type" if not path:
                problems.append(f"its input is an object of keywords, not {_repr.repr(item['input'])}")
            case _:
                message = f"{item['msg']}, not {_repr.repr(item['input'])}"
                problems.append(f"{path!r}: {message}" if path else message)
    if error.error_count() > len(problems):
        problems.append(f"and {error.error_count() - len(problems)} more")
    return "; ".join(problems)


def _may_be_deep(raw: msgspec.Raw) -> bool:
    data = bytes(raw)
    return data.count(b"[") + data.count(b"{") >= _DEEP


def _is_any(annotation: Any) -> bool:
    return any(annotation is one for one in _ANY) or isinstance(annotation, ParamSpecArgs | ParamSpecKwargs)


def _known(annotation: Any, where: str) -> Any:
    """The annotation with structs explained to Pydantic, and without what would be stored wrong in silence."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        if issubclass(annotation, SecretStr | SecretBytes):
            raise ConfigError(f"{where} is a {annotation.__name__}, which is stored as stars; pass a reference to it")
        return (
            Annotated[annotation, _StructSchema] if issubclass(annotation, msgspec.Struct) else cast("Any", annotation)
        )
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is None or origin is Literal:
        return annotation
    if origin is Annotated:
        return Annotated[_known(args[0], where), *args[1:]]
    known = tuple(_known(one, where) for one in args)
    if known == args:
        return annotation
    return Union[known] if origin in (Union, types.UnionType) else origin[known]  # noqa: UP007 - made of a tuple


def _adapter(annotation: Any, where: str) -> TypeAdapter[Any]:
    try:
        try:
            adapter = TypeAdapter[Any](annotation, config=_CONFIG)
        except PydanticUserError as error:
            # A model or dataclass keeps its own configuration; Pydantic does not let an adapter have another.
            if error.code != "type-adapter-config-unused":
                raise
            adapter = TypeAdapter[Any](annotation)
        if not adapter.pydantic_complete:
            adapter.rebuild(raise_errors=True)
        return adapter
    except (PydanticUserError, SchemaError, NameError) as error:
        hint = "use JSON types, Pydantic models, dataclasses and the like"
        raise ConfigError(f"{where}: {str(error).splitlines()[0]}; {hint}") from error


def _dump(adapter: TypeAdapter[Any], value: object) -> Any:
    if isinstance(value, bytes):
        return value
    return adapter.serializer.to_python(value, mode="json", round_trip=True, warnings=False, fallback=_builtins)


def _plain(value: object) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return cast("object", value)
    return to_jsonable_python(
        value, by_alias=False, round_trip=True, bytes_mode="base64", inf_nan_mode="constants", fallback=_builtins
    )


def _load(adapter: TypeAdapter[Any], raw: msgspec.Raw) -> Any:
    data = bytes(raw)
    # What encode_value marked: bytes, or an object that looks like them.
    if data.startswith(b'{"$'):
        return adapter.validator.validate_python(decode_value(raw), by_alias=True, by_name=True)
    return adapter.validator.validate_json(data, by_alias=True, by_name=True)


def _json_schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    try:
        return adapter.json_schema(by_alias=False)
    except PydanticUserError:
        return {"type": "object"}  # Checked by code that no schema can show.


def _builtins(value: object) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise TypeError(f"a {type(value).__name__} is no JSON; convert it first")


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"

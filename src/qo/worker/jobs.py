"""What a child process is asked to do and what came of it. Made by the runner, carried by `processes`."""

import functools
import pickle
import signal
import sys
from types import ModuleType

import msgspec

from qo.errors import ConfigError
from qo.values import clean_text
from qo.worker.child import MAIN, plain
from qo.worker.children import main_module

_AT_TOP = "move it to the top level of a module that can be imported"


def refer(function: object) -> str:
    """The name a child process finds it by, or ConfigError saying why it could not.

    The child's entry gets what the name means there: for a decorated function, what the decorator returned, which must
    have the function as `__wrapped__`.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise ConfigError(f"{function!r} has no name that a child process could find it by; use a plain function")
    if "<lambda>" in name:
        raise ConfigError(f"a lambda in {module} cannot run in a child process: make it a function and {_AT_TOP}")
    if "<locals>" in name:
        raise ConfigError(f"{module}.{name} is defined inside a function, where no child process finds it: {_AT_TOP}")
    if module in (MAIN, "__mp_main__"):
        module = MAIN
        if not main_module():
            raise ConfigError(
                f"{name} is defined in a main module that a child process cannot import (an interactive session, "
                f"python -c, or a __main__.py): {_AT_TOP}"
            )
    found = _found(sys.modules.get(module), name)
    if found is None:
        raise ConfigError(f"there is no {name} in the module {module}, so no child process can find it: {_AT_TOP}")
    if found != function and getattr(found, "__wrapped__", None) != function:
        raise ConfigError(
            f"{module}.{name} is now something else than {function!r}, and a child process would run that"
        )
    return f"{module}:{name}"


def _found(module: ModuleType | None, name: str) -> object | None:
    try:
        return functools.reduce(getattr, name.split("."), module)
    except AttributeError:
        return None


PLAIN = refer(plain)


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One call in a child: `entry(function, raw_input, context, channel)`. Both names are made by `refer`."""

    function: str
    raw_input: bytes = b""
    context: bytes = b""
    timeout: float | None = None
    """Seconds from when a child gets the job; the time it waits for a child does not count."""
    entry: str = PLAIN


class Answered(msgspec.Struct, frozen=True):
    """The entry returned."""

    raw: bytes


class EntryRaised(msgspec.Struct, frozen=True):
    """The entry raised; the child is fine."""

    type: str
    message: str
    traceback: str


class TimedOut(msgspec.Struct, frozen=True):
    """It took longer than its timeout and was killed."""

    seconds: float


class Crashed(msgspec.Struct, frozen=True):
    """Its process died, or none could be started. The message says how, in words."""

    message: str
    traceback: str | None = None


class Stopped(msgspec.Struct, frozen=True):
    """It was killed on request or by `close`, or (`began` is false) never got a child."""

    began: bool


Reply = Answered | EntryRaised | TimedOut | Crashed | Stopped


def raised(body: bytes) -> EntryRaised:
    """From the child's own description of an exception."""
    name, message, trace = pickle.loads(body)
    return EntryRaised(name, clean_text(message), clean_text(trace))


def in_words(code: int) -> str:
    """What an exit code means."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")

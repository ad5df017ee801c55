"""From `MODULE:QUEUE` to the queue a worker shall serve."""

import importlib
import os
import sys
import traceback
from types import ModuleType

from qo.errors import ConfigError, QoError
from qo.queue import Queue

EXAMPLE = "qo worker app.tasks:q"


def find_queue(target: str | None, *, url: str | None = None, name: str | None = None) -> Queue:
    """The queue in that module, or ConfigError saying what to write. `url` is for queues that do not name their own."""
    if not target:
        raise ConfigError(f"which queue? Write {EXAMPLE}: the module with your tasks, and the name of the queue in it")
    if url is not None:
        os.environ["QO_URL"] = url
    module_name, _, attribute = target.partition(":")
    module = _load(module_name)
    queue = _named(module, attribute) if attribute else _only(module, name)
    if name is not None and queue.name != name:
        raise ConfigError(f"{target} is the queue {queue.name!r}, not {name!r}")
    if url is not None and queue.url != url:
        raise ConfigError(f"{target} names its own store; leave --url out, or make it qo.Queue() without one")
    if queue.url.startswith("memory:"):
        raise ConfigError(f"{target} lives in memory://, which no other process can submit to; give it another URL")
    return queue


def _load(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name:
        guess = name.removesuffix(".py").strip("./").replace("/", ".")
        raise ConfigError(f"{name!r} is a file; write the module: qo worker {guess}:q")
    here = os.getcwd()  # noqa: PTH109 - as it stands in sys.path
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigError(
                f"there is no module {error.name!r}; start the worker where `import {name}` works"
            ) from error
        raise ConfigError(_why(name, error)) from error
    except QoError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(_why(name, error)) from error


def _why(name: str, error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if len(frames) > 1 else ""
    return f"{name} cannot be imported: {type(error).__name__}: {error}{where}"


def _queues(module: ModuleType) -> dict[str, Queue]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Queue)}


def _named(module: ModuleType, attribute: str) -> Queue:
    value: object = module
    for part in attribute.split("."):
        value = getattr(value, part, None)
    if isinstance(value, Queue):
        return value
    there = ", ".join(_queues(module)) or "none"
    what = f"a {type(value).__name__}, not a qo.Queue" if value is not None else "not there"
    raise ConfigError(f"{module.__name__}:{attribute} is {what}; queues in {module.__name__}: {there}")


def _only(module: ModuleType, name: str | None) -> Queue:
    found = {key: queue for key, queue in _queues(module).items() if name is None or queue.name == name}
    different = {id(queue) for queue in found.values()}
    if len(different) == 1:
        return next(iter(found.values()))
    if not found:
        wanted = f" named {name!r}" if name else ""
        raise ConfigError(f"there is no qo.Queue{wanted} in {module.__name__}; make one: q = qo.Queue()")
    raise ConfigError(f"{module.__name__} has several queues; choose one: {module.__name__}:{' or :'.join(found)}")

"""From a URL to a store. Engines are imported only when asked for, so that a missing extra hurts nobody else."""

from collections.abc import Callable
from importlib import import_module
from urllib.parse import parse_qsl, unquote, urlsplit

from qo.clock import SYSTEM, Clock
from qo.errors import ConfigError
from qo.stores.memory import MemoryStore, SharedMemory
from qo.stores.protocol import Store
from qo.stores.sqlite.store import SqliteStore

StoreFactory = Callable[[], Store]
"""Makes a fresh, unopened store on the same place: one for each event loop."""

_named_memories: dict[str, SharedMemory] = {}

# Scheme: module with a `store_factory(url, clock)`, and the extra that installs what it needs.
_ELSEWHERE: dict[str, tuple[str, str]] = {}


def store_factory(url: str, clock: Clock = SYSTEM) -> StoreFactory:
    """What opens stores at this URL, or ConfigError saying what is wrong with it."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigError(f"{url!r} is no store URL; try sqlite:///qo.db or memory://")
    match scheme:
        case "memory":
            return _memory(url, clock)
        case "sqlite":
            return _sqlite(url, clock)
        case _ if scheme in _ELSEWHERE:
            module, extra = _ELSEWHERE[scheme]
            try:
                return import_module(module).store_factory(url, clock)
            except ImportError as error:
                raise ConfigError(f"{scheme}:// needs more packages: pip install 'qo-queue[{extra}]'") from error
        case _:
            known = ", ".join(f"{name}://" for name in ["memory", "sqlite", *_ELSEWHERE])
            raise ConfigError(f"no store for {scheme}:// URLs; there are {known}")


def _memory(url: str, clock: Clock) -> StoreFactory:
    name = url.removeprefix("memory://")
    shared = _named_memories.setdefault(name, SharedMemory()) if name else SharedMemory()
    return lambda: MemoryStore(shared, clock)


def _sqlite(url: str, clock: Clock) -> StoreFactory:
    parts = urlsplit(url)
    if "#" in url:
        raise ConfigError(f"{url!r}: a # in a file name is written as %23 in a URL")
    if parts.netloc or parts.path.endswith("/") or not parts.path:
        raise ConfigError(f"{url!r} names no file; write sqlite:///relative.db or sqlite:////absolute/file.db")
    path = unquote(parts.path[1:])
    if path == ":memory:":
        raise ConfigError("a queue in SQLite's memory would be seen by one connection only; use memory://")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "NORMAL").upper()
    if synchronous not in ("NORMAL", "FULL"):
        raise ConfigError(f"synchronous is NORMAL or FULL, not {synchronous!r}")
    if options:
        raise ConfigError(f"unknown options in {url!r}: {', '.join(options)}; there is synchronous=NORMAL|FULL")
    return lambda: SqliteStore(path, synchronous=synchronous, clock=clock)

"""From a URL to a store: every form of URL, every option, every error message."""

from pathlib import Path

import pytest

from qo.clock import ManualClock
from qo.errors import ConfigError
from qo.stores import open as open_module
from qo.stores.memory import MemoryStore
from qo.stores.open import store_factory
from qo.stores.sqlite.store import SqliteStore


def sqlite(url: str) -> SqliteStore:
    store = store_factory(url)()
    assert isinstance(store, SqliteStore)
    return store


def memory(url: str) -> MemoryStore:
    store = store_factory(url)()
    assert isinstance(store, MemoryStore)
    return store


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///tasks.db", "tasks.db"),
        ("sqlite:///data/tasks.db", "data/tasks.db"),
        ("sqlite:///../tasks.db", "../tasks.db"),
        ("sqlite:///my%20tasks.db", "my tasks.db"),
        ("sqlite:///what%3F%23%25.db", "what?#%.db"),
        ("sqlite:///%C3%A4.db", "ä.db"),
        ("sqlite:///ä.db", "ä.db"),
        ("sqlite:///a+b.db", "a+b.db"),
        ("sqlite:///Case.DB", "Case.DB"),
        ("sqlite:///no-suffix", "no-suffix"),
        ("sqlite:///a.db?synchronous=FULL", "a.db"),
    ],
)
def test_relative_paths(url: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three slashes: a path from the working folder, with percent escapes undone."""
    monkeypatch.chdir(tmp_path)
    assert sqlite(url).path == tmp_path / path


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/qo.db", "/var/lib/qo.db"),
        ("sqlite:////var/my%20lib/qo.db?synchronous=normal", "/var/my lib/qo.db"),
    ],
)
def test_absolute_paths(url: str, path: str) -> None:
    """Four slashes: an absolute path."""
    assert sqlite(url).path == Path(path)


def test_path_is_fixed_when_the_store_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later change of the working folder does not move the file."""
    monkeypatch.chdir(tmp_path)
    store = sqlite("sqlite:///tasks.db")
    monkeypatch.chdir("/")
    assert store.path == tmp_path / "tasks.db"


@pytest.mark.parametrize(
    ("query", "synchronous"),
    [("", "NORMAL"), ("?synchronous=FULL", "FULL"), ("?synchronous=full", "FULL"), ("?synchronous=NORMAL", "NORMAL")],
)
def test_synchronous(query: str, synchronous: str) -> None:
    """NORMAL unless said; in any case of letters."""
    assert sqlite(f"sqlite:///tasks.db{query}")._synchronous == synchronous


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "'' is no store URL; try sqlite:///qo.db or memory://"),
        ("tasks.db", "'tasks.db' is no store URL; try sqlite:///qo.db or memory://"),
        ("sqlite:tasks.db", "'sqlite:tasks.db' is no store URL; try sqlite:///qo.db or memory://"),
        ("sqlite:/tasks.db", "'sqlite:/tasks.db' is no store URL; try sqlite:///qo.db or memory://"),
        ("mysql://host/db", "no store for mysql:// URLs; there are memory://, sqlite://"),
        ("://x", "no store for :// URLs; there are memory://, sqlite://"),
        ("sqlite://", "names no file; write sqlite:///relative.db or sqlite:////absolute/file.db"),
        ("sqlite:///", "names no file; write sqlite:///relative.db or sqlite:////absolute/file.db"),
        ("sqlite://tasks.db", "names no file; write sqlite:///relative.db or sqlite:////absolute/file.db"),
        ("sqlite://host/tasks.db", "names no file; write sqlite:///relative.db or sqlite:////absolute/file.db"),
        ("sqlite:///:memory:", "a queue in SQLite's memory would be seen by one connection only; use memory://"),
        ("sqlite:///a.db?synchronous=OFF", "synchronous is NORMAL or FULL, not 'OFF'"),
        ("sqlite:///a.db?timeout=3", "unknown options in 'sqlite:///a.db?timeout=3': timeout; there is synchronous="),
    ],
)
def test_wrong_urls(url: str, message: str) -> None:
    """Whatever is wrong is a ConfigError that says what, and what to write instead."""
    with pytest.raises(ConfigError) as caught:
        store_factory(url)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///a#b.db",  # the part after # is dropped: file a
        "sqlite:///a.db?synchronous=",  # blank values are dropped
        "sqlite:///a.db?synchronous",
        "sqlite:////",  # the root folder
        "sqlite:///folder/",  # the file `folder`
    ],
)
def test_urls_that_should_be_refused(url: str) -> None:
    """What cannot be meant is refused instead of guessed."""
    with pytest.raises(ConfigError):
        store_factory(url)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose packages are not installed says which extra brings them."""
    monkeypatch.setitem(open_module._ELSEWHERE, "redis", ("qo_no_such_module", "redis"))
    with pytest.raises(ConfigError, match=r"redis:// needs more packages: pip install 'qo-queue\[redis\]'") as caught:
        store_factory("redis://localhost")
    assert isinstance(caught.value.__cause__, ImportError)


def test_named_memory_is_shared() -> None:
    """memory://name is one queue for all who name it; without a name each factory has its own."""
    assert memory("memory://one")._shared is memory("memory://one")._shared
    assert memory("memory://one")._shared is not memory("memory://two")._shared
    assert memory("memory://")._shared is not memory("memory://")._shared
    factory = store_factory("memory://")
    first, second = factory(), factory()
    assert isinstance(first, MemoryStore) and isinstance(second, MemoryStore)
    assert first is not second and first._shared is second._shared


def test_clock_is_handed_on(tmp_path: Path) -> None:
    """The store tells the time of the clock it was given."""
    clock = ManualClock()
    for url in ("memory://", f"sqlite:///{tmp_path}/qo.db"):
        assert store_factory(url, clock)().now() == clock.now()


def test_factory_makes_a_fresh_store_each_time(tmp_path: Path) -> None:
    """Each event loop gets a store of its own on the same place."""
    factory = store_factory(f"sqlite:///{tmp_path}/qo.db")
    first, second = factory(), factory()
    assert first is not second
    assert isinstance(first, SqliteStore) and isinstance(second, SqliteStore) and first.path == second.path

"""Which functions a child process can find, and what is said about those it cannot."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker import process_jobs as jobs

from qo.errors import ConfigError
from qo.worker.jobs import Answered, EntryRaised, Job, refer
from qo.worker.processes import ProcessPool


@pytest.fixture
async def pool() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(1)
    await pool.start()
    yield pool
    await pool.close(0)


async def test_function_that_is_gone_in_the_child(pool: ProcessPool) -> None:
    """A name the child cannot resolve is an error of that job only."""
    reply = await pool.run(Job(function="tests.worker.process_jobs:nobody"))
    assert isinstance(reply, EntryRaised) and reply.type == "AttributeError"
    reply = await pool.run(Job(function="no_such_module:nobody"))
    assert isinstance(reply, EntryRaised) and reply.type == "ModuleNotFoundError"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda raw: raw, "a lambda in"),
        (3, "has no name"),
        (jobs.Group().method, "something else"),
        (jobs.old_replaced, "something else"),
    ],
)
def test_function_no_child_finds(function: Any, words: str) -> None:
    """What a child could not find is refused in the worker, with the reason."""
    with pytest.raises(ConfigError, match=words):
        refer(function)


def test_inner_function_is_refused() -> None:
    """A function inside a function has no name a child could use."""

    def inner(raw: bytes) -> bytes:
        return raw

    with pytest.raises(ConfigError, match="defined inside a function"):
        refer(inner)


async def test_static_method_and_decorated_function(pool: ProcessPool) -> None:
    """The child finds nested names, and gets what a decorator made of a function."""
    assert await pool.run(Job(function=refer(jobs.Group.inside), raw_input=b"x")) == Answered(b"inside x")
    reference = refer(jobs.decorated_function)
    assert await pool.run(Job(function=reference, raw_input=b"x")) == Answered(b"decorated x")


def run_script(path: Path, source: str, *how: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    path.write_text(source)
    command = [sys.executable, *(how or (str(path),))]
    return subprocess.run(command, cwd=folder or path.parent, capture_output=True, text=True, timeout=60)


def test_functions_of_the_main_module(tmp_path: Path) -> None:
    """Handlers in the script that starts the worker work, run as a file or with -m."""
    guarded = jobs.SCRIPT + 'if __name__ == "__main__":\n    asyncio.run(main())\n'
    for how in ((), ("-m", "script")):
        done = run_script(tmp_path / "script.py", guarded, *how)
        assert (done.stdout, done.stderr) == ("Answered(raw=b'HELLO')\n", "")


def test_main_module_without_a_guard(tmp_path: Path) -> None:
    """A script that starts its worker on import is told to guard it, and starts no worker in the child."""
    done = run_script(tmp_path / "script.py", jobs.SCRIPT + "asyncio.run(main())\n")
    assert "EntryRaised(type='ConfigError'" in done.stdout and "__main__" in done.stdout


def test_main_module_no_child_can_import(tmp_path: Path) -> None:
    """Functions of `python -c`, or of a package's __main__.py, are refused with the reason."""
    source = jobs.SCRIPT + "asyncio.run(main())"
    (tmp_path / "app").mkdir()
    for how in (("-c", source), ("-m", "app")):
        done = run_script(tmp_path / "app" / "__main__.py", source, *how, folder=tmp_path)
        assert "ConfigError: shout is defined in a main module" in done.stderr

"""Running `qo`, in this process and as others, and a small application for its workers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from click.testing import CliRunner, Result

import qo as library
from qo.cli.main import main

URL = "sqlite:///qo.db"

APP = """
import asyncio
from pathlib import Path

import qo

q = qo.Queue(retry=qo.RetryPolicy(initial=0.05))


@q.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@q.task(max_retries=0)
def broken(text: str) -> None:
    raise ValueError(text)


@q.task
async def gate(name: str) -> str:
    Path(f"{name}.started").touch()
    while not Path(f"{name}.go").exists():
        await asyncio.sleep(0.01)
    return name
"""


def qo(*arguments: str, input: str | bytes | None = None) -> Result:
    """Run a command here."""
    return CliRunner().invoke(main, arguments, input=input, prog_name="qo")


def ok(*arguments: str, input: str | bytes | None = None) -> str:
    """Its stdout; it must succeed."""
    result = qo(*arguments, input=input)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return result.stdout


def rows(*arguments: str) -> list[Any]:
    """The JSON lines it prints."""
    return [json.loads(line) for line in ok(*arguments, "--json").splitlines()]


def refused(code: int, *arguments: str, input: str | None = None) -> str:
    """Its one line on stderr; it must leave with that code and print nothing else."""
    result = qo(*arguments, input=input)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("qo: ")
    return result.stderr.strip()


def make_queue() -> library.Queue:
    """The queue in this folder, with handlers."""
    queue = library.Queue(URL)

    @queue.task(name="add")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @queue.task(name="broken", max_retries=0)
    async def broken(text: str = "no") -> None:
        raise ValueError(text)

    @queue.task(name="blob")
    async def blob() -> bytes:
        return b"\x00\xff"

    return queue


def work() -> None:
    """Run everything that waits."""
    queue = make_queue()
    asyncio.run(library.Worker(queue).run(burst=True, signals=False))


def until(condition: Callable[[], Any], what: str, timeout: float = 60.0) -> Any:
    """Poll until it is true."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.02)
    return value


def alive(pid: int) -> bool:
    """A zombie that nobody collects is dead all the same."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Program:
    """`python -m qo …` as a process; its stderr is read line by line."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "qo", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def says(self, text: str, times: int = 1) -> list[str]:
        """The lines with that text, once there are so many."""

        def found() -> list[str]:
            lines = [line for line in list(self.lines) if text in line]
            assert self.process.poll() is None or len(lines) >= times, "".join(self.lines)
            return lines if len(lines) >= times else []

        return until(found, f"{text!r} {times} times in {self.lines}")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, timeout: float = 60.0) -> int:
        """Its exit code."""
        return self.process.wait(timeout)

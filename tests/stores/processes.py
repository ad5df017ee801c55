"""Real child processes for the tests of the SQLite store: they run a function of `jobs`, talk by lines, and are always
ended by the test that started them."""

import contextlib
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 60.0
"""Seconds after which a silent child means a broken test; nothing ever waits that long otherwise."""


class Child:
    """One Python process that runs `tests.stores.jobs.<job>(*arguments)`."""

    def __init__(self, job: str, *arguments: object, prefix: Sequence[str] = ()) -> None:
        code = "import sys; from tests.stores import jobs; jobs.main(sys.argv[1:])"
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", code, job, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        )
        self._rest = b""

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line it prints; AssertionError when it ended without one."""
        while b"\n" not in self._rest:
            assert self._more(), f"the child ended with {self.process.wait()} instead of a line"
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def lines(self) -> list[str]:
        """All further complete lines, until it ends. A line cut off by a kill was not said."""
        while self._more():
            pass
        *lines, _ = self._rest.decode().split("\n")
        self._rest = b""
        return lines

    def tell(self, text: str = "go") -> None:
        """Send it a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n".encode())
        self.process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait until the kernel has taken everything from it."""
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Wait for its own end; its exit code."""
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _more(self) -> bytes:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        assert ready, f"the child said nothing for {PATIENCE:g} s"
        more = os.read(self.process.stdout.fileno(), 65536)
        self._rest += more
        return more


@contextlib.contextmanager
def children(*jobs: Child) -> Iterator[list[Child]]:
    """These children, ended at the end."""
    try:
        yield list(jobs)
    finally:
        for child in jobs:
            child.close()

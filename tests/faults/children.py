"""Worker processes for tests that signal and kill them; every one of them ends with its test."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 60.0


class Process:
    """`python -m tests.faults.jobs <what> <path> <settings>`."""

    def __init__(self, what: str, path: Path, *said: str, prefix: Sequence[str] = ()) -> None:
        # Not a pipe: nobody reads it meanwhile, and a worker that logs much would wait for a reader.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.faults.jobs", what, str(path), *said],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._rest = b""
        self.pids: list[int] = []
        """Workers that a nursery forked."""

    def line(self) -> str:
        """The next line it says."""
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
            assert ready, f"it says nothing: {self.errors()[-5000:]}"
            more = os.read(self.process.stdout.fileno(), 65536)
            assert more, f"it ended: {self.errors()}"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def swallow(self) -> None:
        """Read what there is: a process that says much must not wait for a reader."""
        assert self.process.stdout is not None
        while select.select([self.process.stdout], [], [], 0)[0] and os.read(self.process.stdout.fileno(), 65536):
            pass

    def until(self, start: str) -> str:
        """The next line that begins so."""
        while not (line := self.line()).startswith(start):
            pass
        return line

    def hatch(self) -> int:
        """A nursery's next worker; its pid."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        pid = int(self.until("worker ").split()[1])
        self.pids.append(pid)
        return pid

    def kill(self, pid: int) -> None:
        """One of a nursery's workers, and wait until it is gone."""
        fd = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            assert select.select([fd], [], [], PATIENCE)[0]
        finally:
            os.close(fd)
            self.pids.remove(pid)

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        for file in (self.process.stdin, self.process.stdout, self._stderr):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()

    def errors(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode()


@contextlib.contextmanager
def started(what: str, path: Path, *said: str, prefix: Sequence[str] = ()) -> Iterator[Process]:
    """A process that is killed at the end, with what it forked."""
    one = Process(what, path, *said, prefix=prefix)
    try:
        yield one
    finally:
        for pid in one.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        one.process.kill()
        one.process.wait()
        one.close()

"""Which processes use a SQLite file: waking those that wait for work, and telling for certain when one is gone.

Beside `qo.db` stands a folder `qo.db-run` with, for each store that waits, a named pipe `*.wake` (a byte in it wakes
the reader), and for each worker a file `<worker>.lock` that its process keeps locked. The kernel drops the lock when
the process ends, however it ends, and in whichever container it ran, which a look at pids could not tell.
"""

import asyncio
import contextlib
import errno
import os
import sys
from pathlib import Path

if sys.platform != "win32":
    import fcntl


def boot_id() -> str:
    """Names this run of this machine's kernel; '' where that cannot be told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class Presence:
    """What one store shows of itself in the folder, and what it sees of the others."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._pipe_path = folder / f"{name}.wake"
        self._pipe: int | None = None
        self._locks: dict[str, int] = {}
        self._boot = boot_id()
        self.waiting: set[asyncio.Event] = set()
        self.works = sys.platform != "win32"
        """Are pipes and locks to be had here?"""

    @property
    def pipe(self) -> int | None:
        """The pipe of this store, if it has one."""
        return self._pipe

    @property
    def certain(self) -> bool:
        """Can the death of a worker be told?"""
        return self.works and bool(self._boot)

    # Waking.

    def listen(self) -> int | None:
        """The pipe of this store, made on first use; None where there can be none."""
        if self._pipe is None and self.works:
            try:
                self._pipe = self._make_pipe()
            except OSError:  # a file system without pipes, or a folder that may not be written: polling stays correct
                self.works = False
        return self._pipe

    def _make_pipe(self) -> int:
        self._folder.mkdir(exist_ok=True)
        # Open before it has its name: who finds a pipe that nobody reads takes it for a leftover and removes it.
        early = self._pipe_path.with_suffix(".new")
        os.mkfifo(early, 0o666)
        # Open for both, so that the pipe never reports that its last writer left.
        pipe = os.open(early, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        early.rename(self._pipe_path)
        return pipe

    def heard(self) -> bool:
        """Empty the pipe; was there anything in it?"""
        if self._pipe is None:
            return False
        try:
            return bool(os.read(self._pipe, 4096))
        except BlockingIOError:
            return False

    def wake_all(self) -> None:
        """Tell every store that waits, this one too, that there may be work. Never an error: what is to be told is
        done already, and whoever is not told finds it by polling."""
        try:
            paths = [path for path in self._folder.iterdir() if path.suffix == ".wake"]
        except OSError:  # no folder: nobody waits
            return
        for path in paths:
            self._wake(path)

    @staticmethod
    def _wake(path: Path) -> None:
        try:
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody reads it any more
                with contextlib.suppress(OSError):
                    path.unlink()
            return
        try:
            os.write(pipe, b"!")
        except OSError:
            pass  # full, so its reader has more than enough to wake up for; or its reader just left
        finally:
            os.close(pipe)

    # Workers.

    def attach(self, worker_id: str) -> None:
        """Show that this process runs the worker, for as long as it lives."""
        if sys.platform == "win32" or worker_id in self._locks:
            return
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{worker_id}.lock"
        # Locked before it has its name, so that nobody ever sees it free while the worker lives.
        early = path.with_suffix(".new")
        fd = os.open(early, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.write(fd, self._boot.encode())
        early.rename(path)
        self._locks[worker_id] = fd

    def detach(self, worker_id: str) -> None:
        """The worker stopped in good order."""
        fd = self._locks.pop(worker_id, None)
        if fd is not None:
            (self._folder / f"{worker_id}.lock").unlink(missing_ok=True)
            os.close(fd)

    def gone(self) -> list[str]:
        """Workers whose process ended without a word, on this same run of the machine."""
        if not self.certain or not self._folder.is_dir():
            return []
        paths = (path for path in self._folder.iterdir() if path.suffix == ".lock" and path.stem not in self._locks)
        return [path.stem for path in paths if self._is_free(path)]

    def forget(self, worker_id: str) -> None:
        """Its leases are dealt with. A new worker of that name may have come meanwhile."""
        path = self._folder / f"{worker_id}.lock"
        if self._is_free(path):
            path.unlink(missing_ok=True)

    def _is_free(self, path: Path) -> bool:
        if sys.platform == "win32":
            return False
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A worker that stopped in good order removes its file before it lets go of the lock.
            return os.fstat(fd).st_nlink > 0 and os.read(fd, 100).decode() == self._boot
        except OSError:
            return False
        finally:
            os.close(fd)

    def close(self) -> None:
        """Leave nothing behind."""
        for worker_id in list(self._locks):
            self.detach(worker_id)
        if self._pipe is not None:
            self._pipe_path.unlink(missing_ok=True)
            os.close(self._pipe)
            self._pipe = None

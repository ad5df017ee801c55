"""Turns between processes that write one file.

SQLite's own lock is taken by whoever happens to try at the right moment, so that two busy writers can keep a third
waiting for seconds. Here everybody waits in one kernel lock, and who leaves it while others wait pauses for a moment.
"""

import os
import sys
from pathlib import Path
from types import TracebackType

from qo.clock import pause

if sys.platform != "win32":
    import fcntl

    def _take(fd: int, how: int) -> bool:
        try:
            fcntl.flock(fd, how)
        except BlockingIOError:
            return False
        return True


PAUSE = 0.001


class Turns:
    """A context manager around each transaction. One thread uses it."""

    def __init__(self, path: Path) -> None:
        self._turn = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        # Whoever waits holds a shared lock on a second file; who can take it alone knows that nobody waits.
        self._queue = os.open(f"{path}-queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def close(self) -> None:
        os.close(self._turn)
        os.close(self._queue)

    if sys.platform == "win32":  # SQLite's busy timeout is all there is

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

    else:

        def __enter__(self) -> None:
            if _take(self._turn, fcntl.LOCK_EX | fcntl.LOCK_NB):
                return
            _take(self._queue, fcntl.LOCK_SH)
            _take(self._turn, fcntl.LOCK_EX)
            _take(self._queue, fcntl.LOCK_UN)

        def __exit__(
            self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> None:
            _take(self._turn, fcntl.LOCK_UN)
            if _take(self._queue, fcntl.LOCK_EX | fcntl.LOCK_NB):
                _take(self._queue, fcntl.LOCK_UN)
            else:
                pause(PAUSE)

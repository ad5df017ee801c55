"""`qo worker --processes N`: keeps N worker processes alive, passes signals on, and takes them along when it ends.

The command line makes a Supervisor; the processes it starts hold a `Leash`. A child restarted too quickly would spin,
so pauses grow; one that cannot be started at all ends the whole, so that whoever supervises us notices.
"""

import asyncio
import contextlib
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence

from qo.clock import SYSTEM, Clock, wait_until

log = logging.getLogger("qo.supervisor")
WRONG_USAGE = 2
"""The exit code of a worker whose command line is wrong, which another try does not mend."""


class Supervisor:
    """N processes of one command. `command` is asked with the number of the leash's file descriptor."""

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        processes: int,
        *,
        until_done: bool = False,
        clock: Clock = SYSTEM,
        first_pause: float = 0.5,
        longest_pause: float = 30.0,
        healthy_after: float = 60.0,
        start_time: float = 5.0,
        tries: int = 10,
    ) -> None:
        self._command = command
        self._processes = processes
        self._until_done = until_done
        """A child that ends well has done its work and is not replaced."""
        self._clock = clock
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._healthy_after = healthy_after
        self._start_time = start_time
        """A child that dies sooner was never really up; that many in a row and we give up."""
        self._tries = tries
        self._alive: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        """Until all children have ended for good; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        # Nobody writes into the pipe: it is closed when we end, however we end, and that is the message.
        leash, ours = os.pipe()
        try:
            await asyncio.gather(*(self._keep(number, leash) for number in range(1, self._processes + 1)))
        finally:
            os.close(leash)
            os.close(ours)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
        return self._code

    async def _keep(self, number: int, leash: int) -> None:
        pause, failed_starts = self._first_pause, 0
        while not self._stopping.is_set():
            began = self._clock.monotonic()
            code = await self._one(number, leash)
            if self._stopping.is_set():
                self._code = self._code or (1 if code else 0)
                return
            if code == 0 and self._until_done:
                return
            if code == WRONG_USAGE:
                self._give_up(code)
                return
            lived = self._clock.monotonic() - began
            failed_starts = failed_starts + 1 if lived < self._start_time else 0
            if failed_starts >= self._tries:
                log.error("worker process %d did not get up %d times in a row: giving up", number, failed_starts)
                self._give_up(1)
                return
            if lived >= self._healthy_after:
                pause = self._first_pause
            log.warning("worker process %d %s; again in %g s", number, _how(code), pause)
            await wait_until(self._stopping, self._clock, pause)
            pause = min(2 * pause, self._longest_pause)

    async def _one(self, number: int, leash: int) -> int | None:
        """Start it and wait for its end; its exit code, None when it could not be started."""
        try:
            # A session of its own: Ctrl-C in a terminal reaches only us, and killing its group takes what it started.
            process = await asyncio.create_subprocess_exec(
                *self._command(leash), stdin=asyncio.subprocess.DEVNULL, pass_fds=(leash,), start_new_session=True
            )
        except OSError as error:
            log.error("worker process %d cannot be started: %s", number, error)
            return None
        self._alive[number] = process
        log.info("worker process %d of %d runs as pid %d", number, self._processes, process.pid)
        if self._stopping.is_set():
            _send(process, signal.SIGTERM)
        try:
            return await process.wait()
        finally:
            del self._alive[number]

    def _give_up(self, code: int) -> None:
        self._code = code
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        for process in self._alive.values():
            _send(process, signal.SIGTERM)

    def _on_signal(self) -> None:
        if not self._stopping.is_set():
            log.info("stopping: waiting for %d worker processes", len(self._alive))
            self._stop()
            return
        log.warning("second signal: killing %d worker processes", len(self._alive))
        self._code = 1
        for process in self._alive.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _send(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _how(code: int | None) -> str:
    if code is None:
        return "could not be started"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


class Leash:
    """The child's end: when the supervisor is gone, drain and end.

    Not the kernel's PR_SET_PDEATHSIG: its signal would come on top of the one a dying supervisor may have forwarded,
    and a worker takes a second signal as the order to leave its tasks behind.
    """

    def __init__(self, leash: int) -> None:
        os.set_inheritable(leash, False)  # what a handler starts must not hold it
        self._leash = leash
        self._stop: Callable[[], None] | None = None
        self._patience = 0.0
        threading.Thread(target=self._watch, name="qo-leash", daemon=True).start()

    def on_end(self, stop: Callable[[], None], patience: float) -> None:
        """What to do then, and how many seconds it may take. Before this is said, the process just ends."""
        self._patience = patience
        self._stop = stop

    def _watch(self) -> None:
        while os.read(self._leash, 1):
            pass
        if self._stop is not None:
            log.warning("the supervisor is gone: stopping")
            self._stop()
            threading.Event().wait(self._patience)
        os._exit(1)

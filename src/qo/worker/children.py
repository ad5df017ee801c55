"""One child process as the worker sees it: started, spoken to, killed, noticed when it dies. `processes` says why.

Nothing here polls: the event loop waits on the socket and on the process itself.
"""

import asyncio
import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import spawn

from qo.worker import child

_READ = 262_144


@dataclass(frozen=True, slots=True)
class Launched:
    """A process that was started, and the worker's ends of what connects it."""

    process: subprocess.Popen[bytes]
    jobs: socket.socket
    control: int


class Spawner:
    """Starts children from one thread that lives until `stop`.

    Linux kills a child when the *thread* that started it ends, so a thread of an executor will not do. `stop` is for
    when every child has been reaped; a worker that dies before takes the thread, and so the children, with it.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="qo-spawner", daemon=True)
        self._thread.start()

    def launch(self, preload: Sequence[str], answer: Callable[[Launched | OSError], None]) -> None:
        """Start a child; `answer` is called in the running loop."""
        loop = asyncio.get_running_loop()

        def order() -> None:
            try:
                launched = _launch(preload)
            except OSError as error:
                launched = error
            try:
                loop.call_soon_threadsafe(answer, launched)
            except RuntimeError:  # the loop was closed; closing the control pipe ends the child
                if isinstance(launched, Launched):
                    os.close(launched.control)
                    launched.jobs.close()
                    launched.process.wait()

        self._orders.put(order)

    def stop(self) -> None:
        self._orders.put(None)
        self._thread.join()

    def _work(self) -> None:
        while order := self._orders.get():
            order()


def _launch(preload: Sequence[str]) -> Launched:
    ours, theirs = socket.socketpair()
    control_read, control_write = os.pipe()
    settings = {
        "path": [entry for entry in sys.path if isinstance(entry, str)],  # pyright: ignore[reportUnnecessaryIsInstance]
        "argv": sys.argv,
        "main": main_module(),
        "preload": list(preload),
        "worker": os.getpid(),
        "jobs": theirs.fileno(),
        "control": control_read,
    }
    try:
        # vfork and exec, never a fork that goes on in Python: the worker has threads. A session of its own, so that
        # killing its group takes what the handler started along, and Ctrl-C in the terminal does not reach it.
        process = subprocess.Popen(
            [spawn.get_executable(), *_interpreter_flags(), "-P", "-c", child.BOOT],
            env=os.environ | {child.SETTINGS: json.dumps(settings)},
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), control_read),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(control_write)
        raise
    finally:
        theirs.close()
        os.close(control_read)
    ours.setblocking(False)
    os.set_blocking(control_write, False)
    return Launched(process, ours, control_write)


def _interpreter_flags() -> list[str]:
    """-O, -W, -X and so on, as this process was started; multiprocessing uses the same function."""
    return subprocess._args_from_interpreter_flags()  # pyright: ignore


def main_module() -> dict[str, str]:
    """How a child can get at this process's main module, in the words of multiprocessing; empty when it cannot."""
    main = sys.modules.get(child.MAIN)
    name: str | None = getattr(getattr(main, "__spec__", None), "name", None)
    path: str | None = getattr(main, "__file__", None)
    if name is not None:
        return {} if name.split(".")[-1] == child.MAIN else {"init_main_from_name": name}
    return {} if path is None else {"init_main_from_path": os.path.abspath(path)}  # noqa: PTH100 - as multiprocessing


class Child:
    """A running child. `heard` gets each message; `died` is called once, after the last message, with the exit code."""

    def __init__(
        self, launched: Launched, heard: Callable[[bytes, bytes], None], died: Callable[[int, bool], None]
    ) -> None:
        self._process = launched.process
        self._jobs = launched.jobs
        self._control = launched.control
        self._heard = heard
        self._died = died
        self._loop = asyncio.get_running_loop()
        self._inbox = bytearray()
        self._outbox = memoryview(b"")
        self._writing = True
        self._reading = True
        self._unread = False
        self._dead = False
        self._loop.add_reader(self._jobs, self._readable)
        self._watch_for_death()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def hung_up(self) -> bool:
        """It closed its end of the socket: it is ending, or the handler closed what is not its own."""
        return not self._reading

    def send(self, body: bytes) -> None:
        """Send a job. Whatever does not fit into the socket follows when it does."""
        message = child.HEADER.pack(child.JOB, len(body)) + body
        try:
            sent = self._jobs.send(message)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._unread = True
            return
        if sent < len(message):
            self._outbox = memoryview(message)[sent:]
            self._loop.add_writer(self._jobs, self._writable)

    def cancel(self, number: int) -> None:
        # A full pipe holds thousands of these; a closed one means that the child is dying anyway.
        with contextlib.suppress(OSError):
            os.write(self._control, child.CANCEL.pack(number))

    def finish(self) -> None:
        """Let it end by itself after the job it has."""
        self._writing = False
        if not self._outbox:
            with contextlib.suppress(OSError):
                self._jobs.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it and everything it started, now. `died` follows."""
        if not self._dead:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def drain(self) -> None:
        """Hear what it has already said, which fits into a socket; one that never stops talking is not heard out."""
        for _ in range(16):
            if not self._receive():
                break

    def _writable(self) -> None:
        try:
            sent = self._jobs.send(self._outbox)
        except BlockingIOError:
            return
        except OSError:
            self._unread = True
            sent = len(self._outbox)
        self._outbox = self._outbox[sent:]
        if not self._outbox:
            self._loop.remove_writer(self._jobs)
            if not self._writing:
                self.finish()

    def _readable(self) -> None:
        self._receive()

    def _receive(self) -> bool:
        """Read once; False when there is nothing more for now."""
        if not self._reading:
            return False
        try:
            data = self._jobs.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            # ECONNRESET: it ended with our message unread in its socket.
            self._unread = True
            data = b""
        if not data:
            self._reading = False
            self._loop.remove_reader(self._jobs)
            self._heard(b"", b"")
            return False
        self._inbox += data
        self._deliver()
        return True

    def _deliver(self) -> None:
        inbox, start = self._inbox, 0
        while len(inbox) - start >= child.HEADER.size:
            kind, length = child.HEADER.unpack_from(inbox, start)
            begin = start + child.HEADER.size
            if len(inbox) < begin + length:
                break
            start = begin + length
            with memoryview(inbox) as view:
                body = bytes(view[begin:start])
            self._heard(kind, body)
        del inbox[:start]

    def _watch_for_death(self) -> None:
        try:
            process = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or an old or fenced-in one
            threading.Thread(target=self._wait, name=f"qo-wait-{self.pid}", daemon=True).start()
            return

        def ended() -> None:
            self._loop.remove_reader(process)
            os.close(process)
            self._end()

        self._loop.add_reader(process, ended)

    def _wait(self) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self.drain()
        # Before it is reaped, while nobody else can have its number.
        self.kill()
        self._dead = True
        code = self._process.wait()
        self._loop.remove_reader(self._jobs)
        self._loop.remove_writer(self._jobs)
        self._jobs.close()
        os.close(self._control)
        self._died(code, self._unread)

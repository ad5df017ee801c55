"""The child side of `isolation="process"`: what runs in the processes that `children.Spawner` starts.

A child reads jobs from a socket, one at a time, and answers each. It must end when its worker does, whatever its
handler is busy with, so it never trusts the handler to notice: the kernel kills it (Linux), and a thread that waits on
the control pipe does everywhere. Everything here is plain standard library, so that a child starts quickly.
"""

import contextlib
import faulthandler
import functools
import importlib
import os
import pickle
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

SETTINGS = "QO_CHILD"
"""The environment variable with what a child has to know; it is gone before any code of the user runs."""
BOOT = (
    f"import json, os, sys; settings = json.loads(os.environ.pop({SETTINGS!r})); sys.path[:] = settings['path']; "
    "from qo.worker.child import main; main(settings)"
)

HEADER = struct.Struct("<cQ")
"""Before every message: its kind and its length."""
CANCEL = struct.Struct("<Q")
"""A message on the control pipe: the number of the job that should stop."""
JOB, READY, IMPORTING, FAILED, PROGRESS, ANSWER, RAISED = b"j", b"y", b"i", b"f", b"p", b"a", b"r"
SMALL = 65_536
"""Up to here copying header and body together is cheaper than a second system call."""

MAIN = "__main__"
_PR_SET_PDEATHSIG = 1
_main_module: dict[str, str] = {}
_importing_main = False


class Channel:
    """What a running job can tell its worker and hear from it. Safe to use from threads of the handler."""

    def __init__(self, link: "_Link", number: int) -> None:
        self._link = link
        self._number = number
        self._open = True
        self._lock = threading.Lock()

    def progress(self, raw: bytes) -> None:
        """Send progress; after the job has ended it goes nowhere."""
        with self._lock:
            if self._open:
                self._link.send(PROGRESS, raw)

    @property
    def cancelled(self) -> bool:
        """The worker asks this job to stop."""
        return self._link.cancelled == self._number

    def close(self) -> None:
        """The job has ended: a thread it left behind must not speak for the next one."""
        with self._lock:
            self._open = False


Entry = Callable[[Any, bytes, bytes, Channel], bytes]
"""Called for each job with what the reference means here, the input and the context; its bytes are the answer."""


def plain(function: Any, raw_input: bytes, context: bytes, channel: Channel) -> bytes:
    """The simplest entry: bytes in, bytes out."""
    return function(raw_input)


def importing_main() -> bool:
    """This process is a child that is still reading the user's main module, so that module has no guard."""
    return _importing_main


class _Link:
    """The socket to the worker, and the number of the job it wants to stop."""

    def __init__(self, jobs: socket.socket) -> None:
        self._jobs = jobs
        self.cancelled = 0

    def send(self, kind: bytes, body: bytes = b"") -> None:
        header = HEADER.pack(kind, len(body))
        if len(body) <= SMALL:
            self._jobs.sendall(header + body)
        else:
            self._jobs.sendall(header)
            self._jobs.sendall(body)


def main(settings: dict[str, Any]) -> None:
    """Serve jobs until the worker closes the socket. Called by BOOT."""
    control: int = settings["control"]
    jobs = socket.socket(fileno=settings["jobs"])
    # They had to be inheritable to get here; a program that a handler starts must not hold them.
    jobs.set_inheritable(False)
    os.set_inheritable(control, False)
    link = _Link(jobs)
    _leave_signals_to_the_worker()
    _end_with_the_worker(settings["worker"], control, link)
    with contextlib.suppress(Exception):
        faulthandler.enable()  # where a segfault happened, on the worker's stderr
    sys.argv[:] = settings["argv"]
    _main_module.update(settings["main"])
    try:
        for name in settings["preload"]:
            link.send(IMPORTING, name.encode("utf-8", "replace"))
            _load(name)
    except BaseException as error:
        link.send(FAILED, _described(error))
        sys.exit(1)
    link.send(READY)
    _serve(jobs, link)


def _serve(jobs: socket.socket, link: _Link) -> None:
    me = os.getpid()
    with jobs.makefile("rb", SMALL) as stream:
        while len(header := stream.read(HEADER.size)) == HEADER.size:
            _, length = HEADER.unpack(header)
            number, entry, function, raw_input, context = pickle.loads(stream.read(length))
            channel = Channel(link, number)
            try:
                kind, body = ANSWER, _called(entry, function, raw_input, context, channel)
            except BaseException as error:  # sys.exit() in a handler is no reason to end the process either
                kind, body = RAISED, _described(error)
            if os.getpid() != me:
                os._exit(1)  # the handler forked and both came back; only one may answer
            channel.close()
            _flush()
            link.send(kind, body)


def _called(entry: str, function: str, raw_input: bytes, context: bytes, channel: Channel) -> bytes:
    answer = resolve(entry)(resolve(function), raw_input, context, channel)
    if not isinstance(answer, bytes):
        raise TypeError(f"{entry} must return bytes, not {type(answer).__name__}")
    return answer


@functools.cache
def resolve(reference: str) -> Any:
    """What a reference made by `processes.refer` means in this process."""
    module, _, name = reference.partition(":")
    return functools.reduce(getattr, name.split("."), _load(module))


def _load(module: str) -> Any:
    if module == MAIN:
        _prepare()
    return importlib.import_module(module)


@functools.cache
def _prepare() -> None:
    """Make the user's main module this process's too, as multiprocessing does; only when a job or preload needs it."""
    global _importing_main
    from multiprocessing import spawn

    _importing_main = True
    try:
        spawn.prepare(_main_module)
    finally:
        _importing_main = False


def _described(error: BaseException) -> bytes:
    try:
        message = str(error)
    except Exception as broken:
        message = f"(its message cannot be shown: {type(broken).__name__})"
    # The frames of this module say nothing to the user.
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals is globals():
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    return pickle.dumps((type(error).__qualname__, message, text))


def _flush() -> None:
    """What a handler printed is seen when it ends, not when the buffer is full."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def _leave_signals_to_the_worker() -> None:
    """Ctrl-C, and systemd stopping the whole control group, reach children too; only the worker decides what ends.

    Handlers that do nothing, and not SIG_IGN, which a program started by the handler would inherit for good.
    """
    stops = (signal.SIGINT, signal.SIGTERM)
    for stop in stops:
        signal.signal(stop, lambda number, frame: None)
        signal.siginterrupt(stop, False)

    # A handler's own multiprocessing workers are ended with SIGTERM, perhaps before they have the usual handlers back:
    # blocked until then, the signal is not lost.
    kept = threading.local()

    def block() -> None:
        kept.mask = signal.pthread_sigmask(signal.SIG_BLOCK, stops)

    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept.mask)

    def restore() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        unblock()

    os.register_at_fork(before=block, after_in_parent=unblock, after_in_child=restore)


def _end_with_the_worker(worker: int, control: int, link: _Link) -> None:
    if sys.platform == "linux":
        # The kernel does it even while C code holds the interpreter lock; it may be missing in odd builds.
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != worker:
        os._exit(1)  # it was gone before the kernel knew that we care

    def watch() -> None:
        while message := os.read(control, CANCEL.size):
            (link.cancelled,) = CANCEL.unpack(message)
        # The whole group: what the handler started must not run on beside the retry.
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, name="qo-worker-watch", daemon=True).start()

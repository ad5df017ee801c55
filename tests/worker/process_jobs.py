"""Functions that the tests of the process pool run in child processes, and scripts that are workers of their own."""

import contextlib
import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from qo.worker.child import Channel


def with_channel(function: Any, raw_input: bytes, context: bytes, channel: Channel) -> bytes:
    """An entry whose functions get the context and the channel too."""
    return function(raw_input, context, channel)


def not_bytes(function: Any, raw_input: bytes, context: bytes, channel: Channel) -> bytes:
    return "text"  # type: ignore[return-value]


def echo(raw: bytes) -> bytes:
    return raw


def pid(raw: bytes) -> bytes:
    return str(os.getpid()).encode()


def busy(raw: bytes, context: bytes, channel: Channel) -> bytes:
    channel.progress(b"%d" % os.getpid())
    while True:
        pass


def sleep_in_c(raw: bytes, context: bytes, channel: Channel) -> bytes:
    channel.progress(b"%d" % os.getpid())
    time.sleep(1000)
    return b""


def sleep_with_the_lock(raw: bytes, context: bytes, channel: Channel) -> bytes:
    """C code that never gives the interpreter lock back: no thread of this process runs again."""
    channel.progress(b"%d" % os.getpid())
    ctypes.PyDLL(None).sleep(1000)
    return b""


def talk_for_ever(raw: bytes, context: bytes, channel: Channel) -> bytes:
    while True:
        channel.progress(bytes(10_000))


def segfault(raw: bytes) -> bytes:
    return ctypes.string_at(0)


def exit_3(raw: bytes) -> bytes:
    os._exit(3)


def kill_itself(raw: bytes) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def sys_exit(raw: bytes) -> bytes:
    sys.exit("enough")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError


def raise_error(raw: bytes) -> bytes:
    raise KeyError("no such \ud800 thing")


def raise_unprintable(raw: bytes) -> bytes:
    raise Unprintable


def close_everything(raw: bytes) -> bytes:
    os.closerange(3, 100)
    time.sleep(1000)
    return b""


def grandchild(raw: bytes, context: bytes, channel: Channel) -> bytes:
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    channel.progress(b"%d" % started.pid)
    if raw == b"crash":
        os._exit(3)
    started.wait()
    return b""


def read_path(raw: bytes, context: bytes, channel: Channel) -> bytes:
    """Say that it runs, then wait until somebody writes to the named pipe."""
    channel.progress(b"%d" % os.getpid())
    return Path(raw.decode()).read_bytes()


def until_cancelled(raw: bytes, context: bytes, channel: Channel) -> bytes:
    channel.progress(b"running")
    while not channel.cancelled:
        time.sleep(0.001)
    return b"stopped"


def was_cancelled(raw: bytes, context: bytes, channel: Channel) -> bytes:
    return b"%d" % channel.cancelled


def count(raw: bytes, context: bytes, channel: Channel) -> bytes:
    for step in range(int(raw)):
        channel.progress(b"%d" % step)
    return context


late = threading.Event()
said = threading.Event()


def leave_thread(raw: bytes, context: bytes, channel: Channel) -> bytes:
    def speak() -> None:
        late.wait()
        channel.progress(b"too late")
        said.set()

    threading.Thread(target=speak, daemon=True).start()
    return b""


def hear_thread(raw: bytes, context: bytes, channel: Channel) -> bytes:
    late.set()
    said.wait()
    return b""


def double(raw: bytes) -> bytes:
    return raw + raw


def say(raw: bytes) -> bytes:
    print("said", raw.decode())
    print("complained", raw.decode(), file=sys.stderr)
    return b""


def open_files(raw: bytes) -> bytes:
    found = []
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that listed the directory is closed already
            found.append(os.fstat(int(file.name)).st_ino)
    return json.dumps({"files": found, "environ": dict(os.environ)}).encode()


def fork_and_return(raw: bytes) -> bytes:
    os.fork()
    return b"%d" % os.getpid()


def terminate_fork(raw: bytes) -> bytes:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    process.start()
    process.terminate()
    process.join()
    return str(process.exitcode).encode()


def terminate_program(raw: bytes) -> bytes:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    process.terminate()
    return str(process.wait()).encode()


def decorate(function: Any) -> Any:
    class Handler:
        def __init__(self) -> None:
            self.__wrapped__ = function

        def __call__(self, raw: bytes) -> bytes:
            return b"decorated " + function(raw)

    return Handler()


def undecorated(raw: bytes) -> bytes:
    return raw


decorated_function = undecorated
undecorated = decorate(undecorated)


def replaced(raw: bytes) -> bytes:
    return raw


old_replaced = replaced
replaced = echo


class Group:
    @staticmethod
    def inside(raw: bytes) -> bytes:
        return b"inside " + raw

    def method(self, raw: bytes) -> bytes:
        return raw


WORKER = """
import asyncio, sys
from qo.worker.jobs import Job, refer
from qo.worker.processes import ProcessPool
from tests.worker import process_jobs

async def main():
    pool = ProcessPool(1)
    await pool.start()
    job = Job(function=refer(getattr(process_jobs, sys.argv[1])), entry=refer(process_jobs.with_channel))
    await pool.run(job, lambda raw: print(raw.decode(), flush=True))

asyncio.run(main())
"""

IDLE_WORKER = """
import asyncio
from qo.worker.jobs import Job, refer
from qo.worker.processes import ProcessPool
from tests.worker import process_jobs

async def main():
    pool = ProcessPool(1)
    await pool.start()
    print((await pool.run(Job(function=refer(process_jobs.pid)))).raw.decode(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""

SCRIPT = """
import asyncio
from qo.worker.jobs import Job, refer
from qo.worker.processes import ProcessPool

def shout(raw):
    return raw.upper()

async def main():
    pool = ProcessPool(1)
    await pool.start()
    print(await pool.run(Job(function=refer(shout), raw_input=b"hello")))
    await pool.close(5)

"""

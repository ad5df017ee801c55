"""What runs in the worker processes that these tests start, signal and kill. Says what it does on standard output."""

import asyncio
import faulthandler
import os
import random
import signal
import sys
import time
from typing import Any

from tests.worker.worker_tools import settings

import qo
from qo.worker.worker import Worker  # before the forks, which then need not read it

QUICK = qo.RetryPolicy(initial=0.05, multiplier=1.2, jitter=0)


def say(text: str) -> None:
    """A whole line at once: several processes share the pipe."""
    os.write(1, f"{text}\n".encode())


def make(path: str, **said: Any) -> qo.Queue:
    q = qo.Queue(f"sqlite:///{path}", settings=settings(**said))

    @q.task(retry=QUICK)
    async def short(x: int) -> int:
        say(f"short {x}")
        await asyncio.sleep(random.random() / 50)
        return x

    @q.task(retry=QUICK)
    def threaded(x: int) -> int:
        say(f"threaded {x}")
        time.sleep(random.random() / 50)
        return x

    @q.task
    async def until_file(name: str) -> int:
        """Runs until a file is there."""
        say(f"until_file {qo.current().task.attempt}")
        while not os.path.exists(name):  # noqa: ASYNC110, ASYNC240, PTH110 - another process makes the file
            await asyncio.sleep(0.01)
        return qo.current().task.attempt

    @q.task
    async def blocks(seconds: float) -> str:
        """Blocks the whole event loop."""
        say("blocks")
        time.sleep(seconds)  # noqa: ASYNC251 - that is the point
        return "done"

    @q.task(retry=QUICK)
    async def poison() -> None:
        say("poison")
        os.kill(os.getpid(), signal.SIGKILL)

    return q


async def work(path: str, **said: Any) -> None:
    faulthandler.register(signal.SIGUSR1)  # for whoever wonders what it waits for
    q = make(path, **said)
    say(f"worker {os.getpid()}")
    await Worker(q, concurrency=6).run()


def nursery(path: str, **said: Any) -> None:
    """Forks a worker for every line it reads: a process of its own at a fraction of the cost of starting Python."""
    for _ in sys.stdin:
        if os.fork() == 0:
            asyncio.run(work(path, **said))
            os._exit(0)


def main(what: str, path: str, *said: str) -> None:
    options: dict[str, Any] = dict(one.split("=") for one in said)
    if what == "nursery":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no funeral
        nursery(path, **options)
    else:
        asyncio.run(work(path, **options))


if __name__ == "__main__":
    main(*sys.argv[1:])

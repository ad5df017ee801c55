"""What child processes do in the tests of the SQLite store. Each job is a function of text arguments; a line on
standard output tells the test how far it is."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.stores.tools import completed, opened, rows, task, want

from qo.commit import GroupCommit
from qo.errors import QoError
from qo.stores.protocol import Submitted
from qo.stores.sqlite.presence import Presence
from qo.stores.sqlite.store import SqliteStore
from qo.stores.sqlite.turns import Turns


def main(arguments: Sequence[str]) -> None:
    asyncio.run(globals()[arguments[0]](*arguments[1:]))


def say(text: object) -> None:
    print(text, flush=True)


async def told() -> str:
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


async def submit_for_ever(path: str, callers: str) -> None:
    """Concurrent callers; each prints an id when it is acknowledged."""
    async with opened(path) as store:
        group = GroupCommit(store)
        say("ready")

        async def caller(number: int) -> None:
            count = 0
            while True:
                count += 1
                key = f"{number}-{count}-{task().id}" if count % 5 == 0 else None
                large = "x" * 3000 if count % 7 == 0 else "small"
                answer = await group.submit(task("large" if len(large) > 2000 else "job", input=large, key=key))
                say(answer.task.id)

        await asyncio.gather(*(caller(number) for number in range(int(callers))))


async def claim_and_settle_for_ever(path: str, worker: str) -> None:
    """Claims, then settles half of it; prints what was acknowledged as written."""
    async with opened(path) as store:
        await store.attach(worker)
        group = GroupCommit(store)
        say("ready")
        while True:
            claimed = await store.claim(want(8, worker=worker))
            if not claimed.tasks:
                say("empty")
                await told()
            for index, each in enumerate(claimed.tasks):
                if index % 4:
                    assert await group.settle(completed(each, "done")) == "written"
                    say(each.id)


async def open_and_submit(path: str) -> None:
    """Waits for the signal, opens, submits one, ends."""
    say("ready")
    await told()
    async with opened(path) as store:
        (answer,) = await store.submit([task()])
        assert isinstance(answer, Submitted)
        say(answer.task.id)


async def write_without_pause(path: str) -> None:
    """Keeps the writer busy: there is always a call waiting for its next transaction."""
    async with opened(path) as store:
        say("ready")
        await told()

        async def caller() -> None:
            while True:
                await store.submit([task("busy")])

        await asyncio.gather(*(caller() for _ in range(4)))


async def submit_and_count(path: str, count: str) -> None:
    """Submits one by one; prints how many tasks of others came between each call and its transaction."""
    async with opened(path) as store:
        say("ready")
        await told()
        for _ in range(int(count)):
            ((before,),) = rows(Path(path), "SELECT coalesce(max(pk), 0) FROM qo_tasks")
            (answer,) = await store.submit([task("third")])
            assert isinstance(answer, Submitted)
            ((mine,),) = rows(Path(path), "SELECT pk FROM qo_tasks WHERE id = ?", answer.task.id)
            say(mine - before - 1)


async def attached(path: str, *workers: str) -> None:
    """Attaches, claims one task for each worker under a long lease, then does as it is told."""
    async with opened(path) as store:
        for worker in workers:
            await store.attach(worker)
        for worker in workers:
            (held,) = (await store.claim(want(1, worker=worker))).tasks
            say(held.id)
        await obey(store, workers)


async def obey(store: SqliteStore, workers: Sequence[str]) -> None:
    while order := await told():
        if order == "detach":
            await store.detach(workers[0])
        elif order == "close":
            await store.close()
        say(order)


async def submit_on_order(path: str) -> None:
    """Submits one task for each line it is told."""
    async with opened(path) as store:
        say("ready")
        while await told():
            (answer,) = await store.submit([task()])
            assert isinstance(answer, Submitted)
            say(answer.task.id)


async def wait_for_ever(path: str) -> None:
    """Has a pipe for waking and never looks at it again."""
    async with opened(path) as store:
        await store.wait(0)
        say("ready")
        await told()


async def try_to_open(path: str) -> None:
    """Opens and submits; prints what went wrong, or ok."""
    store = SqliteStore(path)
    try:
        await store.open()
        await store.submit([task()])
        say("ok")
    except QoError as error:
        say(f"{type(error).__name__}: {error}")
    finally:
        await store.close()


async def attach_again_and_again(folder: str) -> None:
    """Attaches and detaches until it is killed."""
    presence = Presence(Path(folder), "child")
    say("ready")
    await told()
    number = 0
    while True:
        number += 1
        presence.attach(f"w{number % 3}")
        presence.detach(f"w{number % 3}")


async def take_turns(path: str) -> None:
    """Takes a turn for each line it is told."""
    turns = Turns(Path(path))
    say("ready")
    while await told():
        with turns:
            say("mine")
        say("left")


async def keep_turn(path: str) -> None:
    """Never leaves its turn."""
    with Turns(Path(path)):
        say("mine")
        await told()

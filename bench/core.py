"""The bars of the core: group commit, claim + settle, fairness between processes, claims beside a large backlog.

python -m bench.core [submit] [drain] [fair] [growth] [--rounds N] [--scale X] [--out FILE]
"""

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from msgspec.structs import replace

from bench.raw_sqlite import raw_rate
from bench.tools import command, fresh_file, machine, median, percentile, spread, table, tasks
from qo import lifecycle
from qo.clock import SYSTEM
from qo.commit import GroupCommit
from qo.outcomes import Returned
from qo.stores.protocol import Want
from qo.stores.sqlite.store import SqliteStore
from qo.values import NULL


async def _caller(store: SqliteStore, commit: GroupCommit, count: int) -> None:
    for _ in range(count):
        await commit.submit(tasks(store, 1)[0])


async def submit(rounds: int) -> str:
    """One caller that waits for each, and 100 callers at once, through group commit."""
    one: list[float] = []
    many: list[float] = []
    for _ in range(rounds):
        with fresh_file() as path:
            store = SqliteStore(path)
            await store.open()
            commit = GroupCommit(store)
            start = time.perf_counter()
            await _caller(store, commit, 3000)
            one.append(3000 / (time.perf_counter() - start))
            start = time.perf_counter()
            await asyncio.gather(*(_caller(store, commit, 200) for _ in range(100)))
            many.append(20_000 / (time.perf_counter() - start))
            await commit.close()
            await store.close()
    ratio = median([b / a for a, b in zip(one, many, strict=True)])
    rows = [("one caller", spread(one)), ("100 callers", spread(many)), ("ratio (bar: 5)", f"{ratio:.1f}")]
    return table("Submit through group commit, tasks/s", ("", "median (range)"), rows)


async def drain(rounds: int) -> str:
    """Claim and settle in batches of 100 with lifecycle, history, leases and counters, beside the raw engine."""
    count = 20_000
    four: list[float] = []
    one: list[float] = []
    raw: list[float] = []
    raw_one: list[float] = []
    for _ in range(rounds):
        four.append(await _drained(count, 4))
        with fresh_file() as path:
            raw.append(raw_rate(path, count, 100))
        one.append(await _drained(count, 1))
        with fresh_file() as path:
            raw_one.append(raw_rate(path, 3000, 1))
    share = median([a / b for a, b in zip(four, raw, strict=True)])
    rows = [
        ("qo: claim + settle, 4 claimers at once (bar: 20,000)", spread(four)),
        ("qo: claim + settle, one claimer that waits for each answer", spread(one)),
        ("sqlite3 by hand: submit + claim + settle, no history, no fencing", spread(raw)),
        ("sqlite3 by hand, the same one by one", spread(raw_one)),
        ("first line / third line", f"{share:.2f}"),
    ]
    return table("Claim and settle through the seam in batches of 100, tasks/s", ("", "median (range)"), rows)


async def _drained(count: int, claimers: int) -> float:
    """Tasks a second until the queue is empty."""
    with fresh_file() as path:
        store = SqliteStore(path)
        await store.open()
        commit = GroupCommit(store)
        for _ in range(0, count, 500):
            await store.submit(tasks(store, 500))
        start = time.perf_counter()
        done = sum(await asyncio.gather(*(_claimer(store, commit) for _ in range(claimers))))
        rate = count / (time.perf_counter() - start)
        assert done == count
        await commit.close()
        await store.close()
    return rate


async def _claimer(store: SqliteStore, commit: GroupCommit) -> int:
    done = 0
    while claimed := (await store.claim(_want(100))).tasks:
        now = store.now()
        answers = await commit.settle_many([lifecycle.settle(task, Returned(NULL), now, 0.5) for task in claimed])
        assert all(answer == "written" for answer in answers)
        done += len(answers)
    return done


def _want(limit: int, **more: object) -> Want:
    return Want(worker_id="bench", lease_id=SYSTEM.new_id(), limit=limit, ttl=60, **more)  # pyright: ignore[reportArgumentType]


def _submit_without_end(path: Path, go: Event, stop: Event) -> None:
    async def run() -> None:
        store = SqliteStore(path)
        await store.open()
        commit = GroupCommit(store)

        async def caller() -> None:
            while not stop.is_set():
                await commit.submit(tasks(store, 1)[0])

        go.set()
        await asyncio.gather(*(caller() for _ in range(50)))
        await commit.close()
        await store.close()

    asyncio.run(run())


async def fair(rounds: int) -> str:
    """Single submits in a third process while two submit at full speed."""
    context = multiprocessing.get_context("spawn")
    times: list[float] = []
    for _ in range(rounds):
        with fresh_file() as path:
            store = SqliteStore(path)
            await store.open()
            stop = context.Event()
            started = [context.Event() for _ in range(2)]
            others = [context.Process(target=_submit_without_end, args=(path, go, stop)) for go in started]
            for other in others:
                other.start()
            for go in started:
                await asyncio.to_thread(go.wait)
            for _ in range(200):
                (task,) = tasks(store, 1)
                start = time.perf_counter()
                await store.submit([task])
                times.append((time.perf_counter() - start) * 1000)
                await asyncio.sleep(0.01)
            stop.set()
            for other in others:
                await asyncio.to_thread(other.join)
            await store.close()
    rows = [(f"{percentile(times, 0.5):.1f}", f"{percentile(times, 0.99):.1f}", f"{max(times):.1f}", len(times))]
    return table(
        "One submit while two processes submit at full speed, ms (bar: p99 50)", ("p50", "p99", "max", "n"), rows
    )


async def growth(rounds: int, scale: float) -> str:
    """A claim of 10 on a small store and on one with a large backlog that does not concern it."""
    small: list[float] = []
    large: list[float] = []
    with fresh_file() as small_path, fresh_file() as large_path:
        little, big = SqliteStore(small_path), SqliteStore(large_path)
        await little.open()
        await big.open()
        await _backlog(big, scale)
        claims = 200 * rounds
        # The 100 tasks of the small store; both stores get the same ones, and get them again when they are used up.
        for start in range(0, claims, 10):
            for store in (little, big):
                await store.submit(tasks(store, 100))
            for store, times in [(little, small), (big, large)] * 10:
                began = time.perf_counter()
                claimed = await store.claim(_want(10, types=frozenset({"send_email"})))
                times.append((time.perf_counter() - began) * 1000)
                assert len(claimed.tasks) == 10, start
        await little.close()
        await big.close()
    head = ("", "p50", "p99")
    rows = [
        ("100 tasks", f"{median(small):.3f}", f"{percentile(small, 0.99):.3f}"),
        (_backlog_words(scale), f"{median(large):.3f}", f"{percentile(large, 0.99):.3f}"),
        ("ratio (bar: 2)", f"{median(large) / median(small):.2f}", ""),
    ]
    return table("Claim of 10, ms", head, rows)


def _backlog_words(scale: float) -> str:
    return (
        f"{round(1_000_000 * scale):,} in other lanes, {round(200_000 * scale):,} delayed, "
        f"{round(200_000 * scale):,} backing off with old ranks, {round(1_000_000 * scale):,} done"
    )


async def _backlog(store: SqliteStore, scale: float) -> None:
    """Through the seam, so that it is what users would have."""
    hour = SYSTEM.now().replace(year=SYSTEM.now().year + 1)
    for _ in range(round(200 * scale)):
        await store.submit(tasks(store, 1000, run_after=hour))
    done = round(1_200_000 * scale)
    backing_off = round(200_000 * scale)
    for start in range(0, done, 500):
        await store.submit(tasks(store, 500))
        claimed = await store.claim(_want(500))
        now = store.now()
        settlements = [lifecycle.settle(task, Returned(NULL), now, 0.5) for task in claimed.tasks]
        if start < backing_off:
            later = {"state": "pending", "failures": 1, "available_at": hour}
            settlements = [replace(settlement, **later) for settlement in settlements]
        await store.settle(settlements)
    for number in range(round(1000 * scale)):
        await store.submit(tasks(store, 1000, type=f"other_{number % 50}"))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["submit", "drain", "fair", "growth"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the backlog of `growth`")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = [f"`{command()}`", ""]
    for part in options.parts:
        match part:
            case "submit":
                report.append(await submit(options.rounds))
            case "drain":
                report.append(await drain(options.rounds))
            case "fair":
                report.append(await fair(options.rounds))
            case "growth":
                report.append(await growth(options.rounds, options.scale))
            case _:
                parser.error(f"no part {part!r}")
        print(report[-1], flush=True)
    report.append(machine())
    print(report[-1])
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("# The core, measured\n\nMade by `make bench`, or by\n" + "\n".join(report) + "\n")


if __name__ == "__main__":
    asyncio.run(main())

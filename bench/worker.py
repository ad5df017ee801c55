"""The bars of the worker on SQLite, beside Huey in the same run: drain, latency, idle cost, recovery after kill -9.

python -m bench.worker [drain] [latency] [idle] [recovery] [--rounds N] [--out FILE]
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
import venv
from collections.abc import Awaitable, Callable
from pathlib import Path

import qo
from bench.tools import command, fresh_file, machine, median, percentile, spread, table

HUEY = "huey==3.5.4"
ROOT = Path(__file__).parent.parent
COUNT = 20_000


def huey_python() -> Path:
    """The interpreter of Huey's own environment, made on first use."""
    folder = ROOT / ".venv-bench-huey"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", HUEY], check=True)
    return python


def huey(*arguments: object) -> list[float]:
    """Run the peer; the numbers it printed."""
    line = [huey_python(), ROOT / "bench" / "huey_peer.py", *map(str, arguments)]
    output = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    return [float(value) for value in output.split()]


def environment(path: Path) -> dict[str, str]:
    return {**os.environ, "QO_URL": f"sqlite:///{path}", "QO_LOG": "error"}


def module(name: str, path: Path, *arguments: object) -> str:
    """Run a module of this package in a process of its own; what it printed."""
    line = [sys.executable, "-m", name, *map(str, arguments)]
    return subprocess.run(line, cwd=ROOT, env=environment(path), check=True, capture_output=True, text=True).stdout


def start_worker(path: Path, *arguments: object) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "qo", "worker", "bench.app:q", *map(str, arguments)]
    return subprocess.Popen(line, cwd=ROOT, env=environment(path))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Look every few milliseconds until it holds."""
    while not await holds():  # noqa: ASYNC110 - another process changes it
        await asyncio.sleep(0.01)


async def fill(path: Path, type: str) -> float:
    """Submit the tasks of a drain; the rate of submit_many."""
    async with qo.Queue(f"sqlite:///{path}") as q:
        start = time.perf_counter()
        await q.submit_many([q.call(type, {"number": number}) for number in range(COUNT)])
        return COUNT / (time.perf_counter() - start)


async def drain(rounds: int) -> str:
    """20,000 tasks that do nothing, one worker process; results, history, leases and fencing on."""
    rates: dict[str, list[float]] = {}

    def note(name: str, rate: float) -> None:
        rates.setdefault(name, []).append(rate)

    for _ in range(rounds):
        for name, type, concurrency in [
            ("qo, async, 100 at once", "nothing", 100),
            ("qo, async, 10 at once (default)", "nothing", 10),
            ("qo, plain functions in threads, 100 at once", "nothing_in_a_thread", 100),
        ]:
            with fresh_file() as path:
                note("qo: submit_many", await fill(path, type))
                note(name, float(module("bench.drain_qo", path, concurrency, type)))
        with fresh_file() as path:
            submitted, drained = huey("drain", path, COUNT // 4, 4)
            note("Huey: submit one by one", submitted)
            note("Huey, 4 threads", drained)
    ratio = median(rates["qo, async, 100 at once"]) / median(rates["Huey, 4 threads"])
    rows = [(name, spread(values)) for name, values in rates.items()]
    rows.append(("qo, async, 100 at once / Huey (bar: 5)", f"{ratio:.1f}"))
    return table("Drain, tasks/s (bar: 10,000)", ("", "median (range)"), rows)


async def latency(rounds: int) -> str:
    """From submit in one process to the start of the handler in another, which was idle; 20 ms apart."""
    mine: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        with fresh_file() as path:
            worker = start_worker(path)
            async with qo.Queue(f"sqlite:///{path}") as q:
                first = await q.submit("when", {"sent": time.time()})
                await first.result(timeout=30)
                for _ in range(200):
                    task = await q.submit("when", {"sent": time.time()})
                    await asyncio.sleep(0.02)
                    mine.append(await task.result(timeout=30) * 1000)
            worker.terminate()
            worker.wait()
        with fresh_file() as path:
            theirs += [value * 1000 for value in huey("latency", path, 200)]
    rows = [
        (name, f"{percentile(times, 0.5):.1f}", f"{percentile(times, 0.99):.1f}")
        for name, times in (("qo", mine), ("Huey", theirs))
    ]
    return table("Pickup latency with an idle worker, ms (bar: p50 5)", ("", "p50", "p99"), rows)


async def idle(rounds: int) -> str:
    """What a worker costs that has nothing to do."""
    with fresh_file() as path:
        worker = start_worker(path)
        async with qo.Queue(f"sqlite:///{path}") as q:
            await (await q.submit("nothing", {"number": 1})).result(timeout=30)
        await asyncio.sleep(3)
        before, start = _cpu(worker.pid), time.monotonic()
        await asyncio.sleep(20 * rounds)
        share = (_cpu(worker.pid) - before) / (time.monotonic() - start) * 100
        memory = _memory(worker.pid)
        worker.terminate()
        worker.wait()
    rows = [(f"{share:.2f} %", f"{memory:.0f} MB")]
    return table("Idle worker (bars: 0.5 % of a core, 60 MB)", ("CPU", "memory (RSS)"), rows)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def recovery(rounds: int) -> str:
    """How long until all 50 tasks of a worker that was killed by -9 run again in another one, default settings."""
    times: list[float] = []
    for _ in range(rounds):
        with fresh_file() as path:
            async with qo.Queue(f"sqlite:///{path}") as q:
                await q.submit_many([q.call("long", {"number": number}) for number in range(50)])
                first = start_worker(path, "--concurrency", 50)

                async def running(attempt: int) -> bool:
                    page = await q.find(state="running", limit=100)
                    return sum(task.attempt == attempt for task in page.tasks) == 50

                await until(lambda: running(1))
                second = start_worker(path, "--concurrency", 50)
                await until(lambda: _two_workers(q))
                start = time.perf_counter()
                os.kill(first.pid, signal.SIGKILL)
                await until(lambda: running(2))
                times.append(time.perf_counter() - start)
                first.wait()
                second.kill()
                second.wait()
    rows = [(f"{median(times):.1f}", f"{max(times):.1f}")]
    return table("All 50 tasks of a killed worker run again, s (bar: 3)", ("median", "max"), rows)


async def _two_workers(q: qo.Queue) -> bool:
    return len(await q.workers()) == 2


async def main() -> None:
    parser = argparse.ArgumentParser()
    parts = {"drain": drain, "latency": latency, "idle": idle, "recovery": recovery}
    parser.add_argument("parts", nargs="*", default=list(parts))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    report = [f"`{command()}`", ""]
    for part in options.parts:
        if part not in parts:
            parser.error(f"no part {part!r}; there are {', '.join(parts)}")
        report.append(await parts[part](options.rounds))
        print(report[-1], flush=True)
    report.append(machine())
    print(report[-1])
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        title = "# The worker on SQLite, measured\n\nMade by `make bench`, or by\n"
        options.out.write_text(title + "\n".join(report) + "\n")


if __name__ == "__main__":
    asyncio.run(main())

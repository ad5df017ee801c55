"""`qo monitor`: upkeep alone, beside workers that do none."""

import asyncio
import logging
import signal
from datetime import datetime

import click

from qo.cli.frame import duration, given, queue_of, store_options
from qo.cli.said import Said
from qo.cli.show import counted, span
from qo.clock import wait_until
from qo.errors import QoError
from qo.logs import configure
from qo.queue import Queue
from qo.settings import Settings
from qo.units import show_url
from qo.worker.upkeep import DEFAULT_INTERVAL, Upkeep, expire_once, keep_retention

log = logging.getLogger("qo.monitor")


class Watch:
    """Tells about workers that went silent, and those that came back."""

    def __init__(self, queue: Queue, dead_after: float) -> None:
        self._queue = queue
        self._dead_after = dead_after
        self._silent: set[str] = set()

    async def look(self, now: datetime) -> None:
        """Compare with the last look."""
        silent: set[str] = set()
        for worker in await self._queue.workers():
            age = (now - worker.heartbeat_at).total_seconds()
            if age <= self._dead_after:
                continue
            silent.add(worker.id)
            if worker.id not in self._silent:
                held = counted(len(worker.running), "task")
                log.warning("worker %s is silent for %s; it held %s", worker.id, span(age), held)
        for id in self._silent - silent:
            log.info("worker %s is back, or forgotten", id)
        self._silent = silent


async def run(queue: Queue, settings: Settings) -> None:
    """Until SIGTERM or SIGINT. The store may go away and come back."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    interval = settings.upkeep_interval or DEFAULT_INTERVAL
    async with queue:
        store = (await queue.session()).store
        upkeep, watch = Upkeep(store, queue.name, settings, queue.clock), Watch(queue, settings.worker_dead_after)
        log.info("monitor of %s looks every %g s", show_url(queue.url), interval)
        while not stop.is_set():
            await upkeep.round()
            try:
                await watch.look(store.now())
            except QoError as error:
                log.warning("the workers cannot be seen: %s", error)
            await wait_until(stop, queue.clock, interval * (0.75 + queue.clock.chance() / 2))
    log.info("monitor stopped")


async def run_once(queue: Queue, settings: Settings) -> None:
    """One round, for cron."""
    async with queue:
        store = (await queue.session()).store
        expired = await expire_once(store, queue.clock, settings.max_losses)
        purged = await keep_retention(store, queue.name, settings)
    log.info("%s expired, %s purged", counted(expired, "lease"), counted(purged, "task"))


@click.command("monitor", short_help="Give back the tasks of lost workers, without running any.")
@click.option(
    "--interval", "--check-interval", type=duration, metavar="TIME", help="How often to look; else as the store likes."
)
@click.option(
    "--worker-health-threshold", type=duration, metavar="TIME", help="Silence after which a worker is called dead."
)
@click.option("--once", is_flag=True, help="One round, then end; for cron.")
@click.option("--log", "log_level", type=click.Choice(["debug", "info", "warning", "error"]), help="What is logged.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Logs for people or for machines.")
@store_options(json=False)
def command(
    said: Said,
    interval: float | None,
    worker_health_threshold: float | None,
    once: bool,
    log_level: str | None,
    log_format: str | None,
) -> None:
    """Do the upkeep without running tasks, until SIGTERM: give the tasks of lost workers back, keep to the retention.

    Every worker does this too; a monitor is for fleets whose workers run with --no-upkeep.
    """
    queue = queue_of(said)
    changes = given(
        upkeep_interval=interval, worker_dead_after=worker_health_threshold, log=log_level, log_format=log_format
    )
    # A threshold below the heartbeat would call every worker dead; here only the threshold matters.
    if worker_health_threshold is not None and worker_health_threshold <= queue.settings.heartbeat:
        changes["heartbeat"] = worker_health_threshold / 3
    settings = queue.settings.override(**changes)
    configure(settings.log, "json" if settings.log_format == "json" else "text")
    asyncio.run(run_once(queue, settings) if once else run(queue, settings))

"""`qo rate-limit`: how many tasks a second a worker may start."""

import click

from qo.cli.controls import show
from qo.cli.frame import store_options, with_queue
from qo.cli.said import Said


def rate(text: str) -> float:
    """Tasks a second; 10, 0.5, or 30/m."""
    number, slash, unit = text.partition("/")
    sizes = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
    try:
        value = float(number) / sizes[unit.strip() if slash else ""]
        if not 0 <= value < float("inf"):
            raise ValueError
    except (KeyError, ValueError):
        raise click.BadParameter(
            f"{text!r} is not a rate; write tasks a second, or 30/m, 1000/h; 0: no limit"
        ) from None
    return value


@click.command("rate-limit", short_help="Limit how many tasks a second each worker starts.")
@click.argument("limit", metavar="RATE", type=rate)
@click.argument("type", metavar="[TYPE]", required=False)
@store_options()
def command(said: Said, limit: float, type: str | None) -> None:
    """Let each worker process start at most RATE tasks, or tasks of TYPE, a second; 0 takes the limit away.

    RATE is a number, or 30/m, 1000/h. Workers follow within seconds.
    """
    show(said, with_queue(said, lambda queue: queue.set_rate_limit(limit, type), create=True))

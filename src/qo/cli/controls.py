"""How `pause`, `resume` and `rate-limit` answer: with all that holds now."""

import click
import msgspec

from qo.cli.said import Said
from qo.cli.show import emit, plain
from qo.records import Controls


def show(said: Said, controls: Controls) -> None:
    """The controls of the queue, however they were changed."""
    if said.json:
        emit(msgspec.structs.asdict(controls) | {"paused_types": sorted(controls.paused_types)})
        return
    parts = ["paused" if controls.paused else "not paused"]
    if controls.paused_types:
        parts.append(f"paused types: {', '.join(sorted(controls.paused_types))}")
    if controls.rate_limit:
        parts.append(f"at most {controls.rate_limit:g} tasks/s for each worker")
    parts += [f"at most {limit:g}/s of {name}" for name, limit in sorted(controls.rate_limits.items())]
    click.echo(f"queue {said.queue or 'default'}: {plain('; '.join(parts))}")

"""`qo config`: every setting, its value, and who said it."""

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from qo.settings import PRECEDENCE, ROWS, Settings, load
from qo.units import show_bytes, show_seconds, show_url

_ORDER = " > ".join(PRECEDENCE)


def show(name: str, value: object) -> str:
    """A setting as text that can be written back into the environment; secrets are hidden."""
    if name == "url":
        return show_url(str(value))
    if name.endswith("_bytes") and isinstance(value, int):
        return show_bytes(value)
    return show_seconds(value) if isinstance(value, float) or value is None else str(value)


def as_json(settings: Settings) -> bytes:
    """For machines: durations in seconds, sizes in bytes, `forever` as that word because JSON has no infinity."""
    rows: list[dict[str, object]] = []
    for name, row in ROWS.items():
        said = settings.sourced(name)
        value = show(name, said.value) if name == "url" or said.value == float("inf") else said.value
        rows.append(
            {"name": name, "value": value, "source": said.source, "environment": row.environment, "help": row.help}
        )
    return msgspec.json.format(
        msgspec.json.encode({"settings": rows, "precedence": PRECEDENCE, "warnings": settings.warnings}), indent=2
    )


def as_table(settings: Settings) -> Table:
    """For people; what is not a default stands out."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("source", overflow="fold")
    table.add_column("environment", no_wrap=True)
    for name, row in ROWS.items():
        said = settings.sourced(name)
        # The variable's name stands in the next column; S3_BUCKET does not.
        source = said.source.removesuffix(f" {row.environment}")
        style = "dim" if source == "default" else "green"
        table.add_row(name, Text(show(name, said.value)), Text(source, style), row.environment)
    return table


@click.command(
    "config",
    short_help="Show every setting, its value and where it comes from.",
    help=f"""Show every setting, its value, and where the value comes from.

    The first that says something wins: {_ORDER}.

    The environment is QO_* (and S3_BUCKET), pyproject.toml is the nearest one, table [tool.qo]; argument, task, type,
    priority level and queue are said in Python or by options and are not shown here.

    Durations are seconds or 10s, 5m, 24h, 7d; sizes are bytes or 64KiB, 1MiB.""",
)
@click.option("--json", "json", is_flag=True, help="Print JSON for machines.")
def command(json: bool) -> None:
    """Show every setting."""
    settings = load()
    if json:
        click.echo(as_json(settings))
        return
    console = Console(highlight=False)
    console.print(as_table(settings))
    console.print(Text(f"\nThe first that says something wins: {_ORDER}.", "dim"))
    for warning in settings.warnings:
        Console(stderr=True, highlight=False).print(Text(f"qo: warning: {warning}", "yellow"))

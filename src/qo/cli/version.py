"""`qo version`: what is installed."""

import platform
import sqlite3

import click

from qo import __version__
from qo.cli.show import emit


@click.command("version")
@click.option("--json", "json", is_flag=True, help="Print JSON for machines.")
def command(json: bool) -> None:
    """Show the versions of qo, Python and SQLite."""
    found = {"qo": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    if json:
        emit(found)
    else:
        click.echo("\n".join(f"{name:<7} {version}" for name, version in found.items()))

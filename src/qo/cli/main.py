"""The entry point: finds the commands and turns errors into exit codes.

A command is a module of this package with a click command named `command`; add its name to COMMANDS, in the order of
the help. It is imported only when it is asked for, so that `qo config` does not pay for the server. Commands raise
QoError and never exit by themselves.
"""

import importlib
from typing import Any

import click

from qo import __version__
from qo.errors import QoError, TaskNotFound, Unavailable, UsageError

COMMANDS = ("config",)


def exit_code(error: QoError) -> int:
    """1 failed, 2 wrong usage, 3 not found, 4 store not reachable."""
    codes = ((UsageError, 2), (TaskNotFound, 3), (Unavailable, 4))
    return next((code for kind, code in codes if isinstance(error, kind)), 1)


class Commands(click.Group):
    """The commands of this package, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"qo.cli.{cmd_name.replace('-', '_')}").command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except QoError as error:
            click.echo(f"qo: {' '.join(str(error).split())}", err=True)
            ctx.exit(exit_code(error))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="qo")
def main() -> None:
    """A task queue that lives in the storage you already have.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 store not reachable.
    """

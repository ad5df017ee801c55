"""The entry point: finds the commands and turns errors into one line on stderr and an exit code.

A command is a module of this package with a click command named `command`; add its name to SECTIONS, in the order of
the help. It is imported only when it is asked for, so that `qo config` does not pay for the rest. Commands raise
QoError, or call `ctx.exit` when the answer itself is a failure.
"""

import difflib
import importlib
import logging
import sys
from typing import Any

import click

from qo import __version__
from qo.cli.said import Said
from qo.errors import IllegalTransition, QoError, TaskNotFound, Unavailable, UsageError

SECTIONS: dict[str, tuple[str, ...]] = {
    "Tasks": (
        "submit",
        "result",
        "status",
        "history",
        "list",
        "cancel",
        "replay",
        "archive",
        "unarchive",
        "delete",
        "purge",
    ),
    "Queue": ("stats", "types", "pause", "resume", "rate-limit"),
    "Workers": ("worker", "workers", "monitor"),
    "Set up": ("demo", "config", "migrate", "completion", "version"),
}
COMMANDS = tuple(name for names in SECTIONS.values() for name in names)
ALIASES = {"retry": "replay"}


def exit_code(error: QoError) -> int:
    """1 failed, 2 wrong usage, 3 not found, 4 store not reachable. A task in the wrong state is no wrong usage."""
    codes = ((IllegalTransition, 1), (UsageError, 2), (TaskNotFound, 3), (Unavailable, 4))
    return next((code for kind, code in codes if isinstance(error, kind)), 1)


def complain(message: str) -> None:
    """One line on stderr."""
    click.echo(f"qo: {' '.join(message.split())}", err=True)


class Commands(click.Group):
    """The commands of this package, imported on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        return importlib.import_module(f"qo.cli.{name.replace('-', '_')}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = (*COMMANDS, *ALIASES)
        if args and args[0] not in known and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else "`qo` alone lists them"
            raise UsageError(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Descriptions of all sections stand in one column.
        width = max(map(len, COMMANDS))
        limit = formatter.width - 6 - width
        for title, names in SECTIONS.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), one.get_short_help_str(limit)) for name, one in found if one is not None]
                )

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except QoError as error:
            complain(str(error))
            for note in getattr(error, "__notes__", ()):
                logging.getLogger("qo").debug("%s", note)
            ctx.exit(exit_code(error))

    def main(self, *args: Any, **more: Any) -> Any:
        """Like click's, with wrong usage said in one line."""
        if not more.pop("standalone_mode", True):
            return super().main(*args, standalone_mode=False, **more)
        code: object = 1
        try:
            code = super().main(*args, standalone_mode=False, **more)
        except click.exceptions.Abort:
            complain("aborted")
        except click.ClickException as error:
            where = getattr(error, "ctx", None)
            path = where.command_path if where is not None else "qo"
            message = error.format_message()
            message = message if message[:2].isupper() else message[:1].lower() + message[1:]
            # Ours say what to write; click's own only what is wrong.
            hint = "" if type(error) is click.BadParameter else f" (see {path} --help)"
            complain(f"{message.rstrip('.')}{hint}")
            code = error.exit_code
        sys.exit(code if isinstance(code, int) else 0)


class _Warnings(logging.Handler):
    """What qo has to say beside a command's answer."""

    def emit(self, record: logging.LogRecord) -> None:
        complain(f"{record.levelname.lower()}: {record.getMessage()}")


@click.command(
    cls=Commands, name="qo", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option("--url", metavar="URL", help="Where the queue lives; else QO_URL, else sqlite:///qo.db.")
@click.option("--queue", metavar="NAME", help="Which queue there; else default.")
@click.version_option(__version__, prog_name="qo")
@click.pass_context
def main(ctx: click.Context, url: str | None, queue: str | None) -> None:
    """A task queue that lives in the storage you already have.

    Start with `qo demo`. `qo COMMAND --help` explains a command; --url, --queue and --json may follow any of them.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 store not reachable.
    """
    ctx.obj = Said(url=url, queue=queue)
    logger = logging.getLogger("qo")
    logger.handlers[:] = [_Warnings(logging.WARNING)]
    logger.propagate = False
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())

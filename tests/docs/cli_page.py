"""Makes docs/reference/cli.md from the commands themselves: python -m tests.docs.cli_page"""

import inspect
from pathlib import Path

import click

from qo.cli.main import ALIASES, SECTIONS, main

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
EVERYWHERE = ("url", "queue", "json")

HEAD = """\
# The command line

Made from the commands by `python -m tests.docs.cli_page`; a test fails when it is not up to date.

`qo COMMAND --help` shows the same in the terminal, `qo` alone the list of commands. `python -m qo` is `qo`.

| for all commands | |
|---|---|
| `--url URL` | Where the queue lives; else `QO_URL`, else `sqlite:///qo.db`. Before or after the command. |
| `--queue NAME` | Which queue there; else `default`. Before or after the command. |
| `--json` | JSON for machines, where a command prints data: one object, or one on each line; times are ISO 8601, UTC |

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed: the task failed, or its state does not allow it |
| 2 | wrong usage |
| 3 | not found |
| 4 | store not reachable |

Errors are one line on stderr. Colours are for terminals only; `NO_COLOR=1` turns them off there too. Durations are
seconds or `10s`, `5m`, `24h`, `7d`. Commands that change many tasks ask on a terminal, and want `--yes` elsewhere.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    context = click.Context(main, info_name="qo")
    for title, names in SECTIONS.items():
        parts.append(f"## {title}\n")
        for name in names:
            command = main.get_command(context, name)
            assert command is not None
            parts.append(section(command, click.Context(command, info_name=name, parent=context)))
    return "\n".join(parts)


def section(command: click.Command, context: click.Context) -> str:
    """One command: how it is called, what it does, its options."""
    aliases = "".join(f" (also `qo {alias}`)" for alias, name in ALIASES.items() if name == command.name)
    usage = " ".join(["qo", str(command.name), *command.collect_usage_pieces(context)])
    lines = [f"### qo {command.name}{aliases}\n", f"    {usage}\n", text(command.help or "")]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    own = [one for one in options if one.name not in EVERYWHERE]
    common = ", ".join(f"`--{one.name}`" for one in options if one.name in EVERYWHERE)
    if own:
        lines += ["| option | |", "|---|---|", *(row(one, context) for one in own), ""]
    if common:
        lines.append(f"And {common}.\n")
    return "\n".join(lines)


def row(option: click.Option, context: click.Context) -> str:
    """One line of the table."""
    spelled = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" `{option.make_metavar(context)}`".replace("|", "\\|")
    default = option.default if option.show_default else None
    shown = ", ".join(map(str, default)) if isinstance(default, tuple | list) else default
    more = f" Default: {shown}." if shown is not None else ""
    return f"| {spelled}{value} | {(option.help or '').strip()}{more} |"


def text(explanation: str) -> str:
    """The paragraphs of a command's help; those marked with \\b are examples."""
    paragraphs: list[str] = []
    for paragraph in inspect.cleandoc(explanation).split("\n\n"):
        if paragraph.startswith("\b\n"):
            paragraphs.append("\n".join(f"  {line}" for line in paragraph.splitlines()[1:]))
        else:
            paragraphs.append(" ".join(paragraph.split()))
    return "\n\n".join(paragraphs) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())

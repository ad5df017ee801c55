"""docs/reference/cli.md says what the commands do."""

import click
from tests.docs.cli_page import EVERYWHERE, PAGE, page

from qo.cli.main import COMMANDS, main


def test_page_is_up_to_date() -> None:
    """The page is the one that `python -m tests.docs.cli_page` makes now."""
    assert PAGE.read_text() == page(), "run: python -m tests.docs.cli_page"


def test_every_command_and_option_is_documented() -> None:
    """Each command has a section with each of its options, and each option a description."""
    context = click.Context(main, info_name="qo")
    sections = PAGE.read_text().split("\n### qo ")[1:]
    by_name = {section.split()[0]: section for section in sections}
    assert tuple(by_name) == COMMANDS
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        assert command.help, f"qo {name} has no help"
        for option in command.params:
            if not isinstance(option, click.Option) or option.hidden:
                continue
            assert option.help, f"qo {name} {option.opts[0]} has no description"
            assert f"`{option.opts[0]}`" in by_name[name] or option.name in EVERYWHERE


def test_commands_that_print_data_have_json() -> None:
    """Machines are served everywhere; worker, monitor and completion print no data."""
    context = click.Context(main, info_name="qo")
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        has = any(option.name == "json" for option in command.params)
        assert has is (name not in ("worker", "monitor", "completion"))

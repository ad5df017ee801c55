"""`qo completion`: commands and options completed by the shell."""

import click
from click.shell_completion import get_completion_class


@click.command("completion", short_help="Print the completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete qo's commands and options.

    \b
      bash  eval "$(qo completion bash)"                            in ~/.bashrc
      zsh   eval "$(qo completion zsh)"                             in ~/.zshrc
      fish  qo completion fish > ~/.config/fish/completions/qo.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "qo", "_QO_COMPLETE").source())

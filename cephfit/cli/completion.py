"""`cephfit completion`: the script that teaches a shell the commands."""

import click
from click.shell_completion import get_completion_class


@click.command("completion", short_help="Print the shell completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of SHELL.

    For bash: eval "$(cephfit completion bash)" in ~/.bashrc; for zsh the same in ~/.zshrc; for fish:
    cephfit completion fish > ~/.config/fish/completions/cephfit.fish
    """
    from cephfit.cli.main import cephfit

    completion_class = get_completion_class(shell)
    assert completion_class is not None, "the choice lists only shells that click knows"
    click.echo(completion_class(cephfit, {}, "cephfit", "_CEPHFIT_COMPLETE").source())

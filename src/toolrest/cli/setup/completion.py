"""`toolrest completion`: tab completion for the user's shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from toolrest.cli.app import app


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a completion script.

    \b
    bash: toolrest completion bash >> ~/.bashrc
    zsh:  toolrest completion zsh >> ~/.zshrc
    fish: toolrest completion fish > ~/.config/fish/completions/toolrest.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(app, {}, "toolrest", "_TOOLREST_COMPLETE").source())

"""`toolrest help`: the help of a command, or the list of all commands."""

from __future__ import annotations

import click

from toolrest.cli.app import SHOWS_ALL, Lazy, app


@click.command("help")
@click.argument("topic", metavar="[all|COMMAND]", required=False)
@click.pass_context
def command(ctx: click.Context, topic: str | None) -> None:
    """Explain COMMAND, list all commands, or show the commands that people start with."""
    root = ctx.find_root()
    if topic is None or topic == "all":
        root.meta[SHOWS_ALL] = topic == "all"
        click.echo(root.get_help())
        return
    found = app.get_command(root, topic)
    if found is None:
        raise click.UsageError(Lazy.unknown(app, topic), root)
    click.echo(click.Context(found, parent=root, info_name=topic).get_help())

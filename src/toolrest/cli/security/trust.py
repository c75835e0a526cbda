"""`toolrest trust`: let a folder's own settings count."""

from __future__ import annotations

import click

from toolrest.agent.path_policy import default_workspace
from toolrest.config import trust as store


@click.command("trust")
@click.option("--revoke", is_flag=True, help="Stop trusting the folder.")
@click.option("--show", is_flag=True, help="Only print whether the folder is trusted.")
@click.argument("folder", default=".", metavar="[DIR]")
def command(folder: str, revoke: bool, show: bool) -> None:
    """Trust DIR (default: this folder): its .toolrest/config.toml may then tighten settings.

    Trust also makes workspace-write the default sandbox mode there, and in the linked worktrees
    that a repository in DIR names. Even a trusted folder cannot set provider addresses or keys,
    weaken approvals or the sandbox, or start programs.
    """
    workspace = default_workspace(folder)
    if show:
        click.echo(store.trust_of(workspace) or "unknown")
    elif revoke:
        store.revoke(workspace)
        click.echo(f"{workspace} is not trusted any more")
    else:
        store.trust(workspace)
        click.echo(f"{workspace} is trusted")

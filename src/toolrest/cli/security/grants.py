"""`toolrest grants`: list and revoke the grants that outlive a session."""

from __future__ import annotations

import json
import os
import time

import click

from toolrest.config.files import toolrest_home
from toolrest.gate.approval.grants import Grant, revoke, revoke_all, stored_grants
from toolrest.policy.terminal_safe import display_safe


@click.group("grants")
def command() -> None:
    """List and revoke grants: approvals that outlive a session."""


def _home() -> str:
    return toolrest_home(None, os.environ)


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def listed(as_json: bool) -> None:
    """List the grants that were given for a project or for every session."""
    grants = stored_grants(_home())
    if as_json:
        click.echo(json.dumps([{"id": grant.id, **grant.to_json()} for grant in grants]))
        return
    for grant in grants:
        click.echo(_line(grant))
    if not grants:
        click.echo("no grants are kept", err=True)


@command.command("revoke")
@click.option("--all", "everything", is_flag=True, help="Revoke every grant.")
@click.option("--project", metavar="DIR", help="Revoke every grant for the project DIR.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
def revoked(ids: tuple[str, ...], everything: bool, project: str | None) -> None:
    """Revoke grants by their ids, or the first letters of them.

    Running sessions notice at once.
    """
    if (bool(ids), everything, project is not None).count(True) != 1:
        raise click.UsageError("name ids, or give --all, or --project DIR")
    if ids:
        gone = revoke(_home(), ids)
    else:
        gone = revoke_all(_home(), None if project is None else os.path.realpath(project))
    for grant in gone:
        click.echo(f"revoked {_line(grant)}")


def _line(grant: Grant) -> str:
    day = time.strftime("%Y-%m-%d", time.localtime(grant.created))
    where = f" {grant.project}" if grant.project else ""
    line = f"{grant.id}  {day}  {grant.scope}{where}: {grant.key.sentence()}"
    return display_safe(line)

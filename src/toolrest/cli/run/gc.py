"""`toolrest gc`: remove old sessions, spill files, logs, audit logs and checkpoints."""

from __future__ import annotations

import os
from typing import Any

import click

from toolrest.agent.history.cleanup import DAY, collect
from toolrest.agent.setup.leftovers import clear
from toolrest.agent.undo.gc import collect_all
from toolrest.cli.terminal.progress import progress
from toolrest.config.files import toolrest_home
from toolrest.config.loader import load
from toolrest.config.schema.types import parse_size
from toolrest.control.sockets import sweep


def _size(context: click.Context, parameter: click.Parameter, value: str) -> int:
    try:
        return int(parse_size(int(value) if value.isdigit() else value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command("gc")
@click.option(
    "--days",
    type=click.FloatRange(min=0),
    default=30,
    show_default=True,
    help="Remove what is over this age.",
)
@click.option(
    "--max-size",
    callback=_size,
    default="2GB",
    show_default=True,
    help="Keep at most this much of each kind.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Only list it; remove nothing.")
def command(days: float, max_size: int, dry_run: bool) -> None:
    """Remove what is older than --days, and the oldest of each kind beyond --max-size.

    Removes sessions, spill files, logs, reports, audit logs, homes of batch tasks, approval
    requests and checkpoints (which `toolrest undo` needs). Open sessions stay. Audit logs go by age
    alone; one that all sessions share stays. Approval requests stay for a week after they expired.
    Takes back patches that a crash cut off, and removes what crashed sessions left in folders.
    """
    home = toolrest_home(None, os.environ)
    limits: dict[str, Any] = {"max_age": days * DAY, "max_size": max_size, "dry_run": dry_run}
    folder, shared = load(surface="cli").audit_place
    with progress("looking for old files"):
        kinds = collect(home, "" if shared else folder, **limits)
    for removed in kinds:
        _tell(removed.kind, removed.count, removed.bytes, dry_run)
        if removed.problems:
            click.echo(f"toolrest: cannot remove {removed.problems} of {removed.kind}", err=True)
    with progress("looking through checkpoints"):
        found = collect_all(home, **limits)
    if not dry_run:
        for line in cleared(home):
            click.echo(f"toolrest: {line}", err=True)
    _tell("checkpoints", sum(c.turns for c in found), sum(c.freed for c in found), dry_run)
    for collected in found:
        if collected.problem:
            click.echo(f"toolrest: {collected.workspace}: {collected.problem}", err=True)


def cleared(home: str, workspace: str | None = None) -> list[str]:
    """Clear what killed sessions left; messages about patches that were taken back.

    In all folders: placeholders and sockets. Patches in the workspace, or without one everywhere.
    """
    sweep(home)
    return clear(home, workspace)


def _tell(kind: str, count: int, size: int, dry_run: bool) -> None:
    verb = "would be removed" if dry_run else "removed"
    click.echo(f"{kind}: {count} {verb}, {size:,} bytes")

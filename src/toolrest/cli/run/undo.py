"""`toolrest undo`: take back what the tools of a turn have changed, files and commands alike."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click

from toolrest.agent.path_policy import default_workspace
from toolrest.agent.undo.checkpoints import Checkpoints
from toolrest.agent.undo.records import UndoError
from toolrest.agent.undo.scan import KeepLimits
from toolrest.cli.terminal.progress import progress
from toolrest.config.loader import load
from toolrest.errors import ConfigError
from toolrest.timeline.text import shown

if TYPE_CHECKING:
    from toolrest.agent.undo.plan import Kept, RecordedTurn, UndoPlan

_SHOWN = 50


@click.command("undo")
@click.option("--turn", type=int, metavar="N", help="Go back to before turn N.")
@click.option("--list", "show_list", is_flag=True, help="List the turns that can be undone.")
@click.option("--dry-run", is_flag=True, help="Print what would happen; change nothing.")
@click.option("--force", is_flag=True, help="Also take back what you or others changed since.")
@click.option(
    "-C", "--cd", "folder", metavar="DIR", help="Undo in this folder instead of the current one."
)
def command(
    turn: int | None, show_list: bool, dry_run: bool, force: bool, folder: str | None
) -> None:
    """Take back what the newest turn changed in this folder, or turn N and all after it.

    Only paths that these turns changed are touched. What you changed yourself since then stays
    (use --force for those), and the undo itself can be undone. Exit code 1: something stayed.
    Where turns of other sessions ran at the same time, it says which paths may be theirs, and asks.
    """
    checkpoints = _open(folder)
    if show_list:
        _list(checkpoints.turns())
        return
    if dry_run or not force:
        with progress("comparing files"):
            plan = checkpoints.preview(turn, force=force)
        if dry_run:
            _tell(plan, "would be")
        _tell_shared(plan, checkpoints)
        if dry_run:
            return
        if plan.shared:
            _ask()
        turn = plan.turn  # not a newer one that has ended meanwhile
    _undo(checkpoints, turn, force)


def _tell_shared(plan: UndoPlan, checkpoints: Checkpoints) -> None:
    """Say which paths may be the work of other sessions, and of which."""
    if not plan.shared:
        return
    turns = {turn.number: turn for turn in checkpoints.turns()}
    click.echo(f"{_paths(len(plan.shared))} may be the work of other sessions that ran meanwhile:")
    for path, number in list(plan.shared.items())[:_SHOWN]:
        turn = turns[number]
        whose = f"turn {number} of session {turn.session[:8] or '?'}"
        click.echo(f"  {shown(path)}: {whose} ({shown(turn.label)})")
    if len(plan.shared) > _SHOWN:
        click.echo(f"  and {len(plan.shared) - _SHOWN} more")


def _ask() -> None:
    """Ask whether other sessions' work may go; where nobody can answer, nothing is done."""
    if not all(file is not None and file.isatty() for file in (sys.stdin, sys.stderr)):
        raise UndoError("nothing was put back; --force puts these back, too")
    if not click.confirm("Put these back, too?", default=False, err=True):
        click.echo("nothing was put back", err=True)
        sys.exit(1)


def _undo(checkpoints: Checkpoints, turn: int | None, force: bool) -> None:
    with progress("putting files back"):
        result = checkpoints.undo(turn, force=force, tell=lambda plan: _tell(plan, "will be"))
    for kept in result.failed:
        click.echo(f"  not done: {shown(kept.path)}: {shown(kept.why)}", err=True)
    if result.number is not None:
        click.echo(
            f"{len(result.done)} of {len(result.plan.items)} put back. "
            f"To take this back: toolrest undo --turn {result.number}"
        )
    sys.exit(1 if result.failed or result.plan.kept or result.plan.lost else 0)


def _open(folder: str | None) -> Checkpoints:
    workspace = default_workspace(folder)
    config = load(workspace=workspace, surface="cli")
    settings = config.value.checkpoints
    limits = KeepLimits(file=settings.max_file_size, total=settings.max_size)
    checkpoints = Checkpoints(config.home, workspace, limits)
    if not checkpoints.exists:
        above = workspace
        while (parent := os.path.dirname(above)) != above:
            above = parent
            if Checkpoints(config.home, above).exists:
                raise ConfigError(
                    f"no turn has changed {workspace}, but some have {above} (use -C {above})"
                )
        raise ConfigError(f"there is nothing to undo: no checkpoint of {workspace}")
    return checkpoints


def _list(turns: list[RecordedTurn]) -> None:
    listed = [turn for turn in turns if turn.changed or turn.status == "open"]
    if not listed:
        click.echo("no turn has changed anything")
    for turn in listed:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(turn.time))
        state = "undone" if turn.undone else turn.status
        size = _paths(turn.changed)
        click.echo(f"{turn.number:>5}  {when}  {state:<11}  {size:>11}  {shown(turn.label)}")


def _tell(plan: UndoPlan, verb: str) -> None:
    what = "turn " if len(plan.undoes) == 1 else "turns "
    what += ", ".join(str(number) for number in plan.undoes[:10])
    more = f" and {len(plan.undoes) - 10} more" if plan.undoes[10:] else ""
    click.echo(f"{what}{more}: {_paths(len(plan.items))} {verb} put back")
    for item in plan.items[:_SHOWN]:
        click.echo(f"  {item.action} {shown(item.path)}")
    if plan.items[_SHOWN:]:
        click.echo(f"  and {len(plan.items) - _SHOWN} more")
    _say(plan.kept, "stays as it is (--force takes it back)")
    _say(plan.lost, "cannot be brought back, it was not saved")
    lost = {kept.path for kept in plan.lost}
    _say([kept for kept in plan.left_out if kept.path not in lost], "not saved by checkpoints")


def _paths(number: int) -> str:
    return "1 path" if number == 1 else f"{number} paths"


def _say(paths: list[Kept], what: str) -> None:
    for kept in paths[:_SHOWN]:
        click.echo(f"  {what}: {shown(kept.path)} ({kept.why})")
    if paths[_SHOWN:]:
        click.echo(f"  {what}: {len(paths) - _SHOWN} more")

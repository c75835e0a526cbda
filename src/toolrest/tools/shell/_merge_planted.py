"""Would PATH run a file of the workspace in place of the system's program of that name?

A command is known to be harmless, or allowed to leave the sandbox, by its name. Where PATH leads
through a folder that a project brings along or a tool can write, the name may mean another file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolrest.policy.paths.names import unique
from toolrest.policy.verdict.verdict import Kind
from toolrest.sandbox.programs import path_entries_inside

if TYPE_CHECKING:
    from toolrest.gate.context import Context
    from toolrest.policy.verdict.verdict import Segment, Verdict

RULE = "path.planted"


def expose(verdict: Verdict, ctx: Context) -> None:
    """Commands that seemed harmless and may be such files no longer seem so."""
    if any(segment.kind < Kind.RUNS for segment in verdict.segments):
        planted(verdict, ctx)


def planted(verdict: Verdict, ctx: Context) -> bool:
    """Whether one of the commands may be such a file; looked at once a call, if anybody asks."""
    found: bool | None = ctx.memo.get("planted")
    if found is None:
        found = ctx.memo["planted"] = _search(verdict, ctx)
    return found


def _search(verdict: Verdict, ctx: Context) -> bool:
    environment, _, _ = ctx.runner.environment(unified=False)
    path = environment.get("PATH", os.defpath)
    roots = unique(root for root in (ctx.workspace, *ctx.files.writable_roots) if root != "/")
    suspects = path_entries_inside(roots, path)
    if not suspects:
        return False
    found = False
    for segment in verdict.segments:
        instead = _instead(segment, path, suspects, ctx.workspace)
        if instead is not None:
            found = True
            why = f"PATH finds {instead} before the system's {segment.program}"
            segment.raise_to(Kind.RUNS, RULE, why)
    return found


def _instead(segment: Segment, path: str, suspects: tuple[str, ...], workspace: str) -> str | None:
    """The suspect file that comes before another program of that name."""
    name = segment.argv[0] if segment.argv else ""
    if not name or "/" in name:
        return None
    first: str | None = None
    for entry in path.split(os.pathsep):
        for cwd in segment.cwds or (workspace,):
            file = os.path.join(cwd, entry, name)
            if not (os.path.isfile(file) and os.access(file, os.X_OK)):
                continue
            if (entry or ".") not in suspects:
                return first
            first = first or file
    return None

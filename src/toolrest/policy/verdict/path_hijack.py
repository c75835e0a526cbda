"""PATH hijacks: files of the workspace that PATH finds in place of the system's programs.

A command is known to be harmless, or allowed to leave the sandbox, by its name. Where PATH leads
through a folder that a project brings along or a tool can write, the name may mean another file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from toolrest.own_code import folders_in
from toolrest.policy.paths.names import unique
from toolrest.policy.verdict.verdict import CommandClass

if TYPE_CHECKING:
    from toolrest.policy.launch import Launch
    from toolrest.policy.verdict.verdict import Judgement, Segment

RULE = "path.planted"
_NO_PATH = (
    "which PATH the login profile sets could not be found out; login = false does not read it"
)


def expose_hijacks(judgement: Judgement, launch: Launch) -> bool:
    """Judge commands that a planted file may shadow more strictly; True if there are any."""
    if launch.path is None:
        for segment in judgement.segments:
            segment.raise_to(CommandClass.RUNS, RULE, _NO_PATH)
        return True
    entries = path_entries_inside(launch.suspects, launch.path)
    if not entries:
        return False
    found = False
    for segment in judgement.segments:
        instead = _instead(segment, launch.path, entries, launch.cwd)
        if instead is not None:
            found = True
            why = f"PATH finds {instead} before the system's {segment.program}"
            segment.raise_to(CommandClass.RUNS, RULE, why)
    return found


def _instead(segment: Segment, path: str, suspects: tuple[str, ...], cwd: str) -> str | None:
    """The suspect file that comes before another program of that name."""
    name = segment.argv[0] if segment.argv else ""
    if not name or "/" in name:
        return None
    first: str | None = None
    for entry in path.split(os.pathsep):
        for folder in segment.cwds or (cwd,):
            file = os.path.join(folder, entry, name)
            if not (os.path.isfile(file) and os.access(file, os.X_OK)):
                continue
            if (entry or ".") not in suspects:
                return first
            first = first or file
    return None


def path_entries_inside(roots: Sequence[str], path: str | None = None) -> tuple[str, ...]:
    """Entries of PATH that a confined command can write to, or that are not absolute."""
    search = os.environ.get("PATH", "") if path is None else path
    entries = unique(entry or "." for entry in search.split(os.pathsep))
    return folders_in(entries, roots)

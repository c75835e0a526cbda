"""Overrule git settings that name programs, so that reading a repository runs none of them."""

from __future__ import annotations

import os

from msgspec.structs import replace

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.policy.commands.git import LISTING, disarmed_git, listed_names
from toolrest.policy.launch import GitArmed

_MAX_REPOSITORIES = 16
_SECONDS = 5


async def disarm(folders: tuple[str, ...], ctx: Context) -> dict[str, str]:
    """Environment variables that overrule such settings; the first folder is the command's own.

    Which settings there are, git itself says, in every folder that it will run in; listing them
    runs nothing. GitArmed where they cannot all be listed and overruled.
    """
    cwd, *others = dict.fromkeys(folders)
    if len(others) > _MAX_REPOSITORIES:
        raise RespondToModel(
            f"the command looks into {len(others)} folders with git; "
            f"use at most {_MAX_REPOSITORIES} in one call"
        )
    launch = ctx.session.runner().plan(("sh", "-c", LISTING), cwd)
    launch = replace(launch, env={**launch.env, **(disarmed_git() or {})})
    names: set[str] = set()
    for folder in (cwd, *others):
        if not await ctx.in_thread(os.path.isdir, folder):
            continue
        there = replace(launch, cwd=folder)
        ran = (
            await ctx.session.runner().run_once(there, seconds=_SECONDS, outside=ctx.outside)
        ).result
        output = ran.stdout_piece
        whole = ran.exit_code == 0 and not output.omitted
        found = listed_names(output.head + output.tail) if whole else None
        if found is None:
            raise GitArmed(f"git's settings in {folder} could not be listed")
        names |= found
    env = disarmed_git(sorted(names))
    if env is None:
        raise GitArmed("git's settings name too many programs")
    return env

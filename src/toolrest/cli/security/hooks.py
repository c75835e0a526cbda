"""`toolrest hooks`: which programs of yours are run around which tools."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import click

from toolrest.cli.options import Choices, session_options

if TYPE_CHECKING:
    from toolrest.gate.hooks.program import Hook
    from toolrest.gate.tool.tool import Tool

_OF_CALLS = ("PreToolUse", "PostToolUse", "PermissionRequest")


@click.command("hooks")
@session_options
def command(choices: Choices) -> None:
    """List your hooks and the tools that each one is run for.

    A hook that a tool could rewrite, or a setting that would guard nothing, is an error here as
    at the start of every session.
    """
    rest = choices.open()
    hooks = rest.hooks.listed
    for hook in hooks:
        click.echo(f"{hook.event}  {' '.join(hook.command)}")
        click.echo(f"  matcher {hook.matcher}, {hook.timeout:g} s, on error {hook.on_error}")
        if not _runs(hook.command[0], rest.config.workspace):
            problem = f"no program {hook.command[0]} can be run: it fails every time"
            click.echo(f"  ! {problem}", err=True)
        if hook.event in _OF_CALLS:
            click.echo(f"  for {_matched(hook, rest.tools)}")
    if not hooks:
        click.echo(f"no hooks in {rest.config.file}")


def _runs(program: str, workspace: str | None) -> bool:
    where = os.path.join(workspace or ".", program) if "/" in program else program
    return shutil.which(where) is not None


def _matched(hook: Hook, tools: list[Tool]) -> str:
    names = [
        tool.name
        for tool in tools
        if hook.matches((tool.name, *tool.aliases, *tool.hook_names(tool.typical)))
    ]
    if len(names) == len(tools):
        return "every tool"
    return ", ".join(names) or "no tool that is on offer now (those of MCP servers come later)"

"""Notices at the start of a command: the question whether to trust a folder, and warnings.

Trust is asked for only at a terminal, and only in a folder that brings settings of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from toolrest.cli.terminal.terminal import PASTED, Terminal
from toolrest.config.schema.families import no_family
from toolrest.config.trust import distrust, git_root, trust, trust_of
from toolrest.private_files import is_first_time, project_has
from toolrest.timeline.text import shown

if TYPE_CHECKING:
    from toolrest.config import Config


BRINGS = (
    os.path.join(".toolrest", "config.toml"),
    os.path.join(".toolrest", "rules"),
    ".mcp.json",
    "AGENTS.md",
    os.path.join(".agents", "skills"),
)
"""What of a folder counts only once it is trusted."""


def unanswered(workspace: str) -> tuple[str, list[str]] | None:
    """The folder to ask about and what it brings; None when there is nothing to ask."""
    folder = git_root(workspace) or workspace
    if trust_of(workspace) is not None:
        return None
    places = dict.fromkeys((folder, workspace))
    brings = [os.path.join(place, name) for place in places for name in BRINGS]
    found = [path for path in brings if project_has(path)]
    return (folder, found) if found else None


async def ask_trust(terminal: Terminal, workspace: str) -> None:
    """Ask, and remember the answer; no answer is remembered as none."""
    question = unanswered(workspace)
    if question is None:
        return
    folder, found = question
    async with terminal.lock:
        terminal.say(f"{shown(folder)} brings settings of its own:")
        for path in found:
            terminal.say(f"  {shown(path)}")
        terminal.say("They count only in folders that you trust; there, tools may also write.")
        terminal.say("They can never weaken approvals, name programs to run or reach your keys.")
        answer = await typed_answer(terminal, "Do you trust this folder? [y]es / [n]o / later: ")
    if answer in ("y", "yes"):
        trust(folder)
    elif answer in ("n", "no"):
        distrust(folder)


async def typed_answer(terminal: Terminal, prompt: str) -> str:
    """The typed line in lower case; pasted text and type-ahead do not count."""
    while (typed := await terminal.typed(prompt)) == PASTED:
        terminal.say("A paste does not answer this; type it.")
    return (typed or "").strip().lower()


def print_warnings(config: Config) -> None:
    """Print the warnings about the settings on standard error, some of them only once ever."""
    for warning in _due(config):
        click.echo(f"toolrest: {warning}", err=True)


def _due(config: Config) -> Iterator[str]:
    model = config.value.model
    for warning in config.warnings:
        # A model without a family is no mistake: the defaults suit most of them.
        once = model is not None and warning == no_family(model)
        if not once or is_first_time(config.home, str(model)):
            yield warning

"""Notices at the start of a command: the question about a new folder, and warnings.

The chat asks once in every folder that it does not know; where the person chose the sandbox, and
for a single call, only whether what the folder brings counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from toolrest.cli.terminal.terminal import PASTED, Terminal
from toolrest.config.new_folder import NewFolder, new_folder
from toolrest.config.schema.families import no_family
from toolrest.config.trust import distrust, trust
from toolrest.errors import ConfigError
from toolrest.private_files import is_first_time
from toolrest.timeline.text import short_path, shown

if TYPE_CHECKING:
    from toolrest.chat.questions import Questions
    from toolrest.config import Config


_SERVERS = ".mcp.json"


def has_question(config: Config, *, always: bool = True) -> bool:
    """Whether the folder is to be asked about first.

    With `always=False`, and where the person chose the sandbox, only if it brings something.
    """
    folder = new_folder(config)
    if folder is None or folder.refusal:
        return False
    return bool(folder.brings) or (always and config.untrusted_folder)


async def ask_folder(terminal: Terminal, config: Config, *, always: bool = True) -> None:
    """Ask whether to work in this folder, and remember the answer; `Exit` for one that quits."""
    folder = new_folder(config)
    if folder is None or not has_question(config, always=always):
        return
    async with terminal.lock:
        for text in _question(folder, config):
            terminal.say(f"  {text}", bold=text.endswith("?"))
        answers = (f"{number}. {label}" for number, label in enumerate(_labels(config), 1))
        terminal.say("")
        terminal.say(f"  {'   '.join(answers)}")
        answer = await _numbered_answer(terminal, "  Answer [1]: ")
    if not _remembered(folder, config, answer):
        raise click.exceptions.Exit(0)


async def choose_folder(questions: Questions, config: Config) -> bool:
    """Ask the same in the chat, and remember the answer; False for one that quits."""
    folder = new_folder(config)
    if folder is None:
        return True
    answer = await questions.choose(tuple(_question(folder, config)), _labels(config))
    return _remembered(folder, config, answer)


def _remembered(folder: NewFolder, config: Config, answer: int | None) -> bool:
    if answer not in (1, 2):
        return False
    (trust if answer == 1 else distrust)(folder.path, home=config.home)
    return True


def _labels(config: Config) -> tuple[str, ...]:
    return "Yes", "Read only" if config.untrusted_folder else "No", "Quit"


def _question(folder: NewFolder, config: Config) -> Iterator[str]:
    name = shown(short_path(folder.path))
    chosen = not config.untrusted_folder
    yield f"Trust {name}?" if chosen else f"Work in {name}?"
    if not chosen:
        yield "The agent may edit files here; commands run in the sandbox."
    if folder.brings:
        yield f"{_listed(folder)} here will count."
    if chosen:
        yield f"The sandbox stays as you chose it: {config.value.sandbox_mode}."
        yield "In later sessions the agent may edit files here."


def _listed(folder: NewFolder) -> str:
    """What a folder brings, by name; servers by their number, since its file names them."""
    names: list[str] = []
    servers = 0
    for path in folder.brings:
        if os.path.basename(path) != _SERVERS or (count := _servers_in(path)) is None:
            names.append(shown(os.path.relpath(path, folder.path)))
        else:
            servers += count
    if servers:
        names.append(f"{servers} MCP server{'s' * (servers > 1)}")
    *first, last = names or [_SERVERS]
    return f"{', '.join(first)} and {last}" if first else last


def _servers_in(path: str) -> int | None:
    # Only for a folder that has such a file.
    from toolrest.mcp.json_files import read_servers

    try:
        return len(list(read_servers(path, []))) or None
    except ConfigError:
        return None


_ANSWERS = {"": 1, "1": 1, "y": 1, "yes": 1, "2": 2, "n": 2, "no": 2, "3": 3, "q": 3, "quit": 3}


async def _numbered_answer(terminal: Terminal, prompt: str) -> int:
    while True:
        typed = await typed_answer(terminal, prompt)
        if typed is None:
            return 3  # Ctrl-D
        if typed in _ANSWERS:
            return _ANSWERS[typed]
        terminal.say("  Type 1, 2 or 3.")


def refused_notes(config: Config) -> list[str]:
    """Why the session is read-only in a folder that is never asked about; empty elsewhere."""
    folder = new_folder(config) if config.untrusted_folder else None
    if folder is None or not folder.refusal:
        return []
    name = shown(short_path(folder.path))
    return [
        f"{name} is read-only: {shown(folder.refusal)}.",
        f"To work in it: {shown(folder.way)}",
    ]


async def typed_answer(terminal: Terminal, prompt: str) -> str | None:
    """The typed line in lower case, None at its end; pasted text and type-ahead do not count."""
    while (typed := await terminal.typed(prompt)) == PASTED:
        terminal.say("  A paste does not answer this; type it.")
    return None if typed is None else typed.strip().lower()


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

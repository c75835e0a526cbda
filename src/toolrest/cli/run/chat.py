"""`toolrest`, `toolrest chat` and `toolrest resume`: the chat at the terminal."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import click

from toolrest.cli.app import IS_IMPLIED, app
from toolrest.cli.first_paint import take_back
from toolrest.cli.interrupts import interruptible
from toolrest.cli.options import Choices, model_option, session_options
from toolrest.cli.startup import quick_start, settled, users_environment
from toolrest.cli.terminal.notices import ask_folder, choose_folder, has_question, refused_notes
from toolrest.cli.terminal.signals import ended_by_signals
from toolrest.cli.terminal.terminal import DROPPED, Terminal
from toolrest.config.files import toolrest_home
from toolrest.errors import ConfigError, ToolrestError
from toolrest.timeline.text import cut_to, shown

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.chat.questions import Questions
    from toolrest.chat.session import Open
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk

_LISTED = 10
_SET_UP: list[bool] = []
"""Not empty once a set-up was tried in this run: it is not tried twice."""
_WITHOUT = "toolrest: this is the plain chat; for the other one: pip install 'toolrest[chat]'"


@click.command("chat")
@session_options
@model_option
@click.option("--plain", is_flag=True, help="Line by line, nothing redrawn: for screen readers.")
@click.option("--continue", "continues", is_flag=True, help="Continue this folder's last session.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[ID]",
    help="Continue the session with this ID, or one picked from a list.",
)
@click.argument("prompt", metavar="[PROMPT]", nargs=-1)
@click.pass_context
def command(
    ctx: click.Context,
    choices: Choices,
    model: str | None,
    plain: bool,
    continues: bool,
    resume: str | None,
    prompt: tuple[str, ...],
) -> None:
    """Talk with a model about this folder; PROMPT is the first message.

    What needs approval is asked about. /help in the chat lists commands and keys. `chat` itself may
    be left out before an option, a message in quotes, or --.
    """
    if prompt and ctx.meta.get(IS_IMPLIED) and not any(map(str.isspace, prompt[0])):
        raise click.UsageError(app.unknown(prompt[0]), ctx.find_root())
    rollout = "--last" if continues else resume
    _chat(choices, model, " ".join(prompt) or None, rollout, plain)


@click.command("resume")
@session_options
@model_option
@click.option("--last", is_flag=True, help="Continue the latest session of this folder.")
@click.argument("session", metavar="[ID]", required=False)
def resume_command(choices: Choices, model: str | None, last: bool, session: str | None) -> None:
    """Continue a session in the chat: the one with this ID, or one picked from a list."""
    _chat(choices, model, None, session or ("--last" if last else ""))


def _chat(
    choices: Choices,
    model: str | None,
    prompt: str | None,
    resume: str | None,
    plain: bool = False,
) -> None:
    files = (sys.stdin, sys.stderr if plain else sys.stdout)
    if not all(file is not None and file.isatty() for file in files):
        raise click.UsageError("the chat needs a terminal; for scripts there is: toolrest exec")

    quick_start()
    if not plain and find_spec("prompt_toolkit") is None:
        take_back()
        click.echo(_WITHOUT, err=True)
        plain = True
    flags: dict[str, Any] = {"model": model}
    if plain:
        work = ended_by_signals(_run_plain(choices, flags, prompt, resume))
    else:
        work = _run(choices, flags, prompt, resume)
    sys.exit(asyncio.run(work))


async def _run_plain(
    choices: Choices, flags: dict[str, Any], prompt: str | None, resume: str | None
) -> int:
    # Only for this kind of chat.
    from toolrest.cli.terminal.plain_chat import plain_chat

    rollout = None if resume is None else await _picked(choices, resume)
    while _missing(config := choices.load(flags)) is not None:
        await _ask_first(choices, flags)
    interruptible()
    first: list[Config] = [config]

    def open_(approver: OnAsk, path: str | None) -> Conversation:
        if first:
            return _opened(first.pop(), approver, path)
        try:
            return _opened(choices.load(flags), approver, path)
        except ToolrestError as error:  # the folder's own settings, which count now
            click.echo(f"the session stays read-only: {error}", err=True)
            return _opened(config, approver, path)

    return await plain_chat(
        open_, config.workspace or "", prompt, rollout=rollout, notes=refused_notes(config)
    )


async def _run(
    choices: Choices, flags: dict[str, Any], prompt: str | None, resume: str | None
) -> int:
    # Only for a chat, and an extra.
    from toolrest.chat.app import ChatApp, Quit

    rollout = None
    if resume is not None:
        rollout = await ended_by_signals(_picked(choices, resume))

    notes: list[str] = []

    async def prepare(questions: Questions) -> tuple[Open, str | None] | None:
        config = choices.load(flags)
        missing = _missing(config)
        if missing == "model":
            return None

        if missing == "folder":
            if not await choose_folder(questions, config):
                raise Quit
            config = choices.load(flags)
        notes[:] = refused_notes(config)
        first: list[Config] = [config]

        def open_(path: str | None, changed: Mapping[str, Any]) -> Conversation:
            # Later ones as the settings are then: the folder may be trusted since.
            used = first.pop() if first else choices.load({**flags, **changed})
            return _opened(used, questions, path)

        return open_, rollout

    home = toolrest_home(None, os.environ)
    while True:
        app = ChatApp(prepare, home=home, workspace=_folder(choices), prompt=prompt)
        app.report = _report
        app.environment = users_environment()
        app.notes = notes
        app.check = lambda changed: choices.load({**flags, **changed})
        take_back()
        code = await app.run()
        if code is not None:
            return code
        await ended_by_signals(_ask_first(choices, flags, lost=app.has_text()))


def _report(config: Config, rollout: str | None) -> list[str]:
    # Only for /feedback.
    from toolrest.cli.run.report import write_report

    return write_report(config, rollout)


def _folder(choices: Choices) -> str:
    """The workspace by its name alone; whether it is a folder is found out with the settings."""
    return os.path.realpath(choices.folder or ".")


def _missing(config: Config) -> Literal["model", "folder"] | None:
    """What has to be asked before a session can be opened.

    ConfigError for what no set-up puts right: an address that is none, a provider that is not
    known, or a flag or profile that names another provider than was set up.
    """
    from toolrest.wire.providers import (
        lacks_key_or_address,
        model_for,
        provider_for,
        with_default_model,
    )

    config = with_default_model(config)
    try:
        provider_for(config)
    except ConfigError:
        if _SET_UP or not lacks_key_or_address(config):
            raise
        return "model"
    if config.value.model is None:
        if _SET_UP:
            model_for(config)  # says what is missing
        return "model"
    return "folder" if has_question(config) else None


async def _ask_first(choices: Choices, flags: Mapping[str, Any], *, lost: bool = False) -> None:
    """Ask what is missing; `lost` where the person has written something already."""
    # Only on a first run.
    from toolrest.cli.setup.first_run import FirstRun

    interruptible()  # Ctrl-C at a question leaves the terminal as it was
    if lost:
        Terminal().say(DROPPED)
    config = choices.load(flags)
    if _missing(config) == "model":
        _SET_UP.append(True)
        await FirstRun(Terminal(), lambda more: choices.load({**flags, **more})).run()
    else:
        await ask_folder(Terminal(), config)


def _opened(config: Config, questions: OnAsk, rollout: str | None) -> Conversation:
    from toolrest.agent.open_session import open_session

    session = open_session(
        config,
        on_ask=questions,
        env=users_environment(),
        resume=rollout,
        source="chat",
        trusted=config.trusted,
    )
    session.warnings += session.rest.rule_warnings()
    settled()
    return session


async def _picked(choices: Choices, wanted: str) -> str:
    """The rollout of a session: by its id, this folder's latest, or picked from a list."""
    from toolrest.agent.history.stored_sessions import (
        LISTED,
        find_session,
        last_said,
        latest_session,
        summaries,
    )

    config = choices.load()
    if wanted == "--last":
        return latest_session(config.home, config.workspace).path
    if wanted:
        return find_session(config.home, wanted).path
    rows = list(itertools.islice(summaries(config.home, config.workspace), _LISTED))
    if not rows:
        raise ConfigError("no session of this folder is recorded", hints=LISTED)
    interruptible()
    terminal = Terminal()
    room = terminal.size[0] - 5  # one row each
    for number, row in enumerate(rows, 1):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.changed))
        mark = f"[{number}]".rjust(len(f"[{len(rows)}]"))
        terminal.say(cut_to(f"  {mark} {when}  {shown(row.title or '(no message)')}", room))
        if said := shown(last_said(row.stored.path)):
            terminal.say(cut_to(f"         … {said}", room))
    typed = await terminal.line("Session [1]: ")
    if typed is None:  # Ctrl-D: none of them
        raise click.Abort
    typed = typed.strip() or "1"
    if not (typed.isascii() and typed.isdecimal()) or not 1 <= int(typed) <= len(rows):
        raise ConfigError(f"there is no number {shown(typed)} in the list")
    return rows[int(typed) - 1].stored.path

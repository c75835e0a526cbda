"""`toolrest`, `toolrest chat` and `toolrest resume`: the chat at the terminal."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from toolrest.cli.options import Choices, session_options
from toolrest.errors import ConfigError

if TYPE_CHECKING:
    from toolrest.agent.conversation.session import AgentSession
    from toolrest.config import Config
    from toolrest.gate.approval.approvals import OnAsk

_LISTED = 10
_WITHOUT = "the chat needs: pip install 'toolrest[chat]'"


@click.command("chat")
@session_options
@click.option("-m", "--model", metavar="NAME", help="The model to talk to.")
@click.argument("prompt", metavar="[PROMPT]", required=False)
def command(choices: Choices, model: str | None, prompt: str | None) -> None:
    """Talk with a model about this folder; PROMPT is the first message.

    What needs approval is asked about. /help in the chat lists commands and keys.
    """
    _chat(choices, model, prompt, None)


@click.command("resume")
@session_options
@click.option("-m", "--model", metavar="NAME", help="The model to talk to.")
@click.option("--last", is_flag=True, help="This folder's latest session.")
@click.argument("session", metavar="[ID]", required=False)
def resume_command(choices: Choices, model: str | None, last: bool, session: str | None) -> None:
    """Go on with a session in the chat: the one with this ID, or one picked from a list."""
    _chat(choices, model, None, session or ("--last" if last else ""))


def _chat(choices: Choices, model: str | None, prompt: str | None, resume: str | None) -> None:
    files = (sys.stdin, sys.stdout)
    if not all(file is not None and file.isatty() for file in files):
        raise click.UsageError("the chat needs a terminal; for scripts there is: toolrest exec")
    from toolrest.cli.startup import quick_start

    quick_start()
    sys.exit(asyncio.run(_run(choices, model, prompt, resume)))


async def _run(choices: Choices, model: str | None, prompt: str | None, resume: str | None) -> int:
    config = await _ready(choices, {"model": model})
    rollout = None if resume is None else await _picked(config, resume)
    try:
        # Only for a chat, and an extra.
        from toolrest.chat.app import ChatApp
    except ModuleNotFoundError as error:
        if error.name != "prompt_toolkit":
            raise
        raise ConfigError(_WITHOUT) from None

    def open_(path: str | None) -> AgentSession:
        return _opened(choices, config, path, app.questions)

    app = ChatApp(open_, home=config.home, workspace=config.workspace or "", rollout=rollout)
    return await app.run(prompt)


async def _ready(choices: Choices, flags: dict[str, Any]) -> Config:
    """The settings, after the questions of a first run."""
    from toolrest.cli.terminal.notices import print_warnings, unanswered
    from toolrest.wire.providers import provider_for, with_default_model

    config = choices.load(flags)
    try:
        provider_for(with_default_model(config))
        known = with_default_model(config).value.model is not None
    except ConfigError:
        known = False
    if not known and flags["model"] is None:
        # Only on a first run.
        from toolrest.cli.setup.first_run import FirstRun
        from toolrest.cli.terminal.terminal import Terminal

        await FirstRun(Terminal()).run()
        config = choices.load(flags)
    elif unanswered(config.workspace or os.getcwd()):
        from toolrest.cli.terminal.notices import ask_trust
        from toolrest.cli.terminal.terminal import Terminal

        await ask_trust(Terminal(), config.workspace or os.getcwd())
        config = choices.load(flags)
    print_warnings(config)
    return config


def _opened(
    choices: Choices, config: Config, rollout: str | None, questions: OnAsk
) -> AgentSession:
    from toolrest.agent.open_session import open_session
    from toolrest.agent.setup.tools import add_user_tools
    from toolrest.cli.startup import settled, users_environment

    session = open_session(
        config,
        on_ask=questions,
        env=users_environment(),
        resume=rollout,
        source="chat",
        trusted=config.trusted,
    )
    session.warnings += session.rest.rule_warnings()
    session.warnings += add_user_tools(session.rest)
    session.warnings += choices.unknown_tools(session.rest)
    settled()
    return session


async def _picked(config: Config, wanted: str) -> str:
    """The rollout of a session: by its id, this folder's latest, or picked from a list."""
    from toolrest.agent.history.stored_sessions import find_session, latest_session, summaries
    from toolrest.cli.terminal.terminal import Terminal
    from toolrest.timeline.text import shown

    if wanted == "--last":
        return latest_session(config.home, config.workspace).path
    if wanted:
        return find_session(config.home, wanted).path
    rows = list(itertools.islice(summaries(config.home, config.workspace), _LISTED))
    if not rows:
        raise ConfigError("no session of this folder is recorded; see: toolrest sessions list")
    terminal = Terminal()
    for number, row in enumerate(rows, 1):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.changed))
        terminal.say(f"  [{number}] {when}  {shown(row.title or '(no message)')}")
    typed = ((await terminal.line("Session [1]: ")) or "").strip() or "1"
    if not typed.isdigit() or not 1 <= int(typed) <= len(rows):
        raise ConfigError(f"there is no number {shown(typed)} in the list")
    return rows[int(typed) - 1].stored.path

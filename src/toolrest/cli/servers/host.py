"""`toolrest host`: a session without a terminal, which the browser page shows and answers."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from toolrest.agent.history.stored_sessions import exact_session
from toolrest.agent.open_session import open_session
from toolrest.chat.session import ChatSession
from toolrest.cli.options import Choices, model_option, session_options
from toolrest.errors import ConfigError

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.timeline.cells import Cell

_MOST_PROMPT = 1 << 20


@click.command("host")
@session_options
@model_option
@click.option("--resume", metavar="ID", help="Go on with the session that has this ID.")
@click.argument("prompt", metavar="[PROMPT]", required=False)
def command(choices: Choices, model: str | None, resume: str | None, prompt: str | None) -> None:
    """Run a session without a terminal until it is stopped; PROMPT is its first message.

    Prints the session's id. `toolrest web` shows it, sends it messages and answers what it asks;
    nothing is approved in any other way. PROMPT - is read from standard input.
    """
    if prompt == "-":
        prompt = sys.stdin.read(_MOST_PROMPT)
    asyncio.run(_host(choices, model, resume, prompt))


class _Unseen:
    """The view of a conversation that only the page shows."""

    def changed(self, cell: Cell) -> None:
        """Do nothing."""

    def turn_began(self) -> None:
        """Do nothing."""

    def turn_ended(self, result: TurnResult | None) -> None:
        """Do nothing."""

    def opened(self, said: str, *, is_same: bool) -> None:
        """Do nothing."""


class _Elsewhere:
    """An approver without a front end of its own: answers come over the control socket."""

    async def __call__(self, _: object) -> Any:
        """Wait until the request is answered elsewhere, or its turn ends."""
        await asyncio.get_running_loop().create_future()

    ask_user = __call__


def _check_folder(named: str | None, workspace: str) -> None:
    """Refuse a folder that became a link after it was chosen: it could lead anywhere."""
    if named is not None and os.path.isabs(named) and os.path.normpath(named) != workspace:
        raise ConfigError(f"-C {named}: this leads to {workspace}; name that folder itself")


async def _host(
    choices: Choices, model: str | None, resume: str | None, prompt: str | None
) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)

    def open_(path: str | None, changed: Mapping[str, Any]) -> Conversation:
        config = choices.load({"model": model, **changed})
        _check_folder(choices.folder, config.workspace or "")
        if config.value.sandbox_mode == "danger-full-access":
            raise ConfigError(
                "with full access a session has no control socket, for its commands could answer "
                "for you",
                hints=("Start it in a terminal.",),
            )
        if not config.value.web_ui.control:
            raise ConfigError("web_ui.control is false, so no page can answer this session")
        session = open_session(
            config, on_ask=_Elsewhere(), resume=path, source="host", trusted=config.trusted
        )
        session.warnings += session.rest.rule_warnings()
        return session

    session = ChatSession(open_, _Unseen())
    session.start(None if resume is None else exact_session(choices.load().home, resume).path)
    try:
        if not session.is_controlled:
            raise ConfigError("there is no control socket here, so no page can answer this session")
        click.echo(session.conversation.id)
        sys.stdout.flush()
        if prompt and prompt.strip():
            session.send(prompt, queued=False)
        await stopped.wait()
    finally:
        await session.close()

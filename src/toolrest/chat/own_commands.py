"""Commands of the person's own: `!line`, typed in this terminal, run outside the sandbox at once.

The model reads of one with the next message, marked as what it is: neither the person's words nor
a call. What it printed counts as external, unless the line can do nothing but read files.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prompt_toolkit.application.run_in_terminal import in_terminal

from toolrest.chat.terminal.own_command import Ran, run_in_terminal
from toolrest.errors import ToolrestError
from toolrest.gate.output.limiter import DEFAULT_LIMIT
from toolrest.gate.output.truncate import formatted_truncate
from toolrest.policy.verdict.command import judge
from toolrest.policy.verdict.verdict import CommandClass
from toolrest.timeline.draw import duration

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.chat.app import ChatApp

_TAG = "user_shell_command"


class OwnCommandError(ToolrestError):
    """A command of the person's own that could not be started."""


async def run_own(chat: ChatApp, line: str) -> None:
    """Run a line with the person's terminal, and keep what it printed for the model."""
    conversation, screen = chat.session.conversation, chat.screen
    screen.ends_part()
    screen.say(f"! {line}", "bold")
    screen.flush()
    async with in_terminal():
        try:
            ran = await run_in_terminal(line, conversation.rest.cwd, chat.environment)
        except OSError as error:
            raise OwnCommandError(f"Cannot run it: {error.strerror}") from None
    if unread := "".join(char for char in ran.unread if char.isprintable() or char == "\n"):
        chat.actions.paste(unread.rstrip("\n"))  # it is not run, and not sent
    if ran.code:
        how = f"signal {-ran.code}" if ran.code < 0 else f"exit code {ran.code}"
        screen.say(f"✗ {how}", "yellow")
    screen.ends_part()
    _note(conversation, line)
    chat.session.ran(await asyncio.to_thread(_described, conversation, line, ran))


def _note(conversation: Conversation, line: str) -> None:
    rest = conversation.rest
    roots = rest.writable_roots
    kind = judge(line, cwd=rest.cwd, writable_roots=roots).kind
    rest.session.taint.note_private()
    if kind != CommandClass.SAFE:
        rest.session.taint.note_external("a command of the user's own")


def _described(conversation: Conversation, line: str, ran: Ran) -> str:
    """The command as Codex tells a model of one; nothing in it can end the mark."""
    output = formatted_truncate(conversation.redactor.redact(ran.output.rstrip()), DEFAULT_LIMIT)
    command, output = (
        text.replace(_TAG, _TAG.replace("_", "-"))
        for text in (conversation.redactor.redact(line), output)
    )
    return (
        f"<{_TAG}>\n<command>\n{command}\n</command>\n<result>\nExit code: {ran.code}\n"
        f"Duration: {duration(ran.seconds)}\nOutput:\n{output}\n</result>\n</{_TAG}>"
    )

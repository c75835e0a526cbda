"""The plain chat: a line in, an answer out, nothing drawn twice; for screen readers and pipes.

It needs no extra. Marks are words: `you:`, `done`, `failed`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolrest.chat.commands.names import COMMANDS
from toolrest.cli.terminal.approve import TerminalApprover
from toolrest.cli.terminal.terminal import Terminal
from toolrest.errors import ToolrestError
from toolrest.timeline import session_text
from toolrest.timeline.plain import PlainPrinter

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.gate.approval.approvals import OnAsk


async def plain_chat(
    open_: Callable[[OnAsk], Conversation], workspace: str, prompt: str | None = None
) -> int:
    """Talk until the person leaves with /quit or Ctrl-D; Ctrl-C interrupts a turn."""
    terminal = Terminal()
    printer = PlainPrinter(workspace=workspace, keeps_answer=False, words=True)
    approver = TerminalApprover(terminal, printer.paused)
    conversation = open_(approver)
    approver.opened(conversation)
    settings = conversation.rest.settings
    terminal.say(f"{conversation.model.name}, {settings.sandbox_mode}, {settings.approval_policy}")
    terminal.say("Write a message and press Enter. /help, /quit leaves, Ctrl-C interrupts.")
    unsubscribe = conversation.rest.subscribe(printer)
    try:
        async with conversation:
            # What is said of the sandbox comes before the line that the person writes in.
            await conversation.warm_up().found_weak_sandbox()
            await _talk(conversation, terminal, printer, prompt)
    finally:
        unsubscribe()
    return 0


async def _talk(
    conversation: Conversation, terminal: Terminal, printer: PlainPrinter, prompt: str | None
) -> None:
    loop = asyncio.get_running_loop()
    stops: set[asyncio.Task[None]] = set()

    def interrupt() -> None:
        stops.add(asyncio.ensure_future(conversation.interrupt()))

    while True:
        typed, prompt = prompt, None
        if not typed:
            with printer.paused():  # a sub-agent that ends would print into the line
                typed = await terminal.line("you: ", early=True)
        if typed is None or typed.strip() == "/quit":
            return
        if not typed.strip() or await _was_command(conversation, terminal, typed.strip()):
            continue
        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            await conversation.run(typed)
        finally:
            loop.remove_signal_handler(signal.SIGINT)


_LISTS = {
    "status": session_text.status,
    "tools": session_text.tools,
    "mcp": session_text.mcp,
    "permissions": session_text.permissions,
}
_HERE = ("help", "undo", *_LISTS, "quit")


async def _was_command(conversation: Conversation, terminal: Terminal, typed: str) -> bool:
    """Run a slash command; False for a message, such as one that begins with a path."""
    name = typed.removeprefix("/")
    if not typed.startswith("/") or name.split(" ")[0] not in COMMANDS:
        return False
    try:
        if name == "help":
            lines = [f"/{each}: {COMMANDS[each]}" for each in _HERE]
        elif name == "undo":
            lines = await session_text.undo(conversation)
        elif name in _LISTS:
            lines = _LISTS[name](conversation)
        else:
            here = ", ".join(f"/{each}" for each in _HERE)
            lines = [f"the plain chat has no /{name}; it has {here}"]
    except (ToolrestError, OSError) as error:
        lines = [f"/{name}: {error}"]
    for line in lines:
        terminal.say(line)
    return True

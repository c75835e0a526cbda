"""The plain chat: a line in, an answer out, nothing drawn twice; for screen readers and pipes.

It needs no extra. Marks are words: `you:`, `done`, `failed`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolrest.chat.commands.names import COMMANDS
from toolrest.chat.work_here import MESSAGE, STILL, WorkHere
from toolrest.cli.terminal.approve import TerminalApprover
from toolrest.cli.terminal.terminal import Terminal
from toolrest.errors import ToolrestError
from toolrest.timeline import session_text
from toolrest.timeline.plain import PlainPrinter

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.gate.approval.approvals import OnAsk


async def plain_chat(
    open_: Callable[[OnAsk, str | None], Conversation],
    workspace: str,
    prompt: str | None = None,
    *,
    rollout: str | None = None,
    notes: Sequence[str] = (),
) -> int:
    """Talk until the person leaves with /quit or Ctrl-D; Ctrl-C interrupts a turn."""
    terminal = Terminal()
    printer = PlainPrinter(workspace=workspace, keeps_answer=False, words=True)
    work_here = WorkHere(terminal.say)
    approver = TerminalApprover(terminal, printer.paused, work_here)
    help_ = "Write a message and press Enter. /help, /quit leaves, Ctrl-C interrupts."
    first = [*notes, help_]
    goes_on = False
    while True:
        conversation = open_(approver, rollout)
        approver.opened(conversation)
        work_here.opened(conversation)
        settings = conversation.rest.settings
        facts = (conversation.model.name, settings.sandbox_mode, settings.approval_policy)
        terminal.say(", ".join(facts))
        while first:
            terminal.say(first.pop(0))
        if goes_on:
            prompt = STILL if settings.sandbox_mode == "read-only" else MESSAGE
            terminal.say(f"you: {prompt}")
        unsubscribe = conversation.rest.subscribe(printer)
        try:
            async with conversation:
                # What is said of the sandbox comes before the line that the person writes in.
                await conversation.warm_up().found_weak_sandbox()
                ended = await _talk(conversation, terminal, printer, prompt, work_here)
        finally:
            unsubscribe()
        if ended is None:
            return 0
        rollout, prompt, goes_on = conversation.journal.path, None, ended.status == "completed"


async def _talk(
    conversation: Conversation,
    terminal: Terminal,
    printer: PlainPrinter,
    prompt: str | None,
    work_here: WorkHere,
) -> TurnResult | None:
    """Talk until the person leaves; the last turn, where its session is to be opened anew."""
    loop = asyncio.get_running_loop()
    stops: set[asyncio.Task[None]] = set()

    def interrupt() -> None:
        stops.add(asyncio.ensure_future(conversation.interrupt()))

    while True:
        typed, prompt = prompt, None
        if not typed:
            with printer.paused():  # a sub-agent that ends would print into the line
                typed = await terminal.line("you: ", early=True)
        if typed is None or typed.strip() in ("/exit", "/quit"):
            return None
        if not typed.strip() or await _was_command(conversation, terminal, typed.strip()):
            continue
        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            result = await conversation.run(typed)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if work_here.is_accepted:
            return result


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

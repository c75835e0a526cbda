"""The plain chat: a line in, an answer out, nothing drawn twice; for screen readers and pipes.

It needs no extra. Marks are words: `you:`, `done`, `failed`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from toolrest.cli.terminal.approve import TerminalApprover
from toolrest.cli.terminal.terminal import Terminal
from toolrest.timeline.plain import PlainPrinter

if TYPE_CHECKING:
    from toolrest.agent.conversation.session import AgentSession
    from toolrest.gate.approval.approvals import OnAsk


async def plain_chat(
    open_: Callable[[OnAsk], AgentSession], workspace: str, prompt: str | None = None
) -> int:
    """Talk until the person leaves with /quit or Ctrl-D; Ctrl-C interrupts a turn."""
    terminal = Terminal()
    printer = PlainPrinter(workspace=workspace, keeps_answer=False, words=True)
    session = open_(TerminalApprover(terminal, printer.paused))
    settings = session.rest.settings
    terminal.say(f"{session.model.name}, {settings.sandbox_mode}, {settings.approval_policy}")
    terminal.say("Write a message and press Enter. /quit leaves, Ctrl-C interrupts.")
    unsubscribe = session.rest.subscribe(printer)
    try:
        async with session:
            await _talk(session, terminal, prompt)
    finally:
        unsubscribe()
    return 0


async def _talk(session: AgentSession, terminal: Terminal, prompt: str | None) -> None:
    loop = asyncio.get_running_loop()
    stops: set[asyncio.Task[None]] = set()

    def interrupt() -> None:
        stops.add(asyncio.ensure_future(session.interrupt()))

    while True:
        typed = prompt or await terminal.line("you: ", early=True)
        prompt = None
        if typed is None or typed.strip() == "/quit":
            return
        if not typed.strip():
            continue
        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            await session.run(typed)
        finally:
            loop.remove_signal_handler(signal.SIGINT)

"""Slash commands in an editor: what is offered, and what each does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from acp.helpers import update_available_commands
from acp.schema import (
    AvailableCommand,
    AvailableCommandInput,
    AvailableCommandsUpdate,
    UnstructuredCommandInput,
)
from msgspec import Struct

from toolrest.errors import ToolrestError
from toolrest.timeline import session_text
from toolrest.timeline.stored import fenced
from toolrest.wire.items.pairing import is_models

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation

_ANSWERED: dict[str, tuple[str, Callable[[Conversation], list[str]]]] = {
    "status": ("model, sandbox, approvals, tokens, session", session_text.status),
    "tools": ("the tools on offer", session_text.tools),
    "mcp": ("MCP servers and their state", session_text.mcp),
    "permissions": ("what is asked about", session_text.permissions),
}
_UNDO = "undo the last turn's changes"
_COMPACT = "summarise the conversation now"
_INIT = "let the model write an AGENTS.md for this folder"


class CommandResult(Struct, frozen=True):
    """The result of a command: an answer for the user, or a prompt for the model."""

    answer: str = ""
    prompt: str = ""
    stopped: bool = False
    """The user cancelled it."""


def offered(conversation: Conversation) -> AvailableCommandsUpdate:
    """The commands that an editor can complete: ours, and the user's own prompts."""
    ours = {name: about for name, (about, _) in _ANSWERED.items()}
    ours |= {"compact": _COMPACT, "undo": _UNDO, "init": _INIT}
    hint = AvailableCommandInput(root=UnstructuredCommandInput(hint="what $ARGUMENTS is"))
    rows = {name: AvailableCommand(name=name, description=about) for name, about in ours.items()}
    for name in session_text.own_prompts(conversation.rest.config.home):
        about = f"your prompt {name}.md"
        rows[name] = AvailableCommand(name=name, description=about, input=hint)
    return update_available_commands(list(rows.values()))


async def run(conversation: Conversation, text: str) -> CommandResult | None:
    """Do the command that a prompt begins with; None when there is none of that name."""
    if not text.startswith("/"):
        return None
    name, _, rest = text[1:].partition(" ")
    own = session_text.own_prompts(conversation.rest.config.home).get(name)
    try:
        if own is not None:
            return CommandResult(prompt=session_text.own_prompt(own, rest.strip()))
        if name == "init":
            return CommandResult(prompt=session_text.INIT)
        if name == "compact":
            return await _compacted(conversation, rest.strip())
        if name == "undo":
            return CommandResult(answer=_lines(await session_text.undo(conversation)))
        if name in _ANSWERED:
            return CommandResult(answer=_lines(_ANSWERED[name][1](conversation)))
    except (ToolrestError, OSError) as error:
        return CommandResult(answer=f"/{name}: {error}")
    return None


async def _compacted(conversation: Conversation, note: str) -> CommandResult:
    if not any(is_models(item) for item in conversation.history):
        return CommandResult(answer="there is nothing to summarise yet")
    result = await conversation.compact(note)
    done = f"summarised: the context is now about {conversation.tokens:,} tokens"
    return CommandResult(answer=result.error or done, stopped=result.status == "interrupted")


def _lines(lines: list[str]) -> str:
    return fenced("\n".join(lines))

"""The start screen and the status line: each fact once, in the words of a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest import __version__
from toolrest.sandbox.weak import WEAK
from toolrest.timeline import session_text
from toolrest.timeline.draw import Line, dollars, safe_lines
from toolrest.timeline.text import cut_to, short_path, shown, text_width
from toolrest.timeline.wrap import drawn_width

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.timeline.fold import Timeline

TIPS = "! runs a command of yours, Esc stops the model."
PLACEHOLDER = "Ask anything · @ files · / commands"
_USUAL = "on-request"
"""The approval policy that need not be said."""
_LABELS = {
    "model": "Model",
    "model_reasoning_effort": "Effort",
    "approval_policy": "Approvals",
    "sandbox_mode": "Sandbox",
}


def start_lines(model: str, workspace: str, width: int) -> list[Line]:
    """Name and version, model, folder, and how to begin."""
    name, version = "Toolrest", f" {__version__}   "
    facts, folder = shown(model), shown(short_path(workspace))
    head: Line = [("", "  "), ("bold", name)]
    room = width - 3 - len(name) - len(version)
    if text_width(facts) + 3 + text_width(folder) <= room:
        lines = [[*head, ("dim", f"{version}{facts} · {folder}")]]
    else:
        lines = [
            [*head, ("dim", f"{version}{cut_to(facts, room)}")],
            [("dim", f"  {_end_of(folder, width - 3)}")],
        ]
    return [*lines, [("dim", cut_to(f"  {TIPS}", width - 1))]]


def change_line(settings: dict[str, object]) -> str:
    """The line about settings that were changed in the chat."""
    facts = (f"{_LABELS.get(key, key)}: {shown(str(value))}" for key, value in settings.items())
    return " · ".join(facts)


def goes_on(conversation: Conversation) -> str:
    """The line before the last messages of a session that is resumed."""
    return f"Session {conversation.id[:8]} goes on; its last messages:"


def status_line(
    conversation: Conversation, timeline: Timeline, running: list[str], width: int
) -> str:
    """The line at the bottom; `running` are the commands in the background."""
    settings = conversation.rest.settings
    mode: list[str] = [settings.sandbox_mode]
    if settings.approval_policy != _USUAL:
        mode.append(settings.approval_policy)
    if session_text.is_weak(conversation):
        mode.append(WEAK)
    window = timeline.window or conversation.accounting.window
    share = f"{max(0.0, 1 - timeline.tokens / window):.0%}" if window else ""
    cost = conversation.accounting.cost()
    right = "" if cost is None else dollars(cost)
    facts = [*mode, shown(conversation.model.name)]
    background = _background(running)
    for more in (
        [*([f"{share} context left"] if share else []), *background],
        [*([f"{share} left"] if share else []), *background],
        [f"{share} left"] if share else [],
    ):
        left = " · ".join([*facts, *more])
        gap = width - 3 - drawn_width(left) - len(right)
        if gap >= (2 if right else 0):
            return f"  {left}{' ' * gap if right else ''}{right}"
    return cut_to(f"  {left}", width - 1)


def _background(running: list[str]) -> list[str]:
    if len(running) != 1:
        return [f"◦ {len(running)} commands run"] if running else []
    return [f"◦ {cut_to(safe_lines(running[0])[0], 20)}"]


def _end_of(path: str, width: int) -> str:
    """The end of a path, which tells it from others."""
    while text_width(path) > width and len(path) > 1:
        path = f"…{path[2:]}"
    return path

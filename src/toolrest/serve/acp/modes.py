"""Session modes of the Agent Client Protocol: read-only, ask, auto.

They are a limit on top of the user's settings (`gate/decision/mode_limit.py`), and only those that
differ under these settings are offered: no mode allows what the settings do not. The session's
journal keeps the mode, because a client may load the session in another process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from acp.exceptions import RequestError
from acp.schema import SessionMode, SessionModeState

from toolrest.agent.history.rollout import lines_of
from toolrest.gate.decision.mode_limit import ModeName, offered_modes

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation

_EVENT = "session_mode"


def state(conversation: Conversation) -> SessionModeState:
    """The modes of a session, and the one that it is in."""
    settings = conversation.rest.settings
    own = f"approvals {settings.approval_policy}, sandbox {settings.sandbox_mode}"
    about: dict[ModeName, tuple[str, str]] = {
        "read-only": ("Read only", "Looks at files; changes nothing and runs nothing that might."),
        "ask": ("Ask", "Asks before it changes a file or runs a program."),
        "auto": ("Auto", f"As your settings say: {own}."),
    }
    offered = _offered(conversation)
    modes = [
        SessionMode(id=name, name=about[name][0], description=about[name][1]) for name in offered
    ]
    return SessionModeState(current_mode_id=_current(conversation), available_modes=modes)


def change(conversation: Conversation, wanted: str) -> None:
    """Put a session into a mode that it offers, from its next decision on."""
    offered = _offered(conversation)
    name = next((name for name in offered if name == wanted), None)
    if name is None:
        raise RequestError.invalid_params({"modeId": f"the modes are: {', '.join(offered)}"})
    conversation.rest.session.mode.choose(name)
    conversation.journal.write("event_msg", {"type": _EVENT, "mode": name})


def restore(conversation: Conversation) -> None:
    """Put a loaded session into the mode that it was left in, if it is still offered."""
    path = conversation.journal.path
    for line in lines_of(path) if path is not None else ():
        if line is not None and line[0] == "event_msg" and line[1].get("type") == _EVENT:
            wanted = line[1].get("mode")
            for name in _offered(conversation):
                if name == wanted:
                    conversation.rest.session.mode.choose(name)


def _offered(conversation: Conversation) -> list[ModeName]:
    settings = conversation.rest.settings
    offered = offered_modes(settings.approval_policy, settings.sandbox_mode)
    if settings.on_ask == "allow" and "auto" in offered:
        # What cannot be shown is then approved unseen, so asking more would allow more.
        return [name for name in offered if name != "ask"]
    return offered


def _current(conversation: Conversation) -> ModeName:
    """The session's mode; as long as none was chosen, the one that the settings amount to."""
    chosen, offered = conversation.rest.session.mode.name, _offered(conversation)
    return chosen if chosen in offered else offered[-1]

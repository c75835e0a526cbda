"""The things that a session's front end does for those who ask over its control socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from toolrest.errors import ToolrestError
from toolrest.timeline import session_text

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.config import Settings


class ControlError(ToolrestError):
    """A request to a session that it cannot do; the message has the reason."""


class Controls(Protocol):
    """The front end of a session, for what is asked of it from elsewhere."""

    @property
    def busy(self) -> bool:
        """Whether a turn or a command is under way."""

    def send(self, text: str, *, queued: bool) -> None:
        """Send a message as the person would: to the turn under way, or queued for after it."""

    async def interrupt(self) -> None:
        """End the turn."""

    async def undo(self, turn: int) -> list[str]:
        """Take back this turn if it is the last one; what was put back. UndoError otherwise."""

    def queued(self) -> list[str]:
        """Return the messages that wait for the end of the turn, in order."""

    def unqueue(self, at: int, text: str) -> None:
        """Remove a queued message; ControlError unless this one is there."""

    def use_model(self, name: str) -> None:
        """Go on with another model; ControlError when that is not possible now."""


class TurnControls:
    """Controls of a session whose front end begins the turns: `exec`, an editor."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    @property
    def busy(self) -> bool:
        """Whether a turn is under way."""
        return self._conversation.running

    def send(self, text: str, *, queued: bool) -> None:
        """Add a message to the turn under way."""
        if queued or not self._conversation.takes_messages:
            raise ControlError("this session takes messages only to the turn that is under way")
        self._conversation.say(text)

    async def interrupt(self) -> None:
        """End the turn."""
        await self._conversation.interrupt()

    async def undo(self, turn: int) -> list[str]:
        """Take back what the last turn changed."""
        return await session_text.undo(self._conversation, turn)

    def queued(self) -> list[str]:
        """Return nothing: its messages go to the turn under way."""
        return []

    def unqueue(self, at: int, text: str) -> None:
        """Refuse: nothing is queued."""
        raise ControlError("nothing is queued in this session")

    def use_model(self, name: str) -> None:
        """Refuse: the front end has chosen the model."""
        raise ControlError("choose the model where this session runs")


def own_models(settings: Settings) -> list[str]:
    """The models that the person's settings name, without asking any provider."""
    profiles = (profile.get("model") for profile in settings.profiles.values())
    rows = (
        f"{provider}:{name}"
        for provider, row in settings.model_providers.items()
        for name in row.models
    )
    return [name for name in dict.fromkeys((settings.model, *profiles, *rows)) if name]

"""How much may one turn cost? Past a limit the turn ends with a whole history behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.records import dataclass

if TYPE_CHECKING:
    from toolrest.config import Settings
    from toolrest.wire.model import Usage


@dataclass(slots=True)
class Budget:
    """Limits and what was used of them. None is no limit.

    A turn here is one request to the model; tokens are those of all its requests together.
    """

    max_turns: int | None = None
    max_tool_calls: int | None = None
    max_tokens: int | None = None
    turns: int = 0
    tool_calls: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, settings: Settings) -> Budget:
        """A fresh one with the limits that are set."""
        return cls(settings.max_turns, settings.max_tool_calls, settings.max_tokens)

    def used_up(self) -> str | None:
        """Which limit forbids one more request, in words; None while there is room."""
        if self.max_turns is not None and self.turns >= self.max_turns:
            return f"the model was asked {self.turns} times, and max_turns is {self.max_turns}"
        if self.max_tool_calls is not None and self.tool_calls > self.max_tool_calls:
            return f"max_tool_calls is {self.max_tool_calls}, and the model wants more"
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            return f"{self.tokens:,} tokens were used, and max_tokens is {self.max_tokens:,}"
        return None

    def take_call(self) -> str | None:
        """Count one more tool call; the answer for it when it is one too many."""
        self.tool_calls += 1
        if self.max_tool_calls is not None and self.tool_calls > self.max_tool_calls:
            return f"not run: this turn may make {self.max_tool_calls} tool calls (max_tool_calls)"
        return None

    def take_usage(self, usage: Usage) -> None:
        """Count the tokens of a response."""
        self.tokens += usage.total or usage.input + usage.output

"""Which calls were not allowed? Read off the events, for the end of a run."""

from __future__ import annotations

from toolrest.events import Event, ToolCallDecision, ToolCallEnd
from toolrest.items import JSONObject

_NOT_A_DENIAL = frozenset({"input_invalid", "tool_not_found", "execution_failed", "aborted"})


class Denials:
    """A listener that keeps one line for each call that was refused."""

    def __init__(self) -> None:
        self._found: dict[str, JSONObject] = {}

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, ToolCallDecision):
            if event.verdict == "deny" and event.rule not in _NOT_A_DENIAL:
                self._note(event.call_id, event.tool, event.rule, event.reason)
        elif isinstance(event, ToolCallEnd) and event.failure == "sandbox_denied":
            self._note(event.call_id, event.tool, "sandbox", _last_line(event.output))

    def _note(self, call_id: str, tool: str, rule: str, reason: str) -> None:
        self._found[call_id] = {"call_id": call_id, "tool": tool, "rule": rule, "reason": reason}

    def to_json(self) -> list[JSONObject]:
        """What was refused, in order."""
        return list(self._found.values())


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""

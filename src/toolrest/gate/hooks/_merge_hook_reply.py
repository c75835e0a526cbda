"""What a hook's standard output means. Whatever is not understood is an error, never a yes."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeAlias

from toolrest.items import JSONObject
from toolrest.records import dataclass

HookEvent: TypeAlias = Literal[
    "PreToolUse", "PostToolUse", "PermissionRequest", "SessionStart", "Stop"
]
Choice: TypeAlias = Literal["allow", "deny", "ask"]

_CHOICES: dict[str, Choice] = {
    "allow": "allow",
    "approve": "allow",
    "deny": "deny",
    "block": "deny",
    "ask": "ask",
}


class BadReply(ValueError):
    """A hook printed something that has no meaning."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a hook said. Nothing said is an empty one: go on."""

    choice: Choice | None = None
    reason: str = ""
    updated_input: JSONObject | None = None
    updated_output: str | None = None
    context: str = ""
    notice: str = ""
    """For the person, not the model."""
    ends_turn: bool = False


def read_reply(event: HookEvent, stdout: str) -> Reply:
    """The meaning of a hook's output; BadReply when it has none."""
    text = stdout.strip()
    if not text:
        return Reply()
    if event == "SessionStart" and not text.startswith("{"):
        return Reply(context=text)
    said = _Said(_object(text), event)
    ends_turn = said.flag("continue", default=True) is False or said.interrupts
    choice = said.choice
    if ends_turn and choice is None:
        choice = "deny"
    return Reply(
        choice,
        said.text("permissionDecisionReason", "reason", "message", "stopReason"),
        said.table("updatedInput", "updated_input"),
        said.optional("updatedToolOutput", "updated_output"),
        said.text("additionalContext", "additional_context"),
        said.text("systemMessage"),
        ends_turn,
    )


def _object(text: str) -> JSONObject:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadReply(f"its output is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadReply("its output is not a JSON object")
    return value


class _Said:
    """The fields of a reply, wherever the two dialects put them; a wrong type is an error."""

    def __init__(self, value: JSONObject, event: HookEvent) -> None:
        inner = value.get("hookSpecificOutput") or {}
        if not isinstance(inner, dict):
            raise BadReply("`hookSpecificOutput` is not an object")
        named = inner.get("hookEventName", event)
        if named != event:
            raise BadReply(f"`hookEventName` is {named!r}, but the event is {event}")
        decisions = (place.get("decision") for place in (inner, value))
        self._places = [*(d for d in decisions if isinstance(d, dict)), inner, value]

    def _find(self, *names: str) -> tuple[str, Any]:
        for place in self._places:
            for name in names:
                if place.get(name) is not None:
                    return name, place[name]
        return names[0], None

    def optional(self, *names: str) -> str | None:
        name, value = self._find(*names)
        if value is not None and not isinstance(value, str):
            raise BadReply(f"`{name}` is not a text")
        return value

    def text(self, *names: str) -> str:
        return self.optional(*names) or ""

    def flag(self, name: str, *, default: bool) -> bool:
        _, value = self._find(name)
        if value is not None and not isinstance(value, bool):
            raise BadReply(f"`{name}` is not true or false")
        return default if value is None else value

    def table(self, *names: str) -> JSONObject | None:
        name, value = self._find(*names)
        if value is not None and not isinstance(value, dict):
            raise BadReply(f"`{name}` is not an object")
        return value

    @property
    def interrupts(self) -> bool:
        return self.flag("interrupt", default=False)

    @property
    def choice(self) -> Choice | None:
        """The strictest of what was said, in any of the ways to say it."""
        found: list[Choice] = []
        for place in self._places:
            for name in ("permissionDecision", "behavior", "decision"):
                value = place.get(name)
                if value is None or isinstance(value, dict):
                    continue
                if not isinstance(value, str) or value not in _CHOICES:
                    raise BadReply(f"`{name}` is {value!r}, not one of allow, deny, ask")
                found.append(_CHOICES[value])
        return strictest(found)


def strictest(choices: list[Choice]) -> Choice | None:
    """Deny over ask over allow; None when nothing was said."""
    for choice in ("deny", "ask", "allow"):
        if choice in choices:
            return _CHOICES[choice]
    return None

"""How a tool that is not a function looks as one, and how its call comes back.

Chat Completions, Anthropic Messages and MCP know only functions. A freeform tool becomes a
function with one string, `input`; the hosted shell becomes `shell`; web search takes `query`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from toolrest.errors import RespondToModel
from toolrest.items import (
    CustomToolCall,
    FunctionCall,
    JSONObject,
    LocalShellCall,
    WebSearchCall,
)

ToolKind: TypeAlias = Literal["function", "custom", "local_shell", "web_search"]


@dataclass(frozen=True, slots=True)
class FunctionForm:
    """A kind of tool as a function. `name` None keeps the tool's own; `text` holds raw input."""

    parameters: JSONObject
    description: str
    name: str | None = None
    text: str | None = None


def _object(required: list[str], **properties: JSONObject) -> JSONObject:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


_SHELL: Final = _object(
    ["command"],
    command={
        "type": "array",
        "items": {"type": "string"},
        "description": "The program and its arguments, each one item.",
    },
    description={"type": "string", "description": "What the command is for, in a few words."},
    justification={
        "type": "string",
        "description": "With require_escalated: the question to put to the user.",
    },
    prefix_rule={
        "type": "array",
        "items": {"type": "string"},
        "description": "With require_escalated: the first words of commands to allow from now on.",
    },
    sandbox_permissions={
        "type": "string",
        "enum": ["use_default", "require_escalated"],
        "description": "require_escalated asks to run outside the sandbox.",
    },
    timeout_ms={"type": "integer", "description": "After how many milliseconds to give up."},
    workdir={"type": "string", "description": "The folder to run in."},
)

FUNCTION_FORM: Final[Mapping[str, FunctionForm]] = MappingProxyType(
    {
        "custom": FunctionForm(
            _object(
                ["input"],
                input={"type": "string", "description": "The whole input, as plain text."},
            ),
            description="Takes plain text.",
            text="input",
        ),
        "local_shell": FunctionForm(
            _SHELL, description="Runs a program and returns its output.", name="shell"
        ),
        "web_search": FunctionForm(
            _object(
                ["query"],
                query={"type": "string", "description": "What to search the web for."},
            ),
            description="Searches the web.",
            name="web_search",
            text="query",
        ),
    }
)
"""By kind. A kind that is not here is a function already."""

_ACTION: Final = {"workdir": "working_directory"}


def from_function(
    kind: ToolKind, call: FunctionCall
) -> FunctionCall | CustomToolCall | LocalShellCall | WebSearchCall:
    """The call in the shape its tool takes, when it came in as a function; `RespondToModel` if not.

    The answer belongs to the call that came in, not to the one returned here.
    """
    form = FUNCTION_FORM.get(kind)
    if form is None:
        return call
    arguments = _decoded(call.arguments)
    if kind == "local_shell":
        action = {_ACTION.get(key, key): value for key, value in arguments.items()}
        return LocalShellCall(call.call_id, {"type": "exec", **action}, call.wire)
    field = form.text or "input"
    text = arguments.get(field)
    if not isinstance(text, str):
        found = f"not {_kind(text)}" if field in arguments else "and it is missing"
        raise _invalid(f"`{field}` must be a string, {found}", field)
    if kind == "custom":
        return CustomToolCall(call.call_id, call.name, text, call.wire)
    return WebSearchCall(call.call_id, text, call.wire)


def _decoded(arguments: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(arguments, Mapping):
        return arguments
    try:
        decoded = json.loads(arguments)
    except (ValueError, RecursionError) as problem:
        detail = problem if isinstance(problem, json.JSONDecodeError) else "nested too deeply"
        raise _invalid(f"not valid JSON: {detail}") from None
    if not isinstance(decoded, dict):
        raise _invalid(f"expected a JSON object, not {_kind(decoded)}")
    return decoded


def _invalid(why: str, *fields: str) -> RespondToModel:
    text = f"failed to parse function arguments: {why}"
    return RespondToModel(text, kind="input_invalid", fields=fields)


def _kind(value: object) -> str:
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    names: dict[type, str] = {str: "a string", list: "an array", dict: "an object"}
    return names.get(type(value), "a number")

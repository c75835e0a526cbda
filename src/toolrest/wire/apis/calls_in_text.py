"""Tool calls that a model wrote into its text, because its server did not understand them.

Only calls at the end of a message count, only when it made no proper call, and only for tools
that were offered: a call in the middle of an explanation is part of the explanation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from html import unescape
from typing import Any, Final, NamedTuple

from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps
from toolrest.wire.items.repair_json import repaired

_MOST_CHARS: Final = 1 << 20
_MOST_CALLS: Final = 64
_TAGGED: Final = re.compile(r"<tool_call>((?:(?!</?tool_call>).)*)(?:</tool_call>|\Z)", re.DOTALL)
_FUNCTION: Final = re.compile(
    r"<function=([^>\s]{1,128})>((?:(?!</?function[=>]).)*)(?:</function>|\Z)", re.DOTALL
)
_PARAMETER: Final = re.compile(
    r"<parameter=([^>\s]{1,128})>((?:(?!</?parameter[=>]).)*)</parameter>", re.DOTALL
)
_INVOKE: Final = re.compile(
    r"<(?:\w+:)?invoke name=\"([^\"]{1,128})\">((?:(?!</?(?:\w+:)?invoke[ >]).)*)"
    r"</(?:\w+:)?invoke>",
    re.DOTALL,
)
_NAMED: Final = re.compile(
    r"<(?:\w+:)?parameter name=\"([^\"]{1,128})\"[^>]*>"
    r"((?:(?!</?(?:\w+:)?parameter[ >]).)*)</(?:\w+:)?parameter>",
    re.DOTALL,
)
_FENCED: Final = re.compile(r"\s*```(?:json|tool_call|tool_code)?[ \t]*\n(.*?)\n?```\s*", re.DOTALL)
_BETWEEN: Final = re.compile(r"(?:\s|</?(?:\w+:)?(?:function_calls|tool_calls?)>)*")

Schemas = Mapping[str, Mapping[str, Any]]


class TextCall(NamedTuple):
    """A call found in a text."""

    name: str
    arguments: str
    notes: tuple[str, ...] = ()


class CallInText(NamedTuple):
    """The calls, and the text that was before them."""

    text: str
    calls: list[TextCall]


def text_calls(text: str, schemas: Schemas) -> CallInText:
    """The calls at the end of a text; none when one of them is not of an offered tool."""
    if not schemas or len(text) > _MOST_CHARS:
        return CallInText(text, [])
    for pattern, read in _FORMS:
        found = _at_the_end(text, pattern, read, schemas)
        if found.calls:
            return found
    return _all_json(text, schemas)


def _at_the_end(
    text: str, pattern: re.Pattern[str], read: Callable[..., Any], schemas: Schemas
) -> CallInText:
    nothing = CallInText(text, [])
    matches = list(pattern.finditer(text))
    if not matches or len(matches) > _MOST_CALLS:
        return nothing
    ends = [match.end() for match in matches]
    starts = [match.start() for match in matches]
    gaps = zip(ends, [*starts[1:], len(text)], strict=True)
    if not all(_BETWEEN.fullmatch(text, end, start) for end, start in gaps):
        return nothing
    calls: list[TextCall] = []
    for match in matches:
        made = read(match, schemas)
        if not made:
            return nothing
        calls += made
    before = re.sub(r"<(?:\w+:)?(?:function_calls|tool_calls)>\s*\Z", "", text[: starts[0]])
    return CallInText(before.rstrip(), calls)


def _tagged(match: re.Match[str], schemas: Schemas) -> list[TextCall]:
    inside = match[1]
    function = _FUNCTION.fullmatch(inside.strip())
    if function is not None:
        return _xml(function[1], _PARAMETER.findall(function[2]), schemas)
    return _json_calls(inside, schemas)


def _invoked(match: re.Match[str], schemas: Schemas) -> list[TextCall]:
    return _xml(match[1], _NAMED.findall(match[2]), schemas)


def _bare_function(match: re.Match[str], schemas: Schemas) -> list[TextCall]:
    return _xml(match[1], _PARAMETER.findall(match[2]), schemas)


_FORMS: Final = (
    (_TAGGED, _tagged),
    (_INVOKE, _invoked),
    (_FUNCTION, _bare_function),
)


def _all_json(text: str, schemas: Schemas) -> CallInText:
    """A message that is nothing but a call in JSON, in a fence or bare."""
    fenced = _FENCED.fullmatch(text)
    inside = fenced[1] if fenced is not None else text.strip()
    if not inside.startswith(("{", "[")):
        return CallInText(text, [])
    calls = _json_calls(inside, schemas)
    return CallInText("", calls) if calls else CallInText(text, [])


def _json_calls(text: str, schemas: Schemas) -> list[TextCall]:
    notes: tuple[str, ...] = ()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        objects = repaired(text)
        if len(objects) != 1:
            return []
        value, notes = json.loads(objects[0].text), objects[0].notes
    listed = value if isinstance(value, list) else [value]
    calls = [_json_call(item, schemas, notes) for item in listed[: _MOST_CALLS + 1]]
    made = [call for call in calls if call is not None]
    return made if len(made) == len(listed) else []


def _json_call(value: Any, schemas: Schemas, notes: tuple[str, ...]) -> TextCall | None:
    if not isinstance(value, dict):
        return None
    function = value.get("function")
    body = function if isinstance(function, dict) else value
    name = body.get("name")
    arguments = body.get("arguments", body.get("parameters"))
    if not isinstance(name, str) or name not in schemas:
        return None
    if isinstance(arguments, dict):
        return TextCall(name, dumps(arguments), notes)
    if isinstance(arguments, str):
        made = repaired(arguments, schemas[name])
        return TextCall(name, made[0].text, (*notes, *made[0].notes)) if len(made) == 1 else None
    return TextCall(name, "{}", notes) if body.keys() == {"name"} else None


def _xml(name: str, given: list[tuple[str, str]], schemas: Schemas) -> list[TextCall]:
    schema = schemas.get(name)
    if schema is None:
        return []
    properties = schema.get("properties")
    arguments: JSONObject = {}
    for key, raw in given:
        known = properties.get(key) if isinstance(properties, Mapping) else None
        arguments[key] = _value(raw, known)
    return [TextCall(name, dumps(arguments))]


def _value(raw: str, schema: Any) -> Any:
    """A parameter's value: text without the line breaks around it, or JSON by its schema."""
    text = raw.removeprefix("\n").removesuffix("\n")
    kinds = schema.get("type") if isinstance(schema, Mapping) else "string"
    if kinds is None or "string" in (kinds if isinstance(kinds, list) else [kinds]):
        return text
    try:
        return json.loads(unescape(text))
    except (ValueError, RecursionError):
        return text

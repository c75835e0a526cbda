"""Repair of arguments that are almost JSON, without guessing, and with a note for each repair.

Nothing is invented: a text that ends too early stays broken, and so does an ambiguous one. The
notes show that the result is not exactly what the model wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps

_MOST_CHARS: Final = 4 << 20
_MOST_OBJECTS: Final = 16
_JSON_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "array": list,
    "object": dict,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
}
# A string without end reaches to the end of the text, so that no place is looked at twice.
_STRING: Final = r'"(?:[^"\\]|\\.|\\\Z)*(?:"|\Z)'
_TRAILING_COMMA: Final = re.compile(rf"({_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(.))', re.DOTALL)
_CLOSERS: Final = re.compile(r"[\s}\])`;]*(?:</?[\w:|]+>[\s`]*)*")


class Arguments(NamedTuple):
    """The text of one JSON object, and the notes on its repairs."""

    text: str
    notes: tuple[str, ...] = ()


def repaired(text: str, schema: Mapping[str, Any] | None = None) -> list[Arguments]:
    """The objects in a call's arguments: usually one, as it came.

    Several when a server ran objects together. Empty when they cannot be repaired.
    """
    if len(text) > _MOST_CHARS:
        return []
    if not text.strip() or text.strip() == "null":
        return [Arguments("{}")]
    value = _parsed(text)
    if isinstance(value, dict):
        return [_typed(Arguments(text), value, schema)]
    if isinstance(value, str) and isinstance(inner := _parsed(value), dict):
        return [_typed(Arguments(value, ("they were JSON inside a string",)), inner, schema)]
    if value is not _BROKEN:
        return []
    for candidate, notes in _candidates(text):
        found = _objects(candidate, notes)
        if found:
            return [_typed(made, json.loads(made.text), schema) for made in found]
    return []


_BROKEN: Final = object()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _BROKEN


def _candidates(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """The text with more and more repairs."""
    made: list[tuple[str, tuple[str, ...]]] = [(text, ())]
    for mend, note in (
        (_mend_escapes, "a backslash that escapes nothing was doubled"),
        (_mend_commas, "a comma before a closing bracket was dropped"),
    ):
        before, notes = made[-1]
        after = mend(before)
        if after != before:
            made.append((after, (*notes, note)))
    return made


def _mend_escapes(text: str) -> str:
    return _ESCAPE.sub(lambda match: match[0] if match[1] is None else "\\" + match[0], text)


def _mend_commas(text: str) -> str:
    return _TRAILING_COMMA.sub(lambda match: match[1] or "", text)


def _objects(text: str, notes: tuple[str, ...]) -> list[Arguments]:
    """Whole objects one after the other, with nothing but closing marks behind the last."""
    decoder = json.JSONDecoder(strict=False)
    found: list[Arguments] = []
    at = len(text) - len(text.lstrip())
    while at < len(text) and len(found) < _MOST_OBJECTS:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if not isinstance(value, dict):
            break
        found.append(Arguments(dumps(value), notes))
        at = end + len(text[end:]) - len(text[end:].lstrip())
    if not found or not _CLOSERS.fullmatch(text, at):
        return []
    if at < len(text):
        more = f"{json.dumps(text[at:][:40])} after the end was dropped"
        found[-1] = found[-1]._replace(notes=(*found[-1].notes, more))
    if len(found) > 1:
        note = f"{len(found)} objects came as one and were taken for calls of their own"
        found = [made._replace(notes=(*made.notes, note)) for made in found]
    elif not found[0].notes:
        # The only difference left: raw line breaks and other control characters in strings.
        found = [found[0]._replace(notes=("control characters in a string were escaped",))]
    return found


def _typed(made: Arguments, value: JSONObject, schema: Mapping[str, Any] | None) -> Arguments:
    """Unquote strings whose content is JSON of the type that the schema wants."""
    properties = schema.get("properties") if schema else None
    if not isinstance(properties, Mapping):
        return made
    notes: list[str] = []
    changed = dict(value)
    for name, item in value.items():
        wanted = _wanted(properties.get(name)) if isinstance(item, str) else ()
        inner = _parsed(item) if wanted else _BROKEN
        if any(_is_a(inner, kind) for kind in wanted):
            changed[name] = inner
            notes.append(f"`{name}` was in quotes")
    return Arguments(dumps(changed), (*made.notes, *notes)) if notes else made


def _wanted(schema: Any) -> tuple[str, ...]:
    """The JSON types a value may have; none when it may be a string."""
    if not isinstance(schema, Mapping):
        return ()
    kinds = schema.get("type")
    listed = [kinds] if isinstance(kinds, str) else kinds
    for key in ("anyOf", "oneOf"):
        if listed is None and isinstance(schema.get(key), list):
            listed = [part.get("type") for part in schema[key] if isinstance(part, Mapping)]
    if not isinstance(listed, list) or "string" in listed or "enum" in schema:
        return ()
    return tuple(kind for kind in listed if isinstance(kind, str) and kind in _JSON_TYPES)


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return value is not _BROKEN and isinstance(value, _JSON_TYPES[kind])

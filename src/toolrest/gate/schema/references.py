"""References in a JSON Schema: the target of a `$ref`, and the stub for a recursive schema."""

from __future__ import annotations

from typing import Final, TypeAlias
from urllib.parse import unquote

from toolrest.gate.schema.keywords import clean_text
from toolrest.items import JSONObject

Pointer: TypeAlias = tuple[str, ...]

_MAX_REF: Final = 1000


class BadReferenceError(ValueError):
    """A reference that cannot be followed; the message has the reason."""


def pointer(ref: object) -> Pointer:
    """The steps of a reference inside the schema; `BadReferenceError` for any other."""
    if not isinstance(ref, str):
        raise BadReferenceError("$ref must be a string")
    shown = clean_text(ref, 100)
    if not ref.startswith("#"):
        raise BadReferenceError(
            f"$ref {shown!r} points outside the schema; write what it means in its place"
        )
    if len(ref) > _MAX_REF or ref[1:2] not in ("", "/"):
        raise BadReferenceError(
            f"$ref {shown!r} is not a path inside the schema (like #/$defs/NAME)"
        )
    steps = _unquoted(ref[1:]).split("/")[1:]
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def _unquoted(text: str) -> str:
    if "%" not in text:
        return text
    return unquote(text)


def follow(root: object, steps: Pointer) -> object:
    """The target of a pointer; `BadReferenceError` when there is none."""
    found = root
    for step in steps:
        if isinstance(found, dict) and step in found:
            found = found[step]
        elif isinstance(found, list) and step.isdecimal() and int(step[:9]) < len(found):
            found = found[int(step[:9])]
        else:
            shown = clean_text("/".join(steps), 100)
            raise BadReferenceError(f"$ref to {shown!r}, which is not in the schema")
    return found


def cut(target: object, steps: Pointer, *, guesses: bool = True) -> JSONObject:
    """The stub for a schema inside itself: its type, and a description that says so."""
    name = clean_text(steps[-1], 60) if steps else ""
    note: JSONObject = {"description": f"Recursive: {name or 'the whole value'} again."}
    raw = target if isinstance(target, dict) else {}
    type_ = raw.get("type", "object" if guesses and "properties" in raw else None)
    if type_ == "object":
        return {"type": "object", **note, "properties": {}}
    return {"type": "array", **note, "items": {}} if type_ == "array" else note

"""Which arguments a model may leave out because null was allowed for them.

The schema that a model reads has no null (`normalise.py`): where the tool's own schema
requires a property and lets it be null, the model may leave it out. Before the tool's own check
such a property is put back as null.

Where a `$ref` points, and what stands where a schema contains itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from toolrest.gate.schema.keywords import clean_text
from toolrest.items import JSONObject

Pointer: TypeAlias = tuple[str, ...]

_MAX_REF: Final = 1000


class BadReferenceError(ValueError):
    """The reference cannot be followed; the message says why."""


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
    from urllib.parse import unquote

    return unquote(text)


def follow(root: object, steps: Pointer) -> object:
    """What the steps lead to; `BadReferenceError` when there is nothing."""
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


def cut(target: object, steps: Pointer) -> JSONObject:
    """Stands where a schema contains itself: its type, and a word about why there is no more."""
    name = clean_text(steps[-1], 60) if steps else ""
    note: JSONObject = {"description": f"Recursive: {name or 'the whole value'} again."}
    raw = target if isinstance(target, dict) else {}
    type_ = raw.get("type", "object" if "properties" in raw else None)
    if type_ == "object":
        return {"type": "object", **note, "properties": {}}
    return {"type": "array", **note, "items": {}} if type_ == "array" else note


_MAX_DEPTH: Final = 64
_MAX_BRANCHES: Final = 1000


def fill_nulls(schema: object, arguments: Mapping[str, Any]) -> JSONObject:
    """A copy of the arguments with null for each property that is required, nullable and absent."""
    filled: JSONObject = _filled(schema, schema, dict(arguments), 0)
    return filled


def _filled(schema: object, root: object, value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return value
    part = _meant(schema, root)
    if isinstance(value, list):
        items = part.get("items")
        return [_filled(items, root, item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    properties = part.get("properties")
    known = properties if isinstance(properties, dict) else {}
    filled = {
        name: _filled(known[name], root, item, depth + 1) if name in known else item
        for name, item in value.items()
    }
    for name in _nullable_required(part, root):
        filled.setdefault(name, None)
    return filled


def _nullable_required(part: JSONObject, root: object) -> Iterator[str]:
    required = part.get("required")
    properties = part.get("properties")
    if not isinstance(required, list | tuple) or not isinstance(properties, dict):
        return
    for name in required:
        if isinstance(name, str) and name in properties and _takes_null(properties[name], root):
            yield name


def _meant(schema: object, root: object) -> JSONObject:
    """The object that a schema stands for: through references and single alternatives."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        if "properties" in schema or "items" in schema:
            return schema
        if "$ref" in schema:
            schema = _target(schema["$ref"], root)
            continue
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if not isinstance(branches, list):
            return schema
        live = [branch for branch in branches if branch != {"type": "null"}]
        if len(live) != 1:
            return {}
        schema = live[0]
    return {}


def _takes_null(schema: object, root: object) -> bool:
    waiting = [schema]
    seen: set[int] = set()
    while waiting and len(seen) < _MAX_BRANCHES:
        part = waiting.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        said = _says_of_null(part)
        if said:
            return True
        if said is None:
            waiting += [*_listed(part, "anyOf"), *_listed(part, "oneOf")]
            waiting += [_target(part["$ref"], root)] if "$ref" in part else []
    return False


def _says_of_null(part: JSONObject) -> bool | None:
    """What the schema itself says; None when it leaves that to its references and branches."""
    if part.get("nullable") is True:
        return True
    type_ = part.get("type")
    if type_ is not None:
        return type_ == "null" or (isinstance(type_, list) and "null" in type_)
    if "const" in part:
        return part["const"] is None
    values = part.get("enum")
    return None in values if isinstance(values, list) else None


def _listed(schema: JSONObject, keyword: str) -> list[object]:
    listed = schema.get(keyword)
    return listed if isinstance(listed, list) else []


def _target(ref: object, root: object) -> object:
    try:
        return follow(root, pointer(ref))
    except BadReferenceError:
        return None

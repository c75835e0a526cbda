"""Optional nulls: arguments that a model may leave out because null was allowed for them.

The schema that a model reads has no null (`normalise.py`): where the tool's own schema
requires a property and lets it be null, the model may leave it out. Before the tool's own check
such a property is put back as null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolrest.gate.schema.normalise import takes_null
from toolrest.gate.schema.references import BadReferenceError, follow, pointer
from toolrest.items import JSONObject

_MAX_DEPTH: Final = 64


def fill_nulls(schema: object, arguments: Mapping[str, Any]) -> JSONObject:
    """A copy of the arguments with null for each property that is required, nullable and absent."""
    filled: JSONObject = _filled(schema, schema, dict(arguments), 0)
    return filled


def _filled(schema: object, root: object, value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH or not isinstance(value, list | dict):
        return value
    part = _meant(schema, root)
    if isinstance(value, list):
        return [_filled(part.get("items"), root, item, depth + 1) for item in value]
    known, required = part.get("properties"), part.get("required")
    if not isinstance(known, dict):
        return dict(value)
    filled = {name: _filled(known.get(name), root, item, depth + 1) for name, item in value.items()}
    for name in required if isinstance(required, list | tuple) else ():
        is_absent = isinstance(name, str) and name in known and name not in value
        if is_absent and takes_null(known[name], root):
            filled[name] = None
    return filled


def _meant(schema: object, root: object) -> JSONObject:
    """The object that a schema stands for: through references and single alternatives."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, dict):
            return {}
        if "properties" in schema or "items" in schema:
            return schema
        if "$ref" in schema:
            try:
                schema = follow(root, pointer(schema["$ref"]))
            except BadReferenceError:
                return {}
            continue
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        listed = branches if isinstance(branches, list) else ()
        live = [branch for branch in listed if branch != {"type": "null"}]
        if len(live) != 1:
            return {}
        schema = live[0]
    return {}

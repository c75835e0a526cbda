"""Schemas of older drafts, or loosely written, repaired into JSON Schema 2020-12.

Servers of MCP need not say which draft they mean, and their libraries write what no draft allows.
What has a clear meaning is rewritten; what has none is left out, so the check gets wider.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from toolrest.items import JSONObject

_IN_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_IN_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_DIRECT: Final = (
    *("items", "additionalItems", "additionalProperties", "propertyNames", "contains", "not"),
    *("if", "then", "else", "unevaluatedItems", "unevaluatedProperties"),
)
_MAY_BE_NULL: Final = ("const", "default", "example")
_COUNTS: Final = re.compile(r"(min|max)(Length|Items|Properties)")
_PYTHON_ENDS: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\Z")


def repaired(schema: JSONObject) -> JSONObject:
    """The schema as 2020-12 has it; the original when it is nested too deeply to be read."""
    try:
        mended: JSONObject = _mended(schema)
    except RecursionError:
        return schema
    if mended != schema:
        mended.pop("$schema", None)
    return mended


def without(schema: Any, path: Sequence[str | int]) -> Any:
    """A copy of a schema without the part at a path."""
    step, *rest = path
    if isinstance(schema, dict):
        if rest:
            return {**schema, step: without(schema[str(step)], rest)}
        return {key: value for key, value in schema.items() if key != step}
    at = int(step)
    part = [without(schema[at], rest)] if rest else []
    return [*schema[:at], *part, *schema[at + 1 :]]


def _mended(raw: Any) -> Any:
    if not isinstance(raw, dict):
        return raw
    node = {key: value for key, value in raw.items() if value is not None or key in _MAY_BE_NULL}
    _mend_items(node)
    _mend_limits(node)
    for key in _IN_MAPS:
        if isinstance(part := node.get(key), dict):
            node[key] = {name: _mended(sub) for name, sub in part.items()}
    for key in _IN_LISTS:
        if isinstance(part := node.get(key), list | tuple):
            node[key] = [_mended(sub) for sub in part]
    for key in _DIRECT:
        if key in node:
            node[key] = _mended(node[key])
    return _or_null(node) if node.pop("nullable", None) is True else node


def _mend_items(node: JSONObject) -> None:
    """A list of `items` is `prefixItems` since 2020-12."""
    if isinstance(node.get("items"), list | tuple):
        node["prefixItems"] = node.pop("items")
        if "additionalItems" in node:
            node["items"] = node.pop("additionalItems")


def _mend_limits(node: JSONObject) -> None:
    """Bounds that draft 4 writes as true, numbers in quotes, Python's end of a pattern."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and bound in node:
            node[exclusive] = node.pop(bound)
    if node.get("type") == "any":
        del node["type"]
    for key, value in node.items():
        if _COUNTS.fullmatch(key) and isinstance(value, str) and value.isdecimal():
            node[key] = int(value[:18])
    if isinstance(node.get("pattern"), str):
        node["pattern"] = _PYTHON_ENDS.sub(r"\1$", node["pattern"])


def _or_null(node: JSONObject) -> JSONObject:
    """A node of OpenAPI that may be null."""
    notes: JSONObject = {
        key: node[key] for key in ("description", "title", "default") if key in node
    }
    return {**notes, "anyOf": [node, {"type": "null"}]}

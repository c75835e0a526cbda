"""Merge several normal schemas into one, not narrower than the original.

The result is only what a model is offered, and the tool's own check follows: where schemas that
hold at once differ, the first one wins. Of a property that only some of several alternative
objects name, the others allow any value, unless they say what else they take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from toolrest.gate.schema.keywords import ANNOTATIONS, plain_values, value_key
from toolrest.items import JSONObject


def is_open(schema: JSONObject) -> bool:
    """True when the schema allows any value; it may have annotations."""
    return "type" not in schema and "anyOf" not in schema


def merge(first: JSONObject, second: JSONObject) -> JSONObject:
    """Both schemas in one: every property of either, and where they differ, the first."""
    merged = {**second, **first}
    if is_open(first) or is_open(second):
        return merged
    if "anyOf" in merged or first["type"] != second["type"]:
        return first
    if "items" in merged:
        merged["items"] = merge(first["items"], second["items"])
        if "prefixItems" in merged:
            merged["prefixItems"] = [
                merge(one or first["items"], other or second["items"])
                for one, other in zip_longest(*(x.get("prefixItems", ()) for x in (first, second)))
            ]
    if "properties" in merged:
        properties = {**second["properties"], **first["properties"]}
        for name in first["properties"].keys() & second["properties"].keys():
            properties[name] = merge(first["properties"][name], second["properties"][name])
        merged["properties"] = properties
        required = dict.fromkeys((*first.get("required", ()), *second.get("required", ())))
        if required:
            merged["required"] = list(required)
    return merged


def any_of(schemas: Sequence[JSONObject]) -> JSONObject:
    """One schema for what fits any of these (at least one): flat, without repeats."""
    found: dict[str, JSONObject] = {}
    for schema in schemas:
        if is_open(schema):
            return {}
        for branch in schema["anyOf"] if schema.keys() == {"anyOf"} else (schema,):
            # Branches that only list values of one type become one list.
            is_list = branch.keys() == {"type", "enum"}
            key = branch["type"] if is_list else value_key(branch)
            known = found.setdefault(key, branch)
            if is_list and known is not branch:
                values = plain_values([*known["enum"], *branch["enum"]])
                found[key] = {**known, "enum": values}
    distinct = list(found.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def common_object(objects: Sequence[JSONObject]) -> JSONObject:
    """One object for several: every property of any, required where all require it."""
    names = dict.fromkeys(name for schema in objects for name in schema["properties"])
    properties = {name: _of_any(objects, name) for name in names}
    joined: JSONObject = {"type": "object", "properties": properties}
    first, *others = objects
    lists = [schema.get("required", ()) for schema in others]
    required = [name for name in first.get("required", ()) if all(name in one for one in lists)]
    if required:
        joined["required"] = required
    rest = first.get("additionalProperties")
    if rest is not None and all(schema.get("additionalProperties") == rest for schema in others):
        joined["additionalProperties"] = rest
    return joined


def _of_any(objects: Sequence[JSONObject], name: str) -> JSONObject:
    """The schema of a property that fits any of these objects; notes stay if it is open."""
    named = [schema["properties"][name] for schema in objects if name in schema["properties"]]
    rests = [
        schema.get("additionalProperties") for schema in objects if name not in schema["properties"]
    ]
    unnamed = [rest if isinstance(rest, dict) else {} for rest in rests if rest is not False]
    return any_of([*named, *unnamed]) or {k: named[0][k] for k in ANNOTATIONS if k in named[0]}


def any_place(array: JSONObject) -> JSONObject:
    """The schema of any item of an array, for readers that do not know `prefixItems`."""
    places: list[JSONObject] = array.get("prefixItems", [])
    closed = len(places) >= array.get("maxItems", len(places) + 1)
    return any_of(places if closed and places else [*places, array["items"]])


def map_parts(schema: JSONObject, change: Callable[[JSONObject], JSONObject]) -> JSONObject:
    """The same schema with every schema directly in it changed."""
    mapped = dict(schema)
    for key, value in schema.items():
        if key == "properties":
            mapped[key] = {name: change(property_) for name, property_ in value.items()}
        elif key in ("anyOf", "prefixItems"):
            mapped[key] = [change(sub) for sub in value]
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            mapped[key] = change(value)
    return mapped

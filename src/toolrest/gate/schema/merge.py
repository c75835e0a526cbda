"""How several normal schemas become one: all of them, any of them, or their common object.

Where exactness would need `allOf`, `not` or a product nobody can read, the result is wider than
the original: it only tells a model what to send, and the tool's own check follows. Alternative
objects are read as if each forbade what it does not name. Results never share a part with one
another, or a small schema could stand for an enormous tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from toolrest.gate.schema.keywords import (
    ANNOTATIONS,
    ORDER,
    TIGHTER_IS_LESS,
    TIGHTER_IS_MORE,
    fits,
    value_key,
)
from toolrest.items import JSONObject
from toolrest.records import dataclass


class TooLargeError(Exception):
    """The budget is spent: the schema would unfold to more than anybody should send."""


@dataclass(slots=True)
class Budget:
    """How many more schema nodes may be made."""

    left: int

    def spend(self, count: int = 1) -> None:
        """Take from the budget; `TooLargeError` when there is nothing left."""
        self.left -= count
        if self.left < 0:
            raise TooLargeError


@dataclass(frozen=True, slots=True)
class Node:
    """A normal schema and whether null fits too. Without a schema only null fits, or nothing."""

    schema: JSONObject | None
    nullable: bool = False


def is_open(schema: JSONObject) -> bool:
    """True when the schema says nothing about the value, at most something about its meaning."""
    return "type" not in schema and "anyOf" not in schema


def words_of(schema: JSONObject) -> JSONObject:
    """What the schema says to its reader and not about the value."""
    return {key: schema[key] for key in ANNOTATIONS if key in schema}


def copy(schema: Any, budget: Budget) -> Any:
    """A deep copy that is paid for."""
    if isinstance(schema, dict):
        budget.spend()
        return {key: copy(value, budget) for key, value in schema.items()}
    if isinstance(schema, list):
        budget.spend()
        return [copy(item, budget) for item in schema]
    return schema


def both(first: Node, second: Node, budget: Budget) -> Node:
    """What fits the two; the second's words win."""
    if first.schema is None or second.schema is None:
        return Node(None, first.nullable and second.nullable)
    nullable = first.nullable and second.nullable
    if is_open(first.schema) or is_open(second.schema):
        nullable = first.nullable or second.nullable
    merged = conjoin(first.schema, second.schema, budget)
    return Node(first.schema if merged is None else merged, nullable)


def conjoin(first: JSONObject, second: JSONObject, budget: Budget) -> JSONObject | None:
    """One schema for what fits both, or None when nothing can."""
    budget.spend()
    if is_open(first) or is_open(second):
        return {**first, **second}
    if "anyOf" in first:
        return _spread(first, second, budget, flipped=False)
    if "anyOf" in second:
        return _spread(second, first, budget, flipped=True)
    return _conjoin_typed(first, second, budget)


def _spread(
    union: JSONObject, other: JSONObject, budget: Budget, *, flipped: bool
) -> JSONObject | None:
    said = words_of(other)
    bare = {key: value for key, value in other.items() if key not in said}
    branches: list[JSONObject] = []
    for branch in union["anyOf"]:
        pair = (copy(bare, budget), branch) if flipped else (branch, copy(bare, budget))
        if (merged := conjoin(*pair, budget)) is not None:
            branches.append(merged)
    if not branches:
        return None
    kept = words_of(union)
    outer = {**said, **kept} if flipped else {**kept, **said}
    return {**any_of(branches), **outer}


def _conjoin_typed(first: JSONObject, second: JSONObject, budget: Budget) -> JSONObject | None:
    types = {first["type"], second["type"]}
    if types == {"integer", "number"}:
        type_ = "integer"
    elif len(types) == 1:
        type_ = first["type"]
    else:
        return None
    merged: JSONObject = {**first, **second, "type": type_}
    for key in first.keys() & second.keys():
        if key in TIGHTER_IS_MORE:
            merged[key] = max(first[key], second[key])
        elif key in TIGHTER_IS_LESS:
            merged[key] = min(first[key], second[key])
    if "enum" in merged and not (values := _common_values(first, second, type_)):
        del merged["enum"]
    elif "enum" in merged:
        merged["enum"] = values
    if "items" in first and "items" in second:
        items = conjoin(first["items"], second["items"], budget)
        merged["items"] = {} if items is None else items
    if type_ == "object":
        _conjoin_objects(first, second, merged, budget)
    return merged


def _common_values(first: JSONObject, second: JSONObject, type_: str) -> list[Any]:
    values: list[Any] = second["enum"] if "enum" in second else first["enum"]
    if "enum" in first and "enum" in second:
        known = {value_key(value) for value in first["enum"]}
        values = [value for value in values if value_key(value) in known] or values
    return [value for value in values if fits(value, type_)]


def _conjoin_objects(
    first: JSONObject, second: JSONObject, merged: JSONObject, budget: Budget
) -> None:
    properties = dict(first["properties"])
    for name, schema in second["properties"].items():
        mine = properties.get(name)
        found = schema if mine is None else conjoin(mine, schema, budget)
        properties[name] = schema if found is None else found
    merged["properties"] = properties
    required = dict.fromkeys((*first.get("required", ()), *second.get("required", ())))
    if required:
        merged["required"] = list(required)
    rests = [first.get("additionalProperties"), second.get("additionalProperties")]
    others = [second["properties"], first["properties"]]
    # "Nothing else" said by one part would forbid what the other part names.
    if rests[0] != rests[1] and any(
        rest is not None and other for rest, other in zip(rests, others, strict=True)
    ):
        merged.pop("additionalProperties", None)


def any_of(schemas: Sequence[JSONObject]) -> JSONObject:
    """One schema for what fits any of these (at least one): flat, without repeats."""
    flat: list[JSONObject] = []
    for schema in schemas:
        if is_open(schema):
            return {}
        flat.extend(schema["anyOf"] if schema.keys() == {"anyOf"} else (schema,))
    if len(flat) == 1:
        return flat[0]
    distinct = list({value_key(schema): schema for schema in _gather_values(flat)}.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def _gather_values(schemas: Sequence[JSONObject]) -> list[JSONObject]:
    """Branches that only list values of one type become one list, where the first one stood."""
    gathered: list[JSONObject] = []
    lists: dict[str, dict[str, Any]] = {}
    for schema in schemas:
        if schema.keys() != {"type", "enum"} or schema["type"] in ("object", "array"):
            gathered.append(schema)
            continue
        values = {value_key(value): value for value in schema["enum"]}
        if (known := lists.get(schema["type"])) is None:
            lists[schema["type"]] = values
            gathered.append({"type": schema["type"], "enum": values})
        else:
            known.update(values)
    for schema in gathered:
        if isinstance(schema.get("enum"), dict):
            schema["enum"] = list(schema["enum"].values())
    return gathered


def common_object(objects: Sequence[JSONObject]) -> JSONObject:
    """One object for several: every property of any, required where all require it."""
    found: dict[str, list[JSONObject]] = {}
    for schema in objects:
        for name, property_ in schema["properties"].items():
            found.setdefault(name, []).append(property_)
    joined: JSONObject = {
        "type": "object",
        "properties": {name: any_of(schemas) for name, schemas in found.items()},
    }
    required = [
        name
        for name in objects[0].get("required", ())
        if all(name in schema.get("required", ()) for schema in objects)
    ]
    if required:
        joined["required"] = required
    rests = [schema.get("additionalProperties") for schema in objects]
    if rests[0] is not None and all(rest == rests[0] for rest in rests):
        joined["additionalProperties"] = rests[0]
    return joined


def ordered(schema: JSONObject) -> JSONObject:
    """Keywords in one order and properties by name, so that equal schemas are equal bytes."""
    result: JSONObject = {}
    for key in sorted(schema, key=ORDER.__getitem__):
        value = schema[key]
        if key == "properties":
            result[key] = {name: ordered(value[name]) for name in sorted(value)}
        elif key in ("anyOf", "prefixItems"):
            result[key] = [ordered(sub) for sub in value]
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            result[key] = ordered(value)
        else:
            result[key] = value
    return result


class Size(NamedTuple):
    """How deep a JSON value is nested, and how many characters of text are in it."""

    depth: int
    text: int


def measure(value: Any, budget: Budget) -> Size:
    """The size of a JSON value, each part of it paid for."""
    budget.spend()
    if isinstance(value, dict):
        sizes = [measure(item, budget) for item in value.values()]
        keys = sum(map(len, value))
    elif isinstance(value, list):
        sizes, keys = [measure(item, budget) for item in value], 0
    else:
        return Size(0, len(value) if isinstance(value, str) else 0)
    return Size(1 + max((s.depth for s in sizes), default=0), keys + sum(s.text for s in sizes))

"""Normalise a JSON Schema into one that every model API can read.

The normal form: every node is `{}` (any value), has one `type`, or is an `anyOf` of such nodes;
objects have `properties`, arrays have `items`; no references, no `allOf`, no null, no booleans
in place of a schema. Null that was allowed becomes "may be left out" (`optional_nulls.py`).
It may be wider than the original, see `merge.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn

from toolrest.errors import ToolDefinitionError
from toolrest.gate.schema.keywords import (
    ANNOTATIONS,
    KEYWORDS,
    TYPES,
    annotations_of,
    clean_text,
    constraints,
    fits,
    hinted_type,
    is_clean_name,
    plain_values,
)
from toolrest.gate.schema.merge import any_of, common_object, is_open, map_parts, merge
from toolrest.gate.schema.references import BadReferenceError, Pointer, cut, follow, pointer
from toolrest.items import JSONObject

MAX_NODES: Final = 10_000
MAX_DEPTH: Final = 64
MAX_TEXT: Final = 256 * 1024
_LARGE: Final = 16 * 1024
_PLAIN: Final = ("object", "array", "string", "number", "boolean")

# Reading may take more steps than the result has nodes, so that a result can be read again.
_STEPS: Final = 4 * MAX_NODES
_TOO_LARGE: Final = f"it unfolds to more than {MAX_NODES} nodes; make it smaller"
_TOO_LONG: Final = f"it is longer than {MAX_TEXT // 1024} KiB; make it smaller"
_TOO_DEEP: Final = "it is nested too deeply; make it flatter"


def normalise(schema: object, *, tool: str = "tool", guesses: bool = True) -> JSONObject:
    """The normal form of a tool's parameters; `ToolDefinitionError` when there is none.

    Pure and deterministic: the input is never changed or shared, equal input gives equal bytes,
    and a normal form is its own normal form. With `guesses` a model reads the likely type where
    a schema allows any: items that are not described are strings.
    """
    try:
        text = json.dumps(schema)
    except (TypeError, ValueError, RecursionError):
        text = ""
    if len(text) < _LARGE:
        return _normalised(schema, tool, guesses=guesses)
    normal: JSONObject = json.loads(_kept(text, tool, guesses))
    return normal


@lru_cache(maxsize=64)
def _kept(text: str, tool: str, guesses: bool) -> str:
    """The normal form of a large schema, which takes long: each session and wire asks for it."""
    return json.dumps(_normalised(json.loads(text), tool, guesses=guesses))


def _normalised(schema: object, tool: str, *, guesses: bool) -> JSONObject:
    try:
        normal = _ordered(_Normaliser(schema, guesses=guesses).top(), _Budget(MAX_NODES))
        if len(json.dumps(normal, ensure_ascii=False)) > MAX_TEXT:
            raise _Unusable(_TOO_LONG)
    except _Unusable as problem:
        raise ToolDefinitionError(f"{tool}: its schema is unusable: {problem}") from None
    except RecursionError:
        raise ToolDefinitionError(f"{tool}: its schema is unusable: {_TOO_DEEP}") from None
    return normal


def _ordered(schema: JSONObject, budget: _Budget) -> JSONObject:
    """Keywords in one order and properties by name, so that equal schemas are equal bytes."""
    budget.spend(1 + len(schema.get("enum", ())) + len(schema.get("required", ())))
    mapped = map_parts(schema, lambda part: _ordered(part, budget))
    return {key: mapped[key] for key in KEYWORDS if key in mapped}


class _Unusable(Exception):
    """The reason why the schema cannot be used, with the path in it."""


class _Budget:
    """The number of schema nodes that may still be read or written."""

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _Unusable(_TOO_LARGE)


class _At(NamedTuple):
    """The path in the schema, and the references that led there."""

    path: str = "#"
    depth: int = 0
    active: tuple[Pointer, ...] = ((),)
    name: str = ""

    def into(self, *steps: str, name: str = "") -> _At:
        return _At("/".join((self.path, *steps)), self.depth + len(steps), self.active, name)

    def refuse(self, why: str) -> NoReturn:
        raise _Unusable(f"at {clean_text(self.path, 200)}: {why}")


class _Node(NamedTuple):
    """A normal schema and whether null fits too. Without a schema only null fits, or nothing."""

    schema: JSONObject | None
    nullable: bool = False


class _Normaliser:
    def __init__(self, root: object, *, guesses: bool = True) -> None:
        self.root = root
        self.guesses = guesses
        self.budget = _Budget(_STEPS)

    def top(self) -> JSONObject:
        at = _At()
        schema = self.node(self.root, at).schema
        if schema is None:
            at.refuse("it allows no arguments at all")
        if "anyOf" in schema:
            objects = [branch for branch in _branches(schema) if branch["type"] == "object"]
            if not objects:
                at.refuse("none of its alternatives is an object")
            schema = common_object(objects)
        elif is_open(schema):
            schema = {"type": "object", "properties": {}, **schema}
        elif schema["type"] != "object":
            at.refuse(f"arguments are an object, and this describes a value of {schema['type']}")
        # The tool has its own description; APIs refuse a top-level enum.
        for keyword in ("enum", *ANNOTATIONS):
            schema.pop(keyword, None)
        return schema

    def node(self, raw: object, at: _At) -> _Node:
        self.budget.spend(1)
        if at.depth > MAX_DEPTH:
            raise _Unusable(_TOO_DEEP)
        if isinstance(raw, bool):
            return _Node({} if raw else None)
        if not isinstance(raw, dict):
            at.refuse(f"a schema is an object or a boolean, not {_kind(raw)}")
        whole = self._own(raw, at)
        if "$ref" in raw:
            whole = _both(whole, self._reference(raw["$ref"], at))
        for part in self._listed(raw, "allOf", at):
            whole = _both(whole, part)
        for keyword in ("anyOf", "oneOf"):
            if branches := self._listed(raw, keyword, at):
                whole = _with_alternatives(whole, branches)
        return whole

    def _listed(self, raw: JSONObject, keyword: str, at: _At) -> list[_Node]:
        listed = raw.get(keyword)
        if not isinstance(listed, list | tuple):
            return []
        self.budget.spend(len(listed))
        return [self.node(sub, at.into(keyword, str(n))) for n, sub in enumerate(listed)]

    def _reference(self, ref: object, at: _At) -> _Node:
        try:
            steps = pointer(ref)
            target = follow(self.root, steps)
        except BadReferenceError as problem:
            at.refuse(str(problem))
        if steps in at.active:
            return _Node(cut(target, steps, guesses=self.guesses), nullable=not self.guesses)
        name = steps[-1] if steps else at.name
        return self.node(target, at._replace(active=(*at.active, steps), name=name))

    def _own(self, raw: JSONObject, at: _At) -> _Node:
        """The node of the schema itself, without references and alternatives."""
        notes = annotations_of(raw, at.name)
        types, nullable = _written_types(raw, at)
        listed = self._values(raw)
        values = [value for value in listed if value is not None]
        if len(values) < len(listed):
            nullable = nullable or not types
            if not values and nullable:
                return _Node(None, True)
        if not types and raw.get("type") in ("null", ["null"]):
            return _Node(None, True)
        if not types and (hinted := hinted_type(raw, values)):
            # Without a type the limits of each type hold for its own values only.
            types, nullable = (
                (hinted, nullable) if self.guesses else (list(_PLAIN), nullable or not listed)
            )
        if not types:
            return _Node(notes, nullable)
        types = [type_ for type_ in types if any(fits(v, type_) for v in values)] or types
        if len(types) > 1:
            at = at.into("anyOf", "0")
        typed = any_of([self._typed(type_, raw, at, values) for type_ in types])
        return _Node({**typed, **notes}, nullable)

    def _values(self, raw: JSONObject) -> list[Any]:
        listed = [raw["const"]] if "const" in raw else raw.get("enum")
        if not isinstance(listed, list | tuple):
            return []
        self.budget.spend(len(listed))
        return plain_values(listed)

    def _typed(self, type_: str, raw: JSONObject, at: _At, values: list[Any]) -> JSONObject:
        schema: JSONObject = {"type": type_, **constraints(type_, raw)}
        if listed := [value for value in values if fits(value, type_)]:
            schema["enum"] = listed
        if type_ == "array":
            self._array(raw, at, schema)
        elif type_ == "object":
            self._object(raw, at, schema)
        return schema

    def _array(self, raw: JSONObject, at: _At, schema: JSONObject) -> None:
        is_open = not self.guesses or "prefixItems" in raw or "enum" in schema
        rest = raw.get("items", True if is_open else {"type": "string"})
        keyword = "prefixItems"
        if isinstance(rest, list | tuple):
            keyword, rest = "items", raw.get("additionalItems", True)
        prefix = [node.schema or {} for node in self._listed(raw, keyword, at)]
        items = self.node(rest, at.into("items")).schema
        schema["items"] = items or {}
        if prefix:
            schema["prefixItems"] = prefix
            if items is None:
                schema["maxItems"] = min(schema.get("maxItems", len(prefix)), len(prefix))

    def _object(self, raw: JSONObject, at: _At, schema: JSONObject) -> None:
        written = raw.get("properties")
        if written is None:
            written = {}
        if not isinstance(written, dict):
            at.refuse(f"`properties` is an object, not {_kind(written)}")
        listed = raw.get("required")
        names = listed if isinstance(listed, list | tuple) else ()
        self.budget.spend(len(written) + len(names))
        required = list(dict.fromkeys(name for name in names if isinstance(name, str)))
        for name in (*written, *required):
            _check_name(name, at)
        nodes = {
            name: self.node(written.get(name, True), at.into("properties", name, name=name))
            for name in dict.fromkeys((*written, *required))
        }
        for name in required:
            if nodes[name] == (None, False):
                at.refuse(f"property {name!r} is required, and no value is allowed for it")
        schema["properties"] = {
            name: node.schema for name, node in nodes.items() if node.schema is not None
        }
        if kept := [name for name in required if not nodes[name].nullable]:
            schema["required"] = kept
        rest = self._rest(raw, at)
        if rest is not None:
            schema["additionalProperties"] = rest

    def _rest(self, raw: JSONObject, at: _At) -> bool | JSONObject | None:
        """`additionalProperties`; patterned properties, which it does not name, are allowed."""
        rest = raw.get("additionalProperties")
        if rest is not True and raw.get("patternProperties"):
            return None
        if rest is None or isinstance(rest, bool):
            return rest
        node = self.node(rest, at.into("additionalProperties"))
        return node.nullable if node.schema is None else node.schema or True


def _written_types(raw: JSONObject, at: _At) -> tuple[list[str], bool]:
    written = raw.get("type")
    nullable = raw.get("nullable") is True
    if isinstance(written, str):
        if written not in TYPES and written != "null":
            known = ", ".join(TYPES)
            at.refuse(f"type {clean_text(written, 40)!r} is not a JSON type (one of {known})")
        written = [written]
    if not isinstance(written, list | tuple):
        return [], nullable
    listed = [type_ for type_ in written if isinstance(type_, str)]
    types = [type_ for type_ in dict.fromkeys(listed) if type_ in TYPES]
    if "number" in types and "integer" in types:
        types.remove("integer")
    return types, nullable or "null" in listed


def _check_name(name: object, at: _At) -> None:
    if not isinstance(name, str):
        at.refuse(f"a property name is a string, not {_kind(name)}")
    if not is_clean_name(name):
        at.refuse(f"property name {clean_text(name, 60)!r} is too long or has invisible characters")


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _both(first: _Node, second: _Node) -> _Node:
    """A node for what fits both; it may be wider."""
    pair = (first, second)
    is_any = any(node.schema is not None and is_open(node.schema) for node in pair)
    nullable = (any if is_any else all)(node.nullable for node in pair)
    if first.schema is None or second.schema is None:
        return _Node(None, nullable)
    return _Node(merge(first.schema, second.schema), nullable)


def _with_alternatives(base: _Node, branches: Sequence[_Node]) -> _Node:
    """A schema merged with its `anyOf` or `oneOf`; where they differ, its own keywords win."""
    if base.schema is None:
        return base
    live = [branch.schema for branch in branches if branch.schema is not None]
    if is_open(base.schema):
        nullable = base.nullable or any(branch.nullable for branch in branches)
        return _Node({**any_of(live), **base.schema} if live else None, nullable)
    objects = [{"type": "object", "properties": {}} if is_open(sub) else sub for sub in live]
    if not objects or any(sub.get("type") != "object" for sub in (base.schema, *objects)):
        return base
    return base._replace(schema=merge(base.schema, common_object(objects)))


def _branches(union: JSONObject) -> Iterator[JSONObject]:
    """The typed branches of a union, unions in it opened."""
    for branch in union["anyOf"]:
        yield from _branches(branch) if "anyOf" in branch else (branch,)


def takes_null(schema: object, root: object) -> bool:
    """Whether a part of the schema `root` allows null; False for an unusable part."""
    try:
        return _Normaliser(root).node(schema, _At()).nullable
    except (_Unusable, RecursionError):
        return False

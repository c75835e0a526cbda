"""How any JSON Schema becomes one that every model API can read.

The normal form: every node is `{}` (any value), has one `type`, or is an `anyOf` of such nodes;
objects have `properties`, arrays have `items`; no references, no `allOf`, no null, no booleans
in place of a schema. Null that was allowed becomes "may be left out" (see `gate.nulls`).
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from toolrest.errors import ToolDefinitionError
from toolrest.gate.schema.keywords import (
    ANNOTATIONS,
    TYPES,
    clean_text,
    constraints,
    fits,
    hinted_type,
    is_clean_name,
    plain_values,
    spoken,
)
from toolrest.gate.schema.merge import (
    Budget,
    Node,
    TooLargeError,
    any_of,
    both,
    common_object,
    conjoin,
    copy,
    is_open,
    measure,
    ordered,
    words_of,
)
from toolrest.gate.schema.optional_nulls import BadReferenceError, Pointer, cut, follow, pointer
from toolrest.items import JSONObject
from toolrest.records import dataclass

MAX_NODES: Final = 10_000
MAX_DEPTH: Final = 32
MAX_TEXT: Final = 256 * 1024

# Reading may take more steps than the result has nodes, so that a result can be read again.
_STEPS: Final = 4 * MAX_NODES
_STEP_DEPTH: Final = 2 * MAX_DEPTH
_TOO_LARGE: Final = f"it unfolds to more than {MAX_NODES} nodes; make it smaller"
_TOO_DEEP: Final = f"it is nested more than {MAX_DEPTH} levels deep; make it flatter"


def normalise(schema: object, *, tool: str = "tool") -> JSONObject:
    """The normal form of a tool's parameters; `ToolDefinitionError` when there is none.

    Pure and deterministic: the input is never changed or shared, equal input gives equal bytes,
    and a normal form is its own normal form.
    """
    try:
        normal = _Normaliser(schema).top()
        _check_size(normal)
    except _Unusable as problem:
        raise ToolDefinitionError(f"{tool}: its schema is unusable: {problem}") from None
    except TooLargeError:
        raise ToolDefinitionError(f"{tool}: its schema is unusable: {_TOO_LARGE}") from None
    except RecursionError:
        raise ToolDefinitionError(f"{tool}: its schema is unusable: {_TOO_DEEP}") from None
    return normal


def _check_size(normal: JSONObject) -> None:
    size = measure(normal, Budget(MAX_NODES))
    if size.depth > _STEP_DEPTH:
        raise _Unusable(_TOO_DEEP)
    if size.text > MAX_TEXT:
        raise _Unusable(f"it is longer than {MAX_TEXT // 1024} KiB; make it smaller")


class _Unusable(Exception):
    """Why the schema cannot be used, with the place in it."""


@dataclass(frozen=True, slots=True)
class _At:
    """Where in the schema we are, and which references led here."""

    path: str = "#"
    depth: int = 0
    active: tuple[Pointer, ...] = ((),)
    name: str = ""

    def into(self, step: str, name: str = "") -> _At:
        return _At(f"{self.path}/{step}", self.depth + 1, self.active, name)

    def through(self, steps: Pointer) -> _At:
        name = steps[-1] if steps else self.name
        return _At(self.path, self.depth + 1, (*self.active, steps), name)

    def refuse(self, why: str) -> NoReturn:
        raise _Unusable(f"at {clean_text(self.path, 200)}: {why}")


class _Normaliser:
    def __init__(self, root: object) -> None:
        self.root = root
        self.budget = Budget(_STEPS)

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
        # What the whole is for, the tool's own description says; APIs refuse a top-level enum.
        for keyword in ("enum", *ANNOTATIONS):
            schema.pop(keyword, None)
        return ordered(schema)

    def node(self, raw: object, at: _At) -> Node:
        self.budget.spend()
        if at.depth > _STEP_DEPTH:
            raise _Unusable(_TOO_DEEP)
        if isinstance(raw, bool):
            return Node({} if raw else None)
        if not isinstance(raw, dict):
            at.refuse(f"a schema is an object or a boolean, not {_kind(raw)}")
        parts = [self._reference(raw["$ref"], at)] if "$ref" in raw else []
        parts += [self.node(sub, place) for sub, place in self._listed(raw, "allOf", at)]
        parts.append(self._own(raw, at))
        whole = parts[0]
        for part in parts[1:]:
            whole = both(whole, part, self.budget)
        for keyword in ("anyOf", "oneOf"):
            if branches := [self.node(sub, to) for sub, to in self._listed(raw, keyword, at)]:
                whole = self._alternatives(whole, branches)
        return whole

    def _listed(self, raw: JSONObject, keyword: str, at: _At) -> list[tuple[object, _At]]:
        listed = raw.get(keyword)
        if not isinstance(listed, list | tuple):
            return []
        self.budget.spend(len(listed))
        return [(sub, at.into(f"{keyword}/{place}")) for place, sub in enumerate(listed)]

    def _reference(self, ref: object, at: _At) -> Node:
        try:
            steps = pointer(ref)
            target = follow(self.root, steps)
        except BadReferenceError as problem:
            at.refuse(str(problem))
        if steps in at.active:
            return Node(cut(target, steps))
        return self.node(target, at.through(steps))

    def _alternatives(self, base: Node, branches: list[Node]) -> Node:
        live = [branch.schema for branch in branches if branch.schema is not None]
        nullable = base.nullable
        if base.schema is None:
            return base
        if is_open(base.schema):
            nullable = nullable or any(branch.nullable for branch in branches)
            if not live:
                return Node(None, nullable)
            return Node({**any_of(live), **base.schema}, nullable)
        if not live:
            return base
        if base.schema.get("type") == "object" and all(map(_may_be_object, live)):
            blank: JSONObject = {"type": "object", "properties": {}}
            objects = [blank if is_open(schema) else schema for schema in live]
            merged = conjoin(common_object(objects), base.schema, self.budget)
            return Node(merged, nullable)
        words = words_of(base.schema)
        bare = {key: value for key, value in base.schema.items() if key not in words}
        spread = [conjoin(sub, copy(bare, self.budget), self.budget) for sub in live]
        left = [schema for schema in spread if schema is not None]
        return Node({**any_of(left), **words} if left else base.schema, nullable)

    def _own(self, raw: JSONObject, at: _At) -> Node:
        said = spoken(raw, at.name)
        types, nullable = _written_types(raw, at)
        listed = self._values(raw)
        values = [value for value in listed if value is not None]
        if len(values) < len(listed):
            nullable = nullable or not types
            if not values and nullable:
                return Node(None, True)
        if not types and raw.get("type") in ("null", ["null"]):
            return Node(None, True)
        types = types or hinted_type(raw, values)
        if not types:
            return Node(said, nullable)
        chosen = [type_ for type_ in types if not values or any(fits(v, type_) for v in values)]
        typed = [self._typed(type_, raw, at, values) for type_ in chosen or types]
        return Node({**(typed[0] if len(typed) == 1 else any_of(typed)), **said}, nullable)

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
        rest = raw.get("items", True)
        keyword = "prefixItems"
        if isinstance(rest, list | tuple):
            keyword, rest = "items", raw.get("additionalItems", True)
        prefix = [self.node(sub, to).schema or {} for sub, to in self._listed(raw, keyword, at)]
        items = self.node(rest, at.into("items")).schema
        if not prefix:
            schema["items"] = items or {}
            return
        if items is None:
            schema["maxItems"] = min(schema.get("maxItems", len(prefix)), len(prefix))
        schema |= {"prefixItems": prefix, "items": items or {}}

    def _object(self, raw: JSONObject, at: _At, schema: JSONObject) -> None:
        written = self._properties(raw, at)
        required = self._required(raw, at)
        nodes = {
            name: self.node(written.get(name, True), at.into(f"properties/{name}", name))
            for name in sorted({*written, *required})
        }
        for name in required:
            if nodes[name].schema is None and not nodes[name].nullable:
                at.refuse(f"property {name!r} is required, and no value is allowed for it")
        schema["properties"] = {
            name: node.schema for name, node in nodes.items() if node.schema is not None
        }
        if kept := [name for name in required if not nodes[name].nullable]:
            schema["required"] = kept
        rest = self._rest(raw, at)
        if rest is not None:
            schema["additionalProperties"] = rest

    def _properties(self, raw: JSONObject, at: _At) -> JSONObject:
        written = raw.get("properties")
        if written is None:
            return {}
        if not isinstance(written, dict):
            at.refuse(f"`properties` is an object, not {_kind(written)}")
        self.budget.spend(len(written))
        for name in written:
            _check_name(name, at)
        return written

    def _required(self, raw: JSONObject, at: _At) -> list[str]:
        written = raw.get("required")
        if not isinstance(written, list | tuple):
            return []
        self.budget.spend(len(written))
        names = list(dict.fromkeys(name for name in written if isinstance(name, str)))
        for name in names:
            _check_name(name, at)
        return names

    def _rest(self, raw: JSONObject, at: _At) -> bool | JSONObject | None:
        """`additionalProperties`, with patterned properties counted among them."""
        rest = raw.get("additionalProperties")
        patterns = raw.get("patternProperties")
        if isinstance(patterns, dict) and patterns:
            if rest is not False:
                return None
            self.budget.spend(len(patterns))
            nodes = [self.node(sub, at.into("patternProperties")) for sub in patterns.values()]
            return any_of([node.schema or {} for node in nodes]) or True
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


def _branches(union: JSONObject) -> list[JSONObject]:
    """The typed branches of a union, unions in it opened."""
    found: list[JSONObject] = []
    for branch in union["anyOf"]:
        found.extend(_branches(branch) if "anyOf" in branch else (branch,))
    return found


def _may_be_object(schema: JSONObject) -> bool:
    return is_open(schema) or schema.get("type") == "object"


def _kind(value: object) -> str:
    return "null" if value is None else type(value).__name__

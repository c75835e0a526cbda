"""The JSON Schema of a tool's parameters, in the form that each wire takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha1
from itertools import count
from typing import Final, Literal, TypeAlias

from toolrest.gate.schema.keywords import clean_text
from toolrest.gate.schema.merge import any_place, map_parts
from toolrest.gate.schema.normalise import normalise
from toolrest.items import JSONObject, Wire

__all__ = ["Subset", "argument_names", "clean_text", "for_wire", "normalise"]

Subset: TypeAlias = Literal["codex"]
"""A narrower form than the wire needs: `codex` has five types and no other keywords."""

# Servers that speak Chat Completions check schemas with many different readers; these keywords
# are the ones some of them refuse.
_NOT_ON_CHAT: Final = ("prefixItems", "examples", "deprecated")
# The Messages API refuses the whole request when one top-level key does not match.
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def for_wire(
    schema: object, wire: Wire, *, subset: Subset | None = None, tool: str = "tool"
) -> JSONObject:
    """The parameters as `wire` takes them; `ToolDefinitionError` when they are unusable.

    `enum`, `default`, `description`, `format`, `integer` and limits survive on every wire;
    `subset="codex"` is for servers that know only plain types: integer becomes number, the
    values of an enum move into the description, everything else is dropped.
    """
    normal = normalise(schema, tool=tool)
    if subset == "codex":
        normal = _plain(normal)
    elif wire == "chat":
        normal = _for_chat(normal)
    if wire == "anthropic":
        normal = _renamed(normal, {old: new for new, old in argument_names(normal).items()})
    return normal


def argument_names(schema: JSONObject) -> dict[str, str]:
    """The top-level arguments of a normal schema that the Anthropic wire renames: new to old.

    Empty for most tools. A new name is never that of another property, so the arguments of a
    call may be translated back whatever wire it came on.
    """
    names = schema.get("properties", {})
    odd = sorted(name for name in names if not _KEY.fullmatch(name))
    taken = set(names)
    found: dict[str, str] = {}
    for name in odd:
        base = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:55] or "_"
        plain = next(new for new in _spellings(base, name) if new not in taken)
        taken.add(plain)
        found[plain] = name
    return found


def _spellings(base: str, name: str) -> Iterator[str]:
    if len(name) <= 64:
        yield base
    for salt in count():
        digest = sha1(f"{salt}\0{name}".encode(errors="replace"), usedforsecurity=False).hexdigest()
        yield f"{base}_{digest[:8]}"


def _renamed(schema: JSONObject, names: dict[str, str]) -> JSONObject:
    if not names:
        return schema
    properties = {names.get(name, name): sub for name, sub in schema["properties"].items()}
    renamed = {**schema, "properties": properties}
    if "required" in schema:
        renamed["required"] = [names.get(name, name) for name in schema["required"]]
    return renamed


def _for_chat(schema: JSONObject) -> JSONObject:
    chat = map_parts(schema, _for_chat)
    if "prefixItems" in chat:
        chat["items"] = any_place(chat)
    return {key: value for key, value in chat.items() if key not in _NOT_ON_CHAT}


def _plain(schema: JSONObject) -> JSONObject:
    """The subset with boolean, string, number, array and object; a union is its first branch."""
    if "anyOf" in schema:
        first = _plain(schema["anyOf"][0])
        return {**first, **_plain_description(schema, first["type"])}
    written: str = schema.get("type", "string")
    type_ = "number" if written == "integer" else written
    plain: JSONObject = {"type": type_, **_plain_description(schema, type_)}
    if type_ == "array":
        plain["items"] = _plain(any_place(schema))
    if type_ == "object":
        plain["properties"] = {
            name: _plain(property_) for name, property_ in schema["properties"].items()
        }
        if "required" in schema:
            plain["required"] = schema["required"]
        rest = schema.get("additionalProperties")
        if rest is not None:
            plain["additionalProperties"] = rest if isinstance(rest, bool) else _plain(rest)
    return plain


def _plain_description(schema: JSONObject, type_: str) -> JSONObject:
    """The description, with the values that the subset has no keyword for."""
    if type_ == "object":
        return {}
    text = schema.get("description", "")
    values = [str(value) for value in schema.get("enum", ())]
    if values and not all(value in text for value in values):
        text = f"{text} One of: {', '.join(values)}.".strip()
    return {"description": text} if text else {}

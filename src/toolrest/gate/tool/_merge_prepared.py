"""Schemas of the built-in tools, made beforehand: making them anew at each start takes longer
than everything else about the tools.

`prepared.json` holds them by the arguments they belong to, with a fingerprint of the fields.
Arguments that have changed since have another one, and their schema is made as if there were no
file;
`WRITE_SCHEMAS=1 pytest tests/tools/test_prepared.py` writes the file again.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from typing import Any

from toolrest.gate.tool.args_class import ArgsClass, Parameters, inner_classes, is_noted, model_of
from toolrest.items import JSONObject

FILE = os.path.join(os.path.dirname(__file__), "prepared.json")


def schema_of(args: ArgsClass, tool: str = "tool") -> JSONObject:
    """The JSON Schema of a tool's arguments, in the form that wires take."""
    ready = prepared(args) if is_noted(args) else None
    return ready or made_schema(args, tool)


def made_schema(args: ArgsClass, tool: str = "tool") -> JSONObject:
    """The same, made from the arguments as they are now."""
    from toolrest.gate.schema.for_wire import normalise

    schema: JSONObject = normalise(model_of(args).model_json_schema(by_alias=True), tool=tool)
    schema["additionalProperties"] = False
    return schema


def prepared(args: type[Parameters]) -> JSONObject | None:
    """The schema that was made beforehand, or None when there is none for them as they are."""
    row = _rows().get(name_of(args))
    if row is None or row.get("of") != fingerprint(args):
        return None
    schema: JSONObject = row["schema"]
    return schema


def name_of(args: type[Parameters]) -> str:
    """What arguments are filed under."""
    return f"{args.__module__}.{args.__qualname__}"


def fingerprint(args: type[Parameters]) -> str:
    """Changes with any field as it is written down, and with those of classes inside.

    What a name in an annotation stands for is not looked up; that is for the test to see.
    """
    seen: dict[str, str] = {}
    _describe(args, seen)
    text = "\n".join(f"{name}: {fields}" for name, fields in sorted(seen.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _describe(args: type[Parameters], seen: dict[str, str]) -> None:
    if name_of(args) not in seen:
        seen[name_of(args)] = f"{args.__doc__} {args.__extra__} {args.__noted__}"
        for inner in inner_classes(args).values():
            _describe(inner, seen)


@cache
def _rows() -> dict[str, Any]:
    try:
        with open(FILE, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

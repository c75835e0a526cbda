"""Schemas of the built-in tools, made beforehand: making them anew at each start takes longer
than everything else about the tools.

`prepared.json` holds them by the model they belong to, with a fingerprint of its fields. A model
that has changed since has another fingerprint, and its schema is made as if there were no file;
`WRITE_SCHEMAS=1 pytest tests/tools/test_prepared.py` writes the file again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from toolrest.items import JSONObject

if TYPE_CHECKING:
    from pydantic import BaseModel

FILE = os.path.join(os.path.dirname(__file__), "prepared.json")
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
_OURS = "toolrest.tools."


def prepared(model: type[BaseModel]) -> JSONObject | None:
    """The schema of a built-in tool's arguments, or None when it has to be made."""
    if not model.__module__.startswith(_OURS):
        return None
    row = _rows().get(name_of(model))
    if row is None or row.get("of") != fingerprint(model):
        return None
    schema: JSONObject = row["schema"]
    return schema


def name_of(model: type[BaseModel]) -> str:
    """What a model is filed under."""
    return f"{model.__module__}.{model.__qualname__}"


def fingerprint(model: type[BaseModel]) -> str:
    """Changes with any field, and with the fields of any model inside."""
    seen: dict[type[BaseModel], str] = {}
    _describe(model, seen)
    text = "\n".join(sorted(f"{name_of(inner)}: {fields}" for inner, fields in seen.items()))
    # Where a function lies in memory is no property of the model.
    return hashlib.sha256(_ADDRESS.sub("", text).encode()).hexdigest()[:16]


def _describe(model: type[BaseModel], seen: dict[type[BaseModel], str]) -> None:
    if model in seen:
        return
    fields = model.model_fields
    seen[model] = f"{model.__doc__!r} {sorted(map(str, model.model_config.items()))} {fields!r}"
    for field in fields.values():
        for inner in _models_in(field.annotation):
            _describe(inner, seen)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if hasattr(annotation, "model_fields") and isinstance(annotation, type):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]


@cache
def _rows() -> dict[str, Any]:
    try:
        with open(FILE, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}

"""The form of an answer (`output_schema`) as each API takes it: a format, or words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolrest.items import JSONObject
from toolrest.wire.items.json_text import dumps

if TYPE_CHECKING:
    from toolrest.wire.model import ModelRequest

_NAME = "toolrest_output_schema"


def response_format(request: ModelRequest) -> JSONObject | None:
    """The field of Chat Completions, which llama.cpp takes on Responses, too."""
    if request.output_schema is None:
        return None
    return {"type": "json_schema", "json_schema": json_schema_format(request.output_schema)}


def json_schema_format(schema: JSONObject) -> JSONObject:
    """The format for servers that hold a model to a schema; strictly where the schema allows."""
    return {"name": _NAME, "strict": is_closed(schema), "schema": schema}


def is_closed(schema: Any) -> bool:
    """Whether every object of a schema names all its keys, as strict servers demand."""
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        return False
    return all(map(is_closed, schema.values()))


def schema_in_words(schema: JSONObject) -> str:
    """The instruction for servers that take no schema."""
    return (
        "Your final message must be one JSON document that matches this JSON Schema, with nothing "
        f"around it:\n{dumps(schema)}"
    )

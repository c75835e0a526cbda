"""Validate arguments with pydantic: typed values, or a message for everything that is wrong.

Loaded at the first call: pydantic takes longer to import than all the rest of a session's start.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from pydantic_core import ErrorDetails, ValidationError

from toolrest.errors import RespondToModel
from toolrest.gate.tool.arguments import (
    Decoded,
    as_json_text,
    describe,
    dotted,
    invalid,
    parse_object,
)

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_INTEGER_ERRORS = ("int_type", "int_from_float")


def decode_model(
    model: type[BaseModel], raw: str | Mapping[str, Any], *, strict_fields: bool = False
) -> Decoded:
    """Validate without coercion; a float without a fraction counts as an integer."""
    text = as_json_text(raw)
    try:
        value = model.__pydantic_validator__.validate_json(text, strict=True)
    except ValidationError as error:
        value = _second_chance(model, text, error)
    unknown = _unknown_fields(model, value, text)
    if unknown and strict_fields:
        raise invalid([f"unknown field `{name}`" for name in unknown], unknown)
    return Decoded(value, unknown)


def _unknown_fields(model: type[BaseModel], value: BaseModel, text: str) -> tuple[str, ...]:
    nested = _nested(model)
    if nested and any(getattr(value, name) is not None for name in nested):
        return tuple(_unknown_inside(value, parse_object(text), ()))
    extra = value.__pydantic_extra__
    if extra is not None:
        return tuple(extra) if extra else ()
    if model.model_config.get("extra") == "forbid":
        return ()
    known = _known_names(model)
    return tuple(key for key in parse_object(text) if key not in known)


@lru_cache(maxsize=512)
def _nested(model: type[BaseModel]) -> tuple[str, ...]:
    """Fields that are not of plain types: only in those can there be other models."""
    plain = (str, int, float, bool, type(None))
    return tuple(
        name
        for name, field in model.model_fields.items()
        # A literal's parts are values of plain types.
        if not all(
            part in plain or type(part) in plain
            for part in (get_args(field.annotation) or (field.annotation,))
        )
    )


@lru_cache(maxsize=512)
def _known_names(model: type[BaseModel]) -> frozenset[str]:
    fields = model.model_fields.items()
    return frozenset(spelling for name, field in fields for spelling in _spellings(name, field))


def _spellings(name: str, field: FieldInfo) -> tuple[str, ...]:
    """The keys that a field may come under, its own name last."""
    alias = field.validation_alias
    choices = getattr(alias, "choices", (alias,))
    return (*(choice for choice in choices if isinstance(choice, str)), name)


def _unknown_inside(value: Any, raw: Any, path: tuple[int | str, ...]) -> Iterator[str]:
    """Names of the fields, however deep, that no model took."""
    model: Any = type(value)
    fields = getattr(model, "model_fields", None)
    if fields is not None and isinstance(raw, dict):
        known = _known_names(model)
        yield from (dotted((*path, key)) for key in raw if key not in known)
        for name, field in fields.items():
            key = next((key for key in _spellings(name, field) if key in raw), None)
            if key is not None:
                yield from _unknown_inside(getattr(value, name), raw[key], (*path, key))
    elif isinstance(value, list | tuple) and isinstance(raw, list):
        for number, (item, came) in enumerate(zip(value, raw, strict=False)):
            yield from _unknown_inside(item, came, (*path, number))
    elif isinstance(value, dict) and isinstance(raw, dict):
        for key, came in raw.items():
            yield from _unknown_inside(value.get(key), came, (*path, key))


def _second_chance(model: type[BaseModel], text: str, error: ValidationError) -> BaseModel:
    """Try again with 2.0 as 2 where an integer was wanted; else explain."""
    errors = error.errors(include_url=False)
    if errors[0]["type"] == "json_invalid":
        parse_object(text)  # json.loads has the better message, and may even accept it
        raise invalid([f"not valid JSON: {errors[0]['msg']}"])
    value = parse_object(text)
    repaired = [_make_integer(value, e) for e in errors if e["type"] in _INTEGER_ERRORS]
    if any(e["type"] == "missing" for e in errors):
        from toolrest.gate.schema.optional_nulls import fill_nulls

        # A parameter that takes null is offered as optional, so leaving it out means null.
        filled = fill_nulls(model.model_json_schema(by_alias=True), value)
        repaired.append(filled != value)
        value = filled
    if not any(repaired):
        raise _explain(errors, value)
    try:
        validated: BaseModel = model.__pydantic_validator__.validate_json(
            json.dumps(value), strict=True
        )
        return validated
    except ValidationError as again:
        raise _explain(again.errors(include_url=False), value) from None


def _make_integer(value: Any, error: ErrorDetails) -> bool:
    number = error["input"]
    if not (isinstance(number, float) and number.is_integer()):
        return False
    *path, last = _real_path(error["loc"], value, missing=False)
    for key in path:
        value = value[key]
    value[last] = int(number)
    return True


def _real_path(loc: tuple[int | str, ...], value: Any, *, missing: bool) -> list[int | str]:
    """The part of an error's location that exists in the input: union tags are left out."""
    path: list[int | str] = []
    for position, key in enumerate(loc):
        if _has(value, key):
            value = value[key]
        elif not (missing and position == len(loc) - 1):
            continue
        path.append(key)
    return path


def _has(value: Any, key: int | str) -> bool:
    if isinstance(value, list):
        return isinstance(key, int) and key < len(value)
    return isinstance(value, dict) and key in value


def _explain(errors: list[ErrorDetails], value: Any) -> RespondToModel:
    problems: dict[str, list[str]] = {}
    got: dict[str, str] = {}
    for error in errors:
        lead = _LEADS.get(error["type"], "")
        is_missing = error["type"] == "missing"
        field = dotted(_real_path(error["loc"], value, missing=is_missing))
        wanted = lead or _expected(error)
        wanteds = problems.setdefault(field, [])
        if wanted not in wanteds:
            wanteds.append(wanted)
        got[field] = describe(error["input"])
    messages = [
        f"{wanteds[0]} `{field}`"
        if wanteds[0] in _LEADS.values()
        else f"`{field}`: expected {' or '.join(wanteds)}, got {got[field]}"
        for field, wanteds in problems.items()
    ]
    return invalid(messages, tuple(problems))


_LEADS = {"missing": "missing field", "extra_forbidden": "unknown field"}

_EXPECTED = {
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "an array",
    "tuple_type": "an array",
    "set_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
    "none_required": "null",
    "path_type": "a path",
}


def _expected(error: ErrorDetails) -> str:
    known = _EXPECTED.get(error["type"])
    if known is not None:
        return known
    context = error.get("ctx", {})
    if error["type"] in ("literal_error", "enum"):
        return f"one of {context.get('expected', '')}"
    message = error["msg"]
    for opening in ("Input should be ", "Value should have ", "Value error, "):
        message = message.removeprefix(opening)
    return message

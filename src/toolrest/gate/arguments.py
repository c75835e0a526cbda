"""From the JSON a model wrote to typed arguments, with words for everything that is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, get_args

from pydantic_core import ErrorDetails, ValidationError

from toolrest.errors import RespondToModel
from toolrest.items import JSONObject

if TYPE_CHECKING:
    from pydantic import BaseModel, ConfigDict
    from pydantic.fields import FieldInfo

LAZY: ConfigDict = {"extra": "allow", "defer_build": True}
"""For argument models: unknown fields are kept apart; nothing is built before the first call."""

PREFIX = "failed to parse function arguments: "
_MOST_PROBLEMS = 40
_LONGEST_SHOWN = 40
_INTEGER_ERRORS = ("int_type", "int_from_float")


@dataclass(slots=True)
class Decoded:
    """Arguments for `run`, and the fields that the schema does not know."""

    args: Any
    unknown: tuple[str, ...] = ()


def schema_of(model: type[BaseModel], tool: str = "tool") -> JSONObject:
    """The JSON Schema of an argument model, in the form that wires take."""
    from toolrest.gate.prepared import prepared

    return prepared(model) or made_schema(model, tool)


def made_schema(model: type[BaseModel], tool: str = "tool") -> JSONObject:
    """The same, made from the model as it is now."""
    from toolrest.gate.schema import normalise

    schema: JSONObject = normalise(model.model_json_schema(by_alias=True), tool=tool)
    schema["additionalProperties"] = False
    return schema


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
        raise _invalid([f"unknown field `{name}`" for name in unknown], unknown)
    return Decoded(value, unknown)


def _unknown_fields(model: type[BaseModel], value: BaseModel, text: str) -> tuple[str, ...]:
    if any(getattr(value, name) is not None for name in _nested(model)):
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
    """Under which keys a field may come, its own name last."""
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


def decode_anything(raw: str | Mapping[str, Any]) -> Decoded:
    """For tools without parameters: any JSON object is fine, its fields are only named."""
    value = parse_object(raw)
    return Decoded(None, tuple(value))


def parse_object(raw: str | Mapping[str, Any]) -> JSONObject:
    """A JSON object from text; blank text counts as an empty one."""
    if not isinstance(raw, str):
        return dict(raw)
    if not raw or raw.isspace():
        return {}
    try:
        value = json.loads(raw)
    except json.JSONDecodeError as error:
        raise _invalid(
            [f"not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"]
        ) from None
    except (RecursionError, ValueError):
        raise _invalid(["not valid JSON: nested too deeply or a number too long"]) from None
    if not isinstance(value, dict):
        raise _invalid([f"expected a JSON object, got {describe(value)}"])
    return value


def as_json_text(raw: str | Mapping[str, Any]) -> str:
    """The text to validate: as it came, `{}` for blank, or the mapping written as JSON."""
    if isinstance(raw, str):
        return raw if raw and not raw.isspace() else "{}"
    try:
        return json.dumps(raw, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid([f"arguments cannot be written as JSON: {error}"]) from None


def _plain(value: Any) -> Any:
    import os

    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def invalid(problems: Iterable[str], fields: tuple[str, ...] = ()) -> RespondToModel:
    """The answer for wrong arguments: the documented phrase, then every problem."""
    return _invalid(list(problems), fields)


def _invalid(problems: list[str], fields: tuple[str, ...] = ()) -> RespondToModel:
    more = len(problems) - _MOST_PROBLEMS
    if more > 0:
        problems = [*problems[:_MOST_PROBLEMS], f"and {more} more"]
    return RespondToModel(PREFIX + "; ".join(problems), kind="input_invalid", fields=fields)


def _second_chance(model: type[BaseModel], text: str, error: ValidationError) -> BaseModel:
    """Try again with 2.0 as 2 where an integer was wanted; else explain."""
    errors = error.errors(include_url=False)
    if errors[0]["type"] == "json_invalid":
        parse_object(text)  # json.loads has the better words, and may even accept it
        raise _invalid([f"not valid JSON: {errors[0]['msg']}"])
    value = parse_object(text)
    repaired = [_make_integer(value, e) for e in errors if e["type"] in _INTEGER_ERRORS]
    if any(e["type"] == "missing" for e in errors):
        from toolrest.gate.nulls import fill_nulls

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
    words = [
        f"{wanteds[0]} `{field}`"
        if wanteds[0] in _LEADS.values()
        else f"`{field}`: expected {' or '.join(wanteds)}, got {got[field]}"
        for field, wanteds in problems.items()
    ]
    return _invalid(words, tuple(problems))


def dotted(path: Iterable[int | str]) -> str:
    """A place in the arguments as `field.other[2]`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text or "arguments"


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


def describe(value: Any) -> str:
    """A value in the words of JSON; a long string only by its length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"number {value!r:.40}"
    if isinstance(value, str):
        # Half of a long secret would no longer be known as one, so it is whole or not at all.
        if len(value) > _LONGEST_SHOWN:
            return f"a string of {len(value)} characters"
        return f"string {json.dumps(value, ensure_ascii=False)}"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    return "an object"

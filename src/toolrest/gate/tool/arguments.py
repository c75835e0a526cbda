"""Arguments as JSON: reading them, and the error messages for what is wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from toolrest.errors import RespondToModel
from toolrest.items import JSONObject

PREFIX = "failed to parse function arguments: "
_MOST_PROBLEMS = 40
_LONGEST_SHOWN = 40


class Decoded:
    """Arguments for `run`, and the fields that the schema does not know."""

    __slots__ = ("args", "unknown")

    def __init__(self, args: Any, unknown: tuple[str, ...] = ()) -> None:
        self.args = args
        self.unknown = unknown


def decode_anything(raw: str | Mapping[str, Any]) -> Decoded:
    """Arguments of a tool without parameters: any JSON object; its fields count as unknown."""
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
        raise invalid(
            [f"not valid JSON: {error.msg} at line {error.lineno} column {error.colno}"]
        ) from None
    except (RecursionError, ValueError):
        raise invalid(["not valid JSON: nested too deeply or a number too long"]) from None
    if not isinstance(value, dict):
        raise invalid([f"expected a JSON object, got {describe(value)}"])
    return value


def as_json_text(raw: str | Mapping[str, Any]) -> str:
    """The text to validate: as it came, `{}` for blank, or the mapping written as JSON."""
    if isinstance(raw, str):
        return raw if raw and not raw.isspace() else "{}"
    try:
        return json.dumps(raw, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid([f"cannot write the arguments as JSON: {error}"]) from None


def _plain(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def invalid(problems: Iterable[str], fields: tuple[str, ...] = ()) -> RespondToModel:
    """The error for wrong arguments: the documented phrase, then every problem."""
    problems = list(problems)
    more = len(problems) - _MOST_PROBLEMS
    if more > 0:
        problems = [*problems[:_MOST_PROBLEMS], f"and {more} more"]
    return RespondToModel(PREFIX + "; ".join(problems), kind="input_invalid", fields=fields)


def dotted(path: Iterable[int | str]) -> str:
    """A path in the arguments as `field.other[2]`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text or "arguments"


def describe(value: Any) -> str:
    """A value in JSON's terms; a long string only by its length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"number {value!r:.40}"
    if isinstance(value, str):
        # Half of a secret could not be redacted any more, so a long string is not shown.
        if len(value) > _LONGEST_SHOWN:
            return f"a string of {len(value)} characters"
        return f"string {json.dumps(value, ensure_ascii=False)}"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    return "an object"

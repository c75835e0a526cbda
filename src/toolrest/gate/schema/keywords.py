"""Which keywords of a JSON Schema survive, and which values they may hold.

Schemas come from strangers (MCP servers, users' files), and every string in them is read by a
model: so text is stripped of what a person reviewing it would not see, and a value that is not
plain JSON is left out instead of passed on.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolrest.items import JSONObject

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean")
MAX_TEXT: Final = 4096
MAX_VALUE: Final = 10_000
MAX_NAME: Final = 256
_MAX_PATTERN: Final = 1000
_MAX_EXAMPLES: Final = 10
_MAX_VALUE_DEPTH: Final = 16

# Controls, bidi and zero-width characters, variation selectors, fillers, tags, lone surrogates.
_UNSEEN: Final = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN: Final = re.compile(f"[{_UNSEEN}\r]")
_HIDDEN_IN_VALUE: Final = re.compile(f"[{_UNSEEN}]")


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """The text as a reader sees it: nothing invisible, trimmed, at most `limit` characters."""
    seen = _HIDDEN.sub("", text[: 4 * limit]).strip()
    return seen if len(seen) <= limit else seen[: limit - 1].rstrip() + "…"


def is_clean_name(name: str) -> bool:
    """True for a property name that is not hiding anything and is not absurdly long."""
    return len(name) <= MAX_NAME and not _HIDDEN.search(name)


class NotPlainError(ValueError):
    """The value is not JSON, or not one that may be shown."""


def plain_value(value: object, depth: int = 0) -> Any:
    """A deep copy of a JSON value; `NotPlainError` for anything else, or anything hidden."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if len(value) <= MAX_VALUE and not _HIDDEN_IN_VALUE.search(value):
            return value
    elif isinstance(value, int | float):
        if is_number(value):
            return value
    elif depth < _MAX_VALUE_DEPTH and isinstance(value, list | tuple):
        return [plain_value(item, depth + 1) for item in value]
    elif depth < _MAX_VALUE_DEPTH and isinstance(value, dict):
        return {_plain_key(key): plain_value(item, depth + 1) for key, item in value.items()}
    raise NotPlainError


def _plain_key(key: object) -> str:
    if isinstance(key, str) and is_clean_name(key):
        return key
    raise NotPlainError


def plain_values(values: object) -> list[Any]:
    """The plain ones of a list, without repeats (1, 1.0 and true are three values)."""
    found: dict[str, Any] = {}
    for value in values if isinstance(values, list | tuple) else ():
        try:
            copied = plain_value(value)
        except NotPlainError:
            continue
        found.setdefault(value_key(copied), copied)
    return list(found.values())


def value_key(value: object) -> str:
    """A text that is equal for equal JSON values only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def json_type(value: object) -> str:
    """The JSON Schema type of a plain value; `null` for None."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def fits(value: object, type_: str) -> bool:
    """True when a plain value is of the type."""
    found = json_type(value)
    if type_ == "number":
        return found in ("integer", "number")
    if type_ == "integer":
        return found == "integer" or (isinstance(value, float) and value.is_integer())
    return found == type_


def is_number(value: object) -> bool:
    """A finite number that every JSON reader can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value.bit_length() <= 64 if isinstance(value, int) else math.isfinite(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and is_number(value) and value >= 0


def _is_step(value: object) -> bool:
    return isinstance(value, int | float) and is_number(value) and value > 0


def _is_word(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 64 and not _HIDDEN.search(value)


def _is_pattern(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MAX_PATTERN and not _HIDDEN.search(value)


def _is_true(value: object) -> bool:
    return value is True


Check = Callable[[object], bool]

_NUMERIC: Final[dict[str, Check]] = {
    "format": _is_word,
    "minimum": is_number,
    "maximum": is_number,
    "exclusiveMinimum": is_number,
    "exclusiveMaximum": is_number,
    "multipleOf": _is_step,
}

# What survives beside `type`, `enum`, the annotations and the sub-schemas, by type.
CONSTRAINTS: Final[dict[str, dict[str, Check]]] = {
    "object": {"minProperties": _is_count, "maxProperties": _is_count},
    "array": {"minItems": _is_count, "maxItems": _is_count, "uniqueItems": _is_true},
    "string": {
        "format": _is_word,
        "pattern": _is_pattern,
        "minLength": _is_count,
        "maxLength": _is_count,
        "contentEncoding": _is_word,
        "contentMediaType": _is_word,
    },
    "number": _NUMERIC,
    "integer": _NUMERIC,
    "boolean": {},
}

TIGHTER_IS_MORE: Final = frozenset(
    {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"}
)
TIGHTER_IS_LESS: Final = frozenset(
    {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"}
)

ANNOTATIONS: Final[tuple[str, ...]] = ("description", "default", "examples", "deprecated")

# The order in which keywords are written, so that equal schemas are equal bytes.
ORDER: Final = {
    keyword: place
    for place, keyword in enumerate(
        (
            "type",
            "description",
            "enum",
            *dict.fromkeys(word for words in CONSTRAINTS.values() for word in words),
            "anyOf",
            "prefixItems",
            "items",
            "properties",
            "required",
            "additionalProperties",
            "default",
            "examples",
            "deprecated",
        )
    )
}

# A type that is not written is read off these, first hit wins; enum values come before "string".
_SHAPED: Final[dict[str, frozenset[str]]] = {
    "object": frozenset({"properties", "additionalProperties", "patternProperties"})
    | {"propertyNames", "minProperties", "maxProperties"},
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
}
_SCALAR: Final[dict[str, frozenset[str]]] = {
    "string": frozenset({"format", "pattern", "minLength", "maxLength"}),
    "number": frozenset(_NUMERIC),
}


def hinted_type(raw: Mapping[str, Any], values: list[Any]) -> list[str]:
    """The types a schema without `type` speaks of; empty when it says nothing."""
    if isinstance(raw.get("required"), list | tuple):
        return ["object"]
    for type_, keywords in _SHAPED.items():
        if not keywords.isdisjoint(raw):
            return [type_]
    if values:
        found = list(dict.fromkeys(json_type(value) for value in values))
        return [type_ for type_ in found if type_ != "integer" or "number" not in found]
    for type_, keywords in _SCALAR.items():
        if not keywords.isdisjoint(raw):
            return [type_]
    return []


def constraints(type_: str, raw: Mapping[str, Any]) -> JSONObject:
    """The limits of `raw` that its type knows, with draft 4's boolean bounds rewritten."""
    known = CONSTRAINTS[type_]
    kept = {key: raw[key] for key, check in known.items() if key in raw and check(raw[key])}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if raw.get(exclusive) is True and bound in kept:
            kept[exclusive] = kept.pop(bound)
    return kept


def spoken(raw: Mapping[str, Any], name: str) -> JSONObject:
    """What a schema says to its reader. A title counts when it says more than the name does."""
    kept: JSONObject = {}
    for source in ("description", "title"):
        text = raw.get(source)
        words = clean_text(text) if isinstance(text, str) else ""
        if words and (source == "description" or _letters(words) != _letters(name)):
            kept["description"] = words
            break
    if raw.get("default") is not None and (default := plain_values([raw["default"]])):
        kept["default"] = default[0]
    examples = raw.get("examples")
    if isinstance(examples, list) and (shown := plain_values(examples[:_MAX_EXAMPLES])):
        kept["examples"] = shown
    if raw.get("deprecated") is True:
        kept["deprecated"] = True
    return kept


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))

"""The keywords of a JSON Schema that are kept, and the values they may hold.

Schemas come from untrusted sources (MCP servers, users' files), and every string in them is read
by a model: so invisible characters are removed, and a value that is not plain JSON is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from operator import is_
from typing import Any, Final

from toolrest.items import JSONObject

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean")
MAX_TEXT: Final = 4096
MAX_VALUE: Final = 10_000
MAX_NAME: Final = 256
_MAX_WORD: Final = 1000
_MAX_EXAMPLES: Final = 10

# Controls, bidi and zero-width characters, variation selectors, fillers, tags, lone surrogates.
_UNSEEN: Final = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN: Final = re.compile(f"[{_UNSEEN}\r]")
_HIDDEN_IN_VALUE: Final = re.compile(f"[{_UNSEEN}]")


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """The text without invisible characters, trimmed, at most `limit` characters."""
    seen = _HIDDEN.sub("", text[: 4 * limit]).strip()
    return seen if len(seen) <= limit else seen[: limit - 1].rstrip() + "…"


def is_clean_name(name: str) -> bool:
    """True for a property name without invisible characters that is not too long."""
    return len(name) <= MAX_NAME and not _HIDDEN.search(name)


def plain_values(values: object) -> list[Any]:
    """Copies of a list's values that are JSON without invisible characters, without repeats.

    1, 1.0 and true are three values.
    """
    found: dict[str, Any] = {}
    for value in values if isinstance(values, list | tuple) else ():
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False)
            copied = json.loads(text)
        except (TypeError, ValueError, RecursionError):
            continue
        # JSON writes the other control characters as \u00.., and keys that are no strings as such.
        hides = _HIDDEN_IN_VALUE.search(text) or "\\u00" in text
        is_long = isinstance(value, str) and len(value) > MAX_VALUE
        if copied == value and not hides and not is_long:
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
    return isinstance(value, str) and 0 < len(value) <= _MAX_WORD and not _HIDDEN.search(value)


_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_NUMERIC: Final[dict[str, Callable[[object], bool]]] = {
    "format": _is_word,
    **dict.fromkeys(_BOUNDS, is_number),
    "multipleOf": _is_step,
}
# Keywords kept beside `type`, `enum`, the annotations and the sub-schemas, by type.
_CONSTRAINTS: Final[dict[str, dict[str, Callable[[object], bool]]]] = {
    "object": {},
    "array": {"minItems": _is_count, "maxItems": _is_count, "uniqueItems": partial(is_, True)},
    "string": {
        "format": _is_word,
        "pattern": _is_word,
        "minLength": _is_count,
        "maxLength": _is_count,
    },
    "number": _NUMERIC,
    "integer": _NUMERIC,
    "boolean": {},
}

ANNOTATIONS: Final[tuple[str, ...]] = ("description", "default", "examples", "deprecated")
KEYWORDS: Final = (
    *("type", "description", "enum"),
    *dict.fromkeys(word for words in _CONSTRAINTS.values() for word in words),
    *("anyOf", "prefixItems", "items", "properties", "required", "additionalProperties"),
    *ANNOTATIONS[1:],
)
"""All kept keywords, in the order in which they are written: equal schemas are equal bytes."""

# A type that is not written is read off these, first hit wins; enum values come before "string".
_SHAPED: Final = {
    "object": {"properties", "additionalProperties", "patternProperties", "propertyNames"}
    | {"minProperties", "maxProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"},
}
_SCALAR: Final = {"string": set(_CONSTRAINTS["string"]), "number": set(_NUMERIC)}


def hinted_type(raw: Mapping[str, Any], values: list[Any]) -> list[str]:
    """The types that a schema without `type` implies, if any."""
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
    known = _CONSTRAINTS[type_]
    kept = {key: raw[key] for key, check in known.items() if key in raw and check(raw[key])}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if raw.get(exclusive) is True and bound in kept:
            kept[exclusive] = kept.pop(bound)
    return kept


def annotations_of(raw: Mapping[str, Any], name: str) -> JSONObject:
    """The annotations of a schema. A title becomes the description unless it is the name."""
    kept: JSONObject = {}
    for source in ("description", "title"):
        text = raw.get(source)
        clean = clean_text(text) if isinstance(text, str) else ""
        if clean and (source == "description" or _letters(clean) != _letters(name)):
            kept["description"] = clean
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

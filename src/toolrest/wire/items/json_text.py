"""JSON text that every server can read: compact, valid UTF-8, nothing that is not JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

_MAX_DEPTH: Final = 100
_CUT: Final = "…"


def dumps(value: Any) -> str:
    """Compact JSON that is always valid UTF-8; what is not JSON is written as text."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(plain_json(value), ensure_ascii=False, separators=(",", ":"))
    return utf8(text)


def utf8(text: str) -> str:
    """The text with U+FFFD for halves of surrogate pairs; whole pairs become their character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def plain_json(value: Any) -> Any:
    """A copy that JSON can hold: other keys and values as text, cycles and deep nesting cut."""
    return _copy(value, ())


def _copy(value: Any, around: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, int):
        return value if value.bit_length() <= 1024 else hex(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if len(around) >= _MAX_DEPTH or id(value) in around:
        return _CUT
    around = (*around, id(value))
    if isinstance(value, Mapping):
        return {utf8(str(key)): _copy(item, around) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_copy(item, around) for item in value]
    return _other(value, around)


def _other(value: Any, around: tuple[int, ...]) -> Any:
    try:
        dump = getattr(value, "model_dump", None)
        if callable(dump) and not isinstance(value, type):
            return _copy(dump(mode="json"), around)
        return utf8(str(value))
    except Exception:
        return f"<{type(value).__name__}>"

"""A short name for a request: the same tool with the same arguments has the same fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_escape = json.JSONEncoder(ensure_ascii=False).encode
_flat = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_PLAIN = (str, int, bool, type(None))


def canonical(value: Any) -> str:
    """JSON without spaces, object keys in the order a person would list them.

    Punctuation, then digits, then letters without regard to case, lower before upper: the order
    that Memo Code's fingerprints are made with.
    """
    if isinstance(value, str):
        return _escape(value)
    if isinstance(value, Mapping):
        keys = sorted(value, key=_order) if len(value) > 1 else list(value)
        if all(type(value[key]) in _PLAIN for key in keys):
            # One run of the encoder for the usual case, a flat object of words and numbers.
            return _flat({key: value[key] for key in keys})
        return "{" + ",".join([f"{_escape(str(k))}:{canonical(value[k])}" for k in keys]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return _escape(value)


# Argument names come back call after call; working out their order is the costly part.
@lru_cache(maxsize=1024)
def _order(key: str) -> tuple[list[tuple[int, str]], str]:
    folded = [(_rank(char), char) for char in key.casefold()]
    return folded, key.swapcase()


def _rank(char: str) -> int:
    if char.isalpha():
        return 2
    return 1 if char.isdigit() else 0


def fingerprint(tool: str, arguments: Any) -> str:
    """The first 16 hex digits of SHA-256 over `tool:canonical arguments`."""
    text = f"{tool}:{canonical(arguments)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

"""A short name for a request: the same tool with the same arguments has the same fingerprint."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from json.encoder import encode_basestring as quote
from math import isfinite
from typing import Any


def canonical(value: Any) -> str:
    """JSON without spaces, object keys in the order a person would list them.

    Punctuation, then digits, then letters without regard to case, lower before upper: the order
    that Memo Code's fingerprints are made with. Every call comes through here, so the common
    types are matched by identity, not by the general encoder, which costs three times as much.
    """
    kind = type(value)
    if kind is str:
        return quote(value)
    if kind is dict:
        keys = sorted(value, key=_order) if len(value) > 1 else value
        return "{" + ",".join([f"{quote(key)}:{canonical(value[key])}" for key in keys]) + "}"
    if kind is list:
        return "[" + ",".join([canonical(item) for item in value]) + "]"
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is float:
        return _number(value)
    return repr(value)


def _number(value: float) -> str:
    if not isfinite(value):
        return "null"
    return str(int(value)) if value.is_integer() and abs(value) < 1e21 else repr(value)


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
    """The first 16 hex digits of SHA-256 over `tool:canonical arguments`, a JSON value."""
    text = f"{tool}:{canonical(arguments)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

"""The list of models that a server offers, and the copy of it in the home.

A list is untrusted: what is not of the expected form is left out, and a copy that cannot be read
counts as none. No key is stored, nor anything of an address that may be secret.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from toolrest.errors import ConfigError
from toolrest.private_files import make_private, regular_file
from toolrest.urls import parse_url
from toolrest.wire.prices import Price

FRESH: Final = 24 * 3600.0
"""Seconds in which a list is not asked for again where the answer has to come at once."""
_MOST_MODELS: Final = 5_000
_MOST_BYTES: Final = 4 << 20
_LONGEST_NAME: Final = 200
_LARGEST: Final = 1_000_000_000
_WINDOWS: Final = (
    "n_ctx",
    "context_length",
    "max_model_len",
    "loaded_context_length",
    "max_input_tokens",
    "context_window",
)
_EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class ListedModel(Struct, frozen=True, omit_defaults=True):
    """A model as its server lists it; what the server does not say is None or empty."""

    id: str
    context_window: int | None = None
    price: Price | None = None
    efforts: tuple[str, ...] = ()


class ModelList(Struct, frozen=True):
    """The models of a server by name, and when they were listed."""

    models: tuple[ListedModel, ...]
    listed: float

    @property
    def age(self) -> float:
        """The seconds since it was listed."""
        return max(0.0, time.time() - self.listed)

    def named(self, name: str) -> ListedModel | None:
        """The model of that name; the last of several, None if there is none."""
        return next((row for row in reversed(self.models) if row.id == name), None)


def models_in(document: Any) -> list[ListedModel] | None:
    """The models of a server's list, sorted by name; None when it is no list."""
    rows = document.get("data") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        return None
    return sorted(filter(None, map(_listed, rows[:_MOST_MODELS])), key=lambda row: row.id)


def stored_list(home: str, address: str) -> ModelList | None:
    """The copy of the list of the server at an address; None if there is none that can be used."""
    path = _path(home, address)
    try:
        status = os.stat(path)
    except OSError:
        return None
    return _read(path, status.st_mtime_ns, status.st_size)


def store_list(home: str, address: str, models: list[ListedModel]) -> None:
    """Keep the list of the server at an address in a private file; failing to is no error."""
    # Every session reads a list, few commands write one.
    from toolrest.config.write import replace_file

    path = _path(home, address)
    document = msgspec.json.encode(ModelList(tuple(models), time.time()))
    try:
        make_private(os.path.dirname(path))
        replace_file(path, document.decode())
    except (OSError, ConfigError):
        return


@lru_cache(maxsize=8)
def _read(path: str, changed: int, size: int) -> ModelList | None:
    """The list in a file; read again once the file has changed."""
    try:
        with open(path, "rb", opener=regular_file) as file:
            data = file.read(_MOST_BYTES + 1)
        found = msgspec.json.decode(data, type=ModelList) if len(data) <= _MOST_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if found is not None and all(map(_is_sound, found.models)) else None


def _path(home: str, address: str) -> str:
    try:  # neither a password nor a key in it
        address = parse_url(address).without_query.rstrip("/")
    except ValueError:
        address = ""
    name = hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return os.path.join(home, "cache", "models", f"{name}.json")


def _is_sound(row: ListedModel) -> bool:
    window = row.context_window
    return (
        row.id.isprintable()
        and 0 < len(row.id) <= _LONGEST_NAME
        and (window is None or 0 < window <= _LARGEST)
        and (row.price is None or all(map(_is_dollars, _numbers(row.price))))
        and set(row.efforts) <= set(_EFFORTS)
    )


def _listed(row: Any) -> ListedModel | None:
    name = row.get("id", row.get("name")) if isinstance(row, dict) else None
    if not isinstance(name, str) or row.get("lifecycle") == "retired":
        return None
    meta = row.get("meta")  # of llama.cpp
    stated = {**meta, **row} if isinstance(meta, dict) else row
    windows = (stated.get(key) for key in _WINDOWS)
    window = next((w for w in windows if type(w) is int and w > 0), None)
    listed = ListedModel(name, window, _price(row.get("pricing")), tuple(_efforts(row)))
    return listed if _is_sound(listed) else None


def _price(given: Any) -> Price | None:
    """The price in OpenRouter's form: text with the dollars for one token."""
    if not isinstance(given, dict):
        return None
    names = ("prompt", "completion", "input_cache_read", "input_cache_write")
    values = [_dollars(given.get(name)) for name in names]
    if values[0] is None or values[1] is None:
        return None
    return Price(values[0], values[1], values[2], values[3])


def _dollars(text: Any) -> float | None:
    try:
        value = round(float(text) * 1_000_000, 6) if isinstance(text, str) else None
    except ValueError:
        return None
    return value if value is not None and _is_dollars(value) else None


def _is_dollars(value: float | None) -> bool:
    return value is None or 0 <= value <= _LARGEST


def _numbers(price: Price) -> Iterator[float | None]:
    for rates in filter(None, (price, price.long)):
        yield from (rates.input, rates.output, rates.cached_input, rates.cache_write)


def _efforts(row: Mapping[str, Any]) -> Iterator[str]:
    """The levels of effort in Anthropic's form, or in OpenRouter's."""
    able, reasoning = row.get("capabilities"), row.get("reasoning")
    effort = able.get("effort") if isinstance(able, dict) else None
    named = reasoning.get("supported_efforts") if isinstance(reasoning, dict) else None
    for level in _EFFORTS:
        part = effort.get(level) if isinstance(effort, dict) else None
        is_able = isinstance(part, dict) and part.get("supported") is True
        if is_able or (isinstance(named, list) and level in named):
            yield level

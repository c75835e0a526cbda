"""Which keys there are at all, and which of them somebody meant."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from toolrest.config.schema.aliases import ALIASES
from toolrest.config.keys import Key, format_key, parse_key
from toolrest.config.schema.settings import Settings
from toolrest.config.schema._merge_pending import PENDING_KEYS
from toolrest.config.schema.table import Table

ANY = "*"
"""Stands for a name that the user chooses, as in `tools.limits.*`."""


@cache
def known_keys() -> frozenset[Key]:
    """Every path a file may hold, tables included; names that users choose are `*`."""
    paths = {*_model_keys(Settings, ()), *ALIASES, *(parse_key(k) for k in PENDING_KEYS)}
    return frozenset(path[:end] for path in paths for end in range(1, len(path) + 1))


def _model_keys(model: type[Table], prefix: Key) -> Iterator[Key]:
    for name, kind in model.fields().items():
        path = (*prefix, name)
        yield path
        yield from _inner_keys(kind, path)


def _inner_keys(kind: Any, path: Key) -> Iterator[Key]:
    if isinstance(kind, type) and issubclass(kind, Table):
        yield from _model_keys(kind, path)
    elif get_origin(kind) is dict:
        yield (*path, ANY)
        yield from _inner_keys(get_args(kind)[1], (*path, ANY))
    elif get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _inner_keys(member, path)


def pattern_of(key: Key) -> Key | None:
    """The known path that a key is an instance of, or None."""
    known = known_keys()
    pattern: Key = ()
    for name in key:
        exact, chosen = (*pattern, name), (*pattern, ANY)
        if exact not in known and chosen not in known:
            return None
        pattern = exact if exact in known else chosen
    return pattern


def nearest(key: Key) -> str | None:
    """The dotted key that was probably meant, or None."""
    import difflib

    known = known_keys()
    parent = pattern_of(key[:-1]) if len(key) > 1 else ()
    if parent is not None:
        names = [path[-1] for path in known if path[:-1] == parent and path[-1] != ANY]
        if close := difflib.get_close_matches(key[-1], sorted(names), 1, 0.6):
            return format_key((*key[:-1], close[0]))
    plain = sorted(path for path in known if ANY not in path)
    if namesakes := [path for path in plain if path[-1] == key[-1]]:
        return format_key(namesakes[0])
    spelled = difflib.get_close_matches(format_key(key), [format_key(p) for p in plain], 1, 0.7)
    return spelled[0] if spelled else None

"""Declared effects of function tools, joined for each call.

Declarations add up: each can only make a call touch more. A parameter that is named but cannot
be found in the arguments is unknown, never nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from toolrest.gate.context import Context
from toolrest.policy.effects import Effects

OMITTED: Any = object()
"""Marks an optional parameter that was left out: it touches nothing."""
UNKNOWN: Any = object()
"""Marks a parameter whose value is not known."""


class _UnknownValue(Exception):
    """Raised for a value that is no path and no address."""


class EffectParameters(Struct, frozen=True):
    """The parameters that hold paths and addresses."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    connects: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.reads or self.writes or self.connects)

    def of(self, value_of: Callable[[str], Any], ctx: Context) -> Effects:
        """The effects of a call whose parameters have these values."""

        def paths(names: tuple[str, ...]) -> tuple[str, ...]:
            items = (item for name in names for item in _many(value_of(name)))
            return tuple(ctx.files.canonical(_path(item)) for item in items)

        try:
            hosts = (_host(item) for name in self.connects for item in _many(value_of(name)))
            return Effects(
                reads=paths(self.reads), writes=paths(self.writes), connects=tuple(hosts)
            )
        except _UnknownValue:
            return Effects.unknown()

    def typical(self) -> Effects:
        """The effects with the parameters' names in place of values."""
        return Effects(
            reads=tuple(f"<{n}>" for n in self.reads),
            writes=tuple(f"<{n}>" for n in self.writes),
            connects=tuple(f"<{n}>" for n in self.connects),
        )


def join(parts: Iterable[Effects]) -> Effects:
    """The union of effects; `confined` and `judged`, which lower a verdict, where all agree."""
    first, *rest = parts
    for part in rest:
        first = _join_two(first, part)
    return first


def _join_two(one: Effects, other: Effects) -> Effects:
    both = (one, other)
    exclusive = [part.exclusive for part in both if part.exclusive is not None]
    acting = [part for part in both if part.runs or part.calls or part.is_unknown or part.connects]
    writing = [part for part in both if part.writes]
    return Effects(
        reads=_union(one.reads, other.reads),
        writes=_union(one.writes, other.writes),
        runs=_union(one.runs, other.runs),
        connects=_union(one.connects, other.connects),
        calls=_union(one.calls, other.calls),
        consults=_union(one.consults, other.consults),
        serial=_union(one.serial, other.serial),
        exclusive=any(exclusive) if exclusive else None,
        is_unknown=one.is_unknown or other.is_unknown,
        critical=one.critical if one.critical is not None else other.critical,
        confined=bool(acting) and all(part.confined for part in acting),
        escalates=one.escalates if one.escalates is not None else other.escalates,
        judged=bool(writing) and all(part.judged for part in writing),
    )


def _union(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def raw_value(name: str, args: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    """A parameter of a tool with a raw schema: its value, OMITTED or UNKNOWN."""
    if name in args:
        return args[name]
    properties = schema.get("properties")
    described = properties.get(name) if isinstance(properties, Mapping) else None
    if described is None:
        return UNKNOWN
    default = described.get("default") if isinstance(described, Mapping) else None
    return OMITTED if default is None else default


def _many(value: Any) -> list[Any]:
    if value is None or value is OMITTED:
        return []
    if value is UNKNOWN or isinstance(value, Mapping | bytes):
        raise _UnknownValue
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def _path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise _UnknownValue
    return os.fspath(value)


def _host(address: Any) -> str:
    from urllib.parse import urlsplit

    url = str(address)
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        return parts.hostname or url
    except ValueError:
        return url

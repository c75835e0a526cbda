"""Wire names of tools: the name that a tool is offered under, and the tool that a name means.

Wires take `^[A-Za-z0-9_-]{1,64}$`. A tool's own name that is legal goes out as it is and can
never be taken away by another tool; a name that has to be changed and then clashes gets a
suffix from its hash. The outcome depends on the set of names, not on their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha1
from itertools import count
from typing import Final, TypeAlias

RawName: TypeAlias = str | tuple[str, str]
"""A tool's own name, or (server, tool) for a tool of an MCP server."""

MAX_NAME: Final = 64
DEFAULT_NAMESPACE: Final = "functions"
_LEGAL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ILLEGAL: Final = re.compile(r"[^A-Za-z0-9_-]")
_SUFFIX: Final = 8


def is_legal(name: str) -> bool:
    """True when every wire takes the name as it is."""
    return _LEGAL.fullmatch(name) is not None


def full_name(raw: RawName) -> str:
    """The name before it is made legal: `mcp__SERVER__TOOL` for a tool of a server."""
    return raw if isinstance(raw, str) else f"mcp__{raw[0]}__{raw[1]}"


def wire_name(raw: RawName) -> str:
    """A legal name: other characters become `_`; past 64, 24 characters and a SHA-1 follow."""
    full = full_name(raw)
    legal = _ILLEGAL.sub("_", full) or "_"
    return legal if len(legal) <= MAX_NAME else legal[:24] + _digest(full)


def _digest(text: str) -> str:
    return sha1(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


class NameMap:
    """Tools to wire names and back, built once from all names of a session."""

    __slots__ = ("_bases", "_raws", "_wires")

    def __init__(self, names: Iterable[RawName] = ()) -> None:
        bases: dict[str, list[RawName]] = {}
        for raw in dict.fromkeys(names):
            bases.setdefault(wire_name(raw), []).append(raw)
        self._bases = bases
        self._wires: dict[RawName, str] = {}
        clashing: list[RawName] = []
        for base, raws in bases.items():
            for raw in raws:
                if len(raws) == 1 or raw == base:
                    self._wires[raw] = base
                else:
                    clashing.append(raw)
        self._wires |= _suffixed(clashing, set(bases))
        self._raws = {wire: raw for raw, wire in self._wires.items()}

    def __len__(self) -> int:
        return len(self._wires)

    def __iter__(self) -> Iterator[tuple[RawName, str]]:
        """Pairs of own name and wire name, by wire name."""
        return iter(sorted(self._wires.items(), key=lambda pair: pair[1]))

    def wire(self, raw: RawName) -> str:
        """The name to offer the tool under; KeyError when it was not among the names."""
        return self._wires[raw]

    def resolve(self, spelling: str, namespace: str | None = None) -> RawName | None:
        """The tool a caller means: by own name, wire name, `server/tool` or namespace and name.

        None when no tool, or more than one, goes by that spelling.
        """
        if namespace and namespace != DEFAULT_NAMESPACE:
            exact = (namespace.removeprefix("mcp__"), spelling)
            if exact in self._wires and namespace.startswith("mcp__"):
                return exact
            return self._only(wire_name(f"{namespace}__{spelling}"))
        if spelling in self._wires:
            return spelling
        found = self._raws.get(spelling)
        if found is not None:
            return found
        pairs = [
            (spelling[:cut], spelling[cut + 1 :])
            for cut, character in enumerate(spelling[:1000])
            if character == "/"
        ]
        meant = [pair for pair in pairs if pair in self._wires]
        return meant[0] if len(meant) == 1 else None

    def _only(self, base: str) -> RawName | None:
        meant = self._bases.get(base, [])
        return meant[0] if len(meant) == 1 else self._raws.get(base)


def _suffixed(raws: list[RawName], taken: set[str]) -> dict[RawName, str]:
    """Names with a hash; the salt is the first with which all of them are new and distinct."""
    for salt in count():
        named = {raw: _with_suffix(raw, salt) for raw in raws}
        if len(set(named.values())) == len(named) and taken.isdisjoint(named.values()):
            return named
    raise AssertionError  # count() does not end


def _with_suffix(raw: RawName, salt: int) -> str:
    parts = (raw,) if isinstance(raw, str) else raw
    identity = "\0".join((str(salt), str(len(parts)), *(f"{len(part)}:{part}" for part in parts)))
    return f"{wire_name(raw)[: MAX_NAME - 1 - _SUFFIX]}_{_digest(identity)[:_SUFFIX]}"

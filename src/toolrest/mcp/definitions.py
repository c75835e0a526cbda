"""Tool definitions as a server lists them: data, never trusted.

An invalid entry is left out with a reason; the others work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from toolrest.items import JSONObject

MOST_TOOLS = 2000
_LONGEST_NAME = 256
_LARGEST = 256 << 10


class Definition(Struct, frozen=True):
    """One tool of one server, as the server described it."""

    server: str
    name: str
    description: str
    input_schema: JSONObject
    annotations: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None
    output_schema: JSONObject | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Server and tool name, unique to the tool."""
        return self.server, self.name

    def hint(self, name: str) -> bool | None:
        """One of the server's hints, if it gave it as true or false."""
        value = self.annotations.get(name)
        return value if isinstance(value, bool) else None

    def to_json(self) -> JSONObject:
        """All that an approval of the tool covers: what a pin and the cache hold."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.input_schema,
            "outputSchema": self.output_schema,
            "annotations": dict(self.annotations),
        }

    @property
    def digest(self) -> str:
        """A hash that changes with any byte of the definition."""
        return digest(self.to_json())


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_definitions(
    server: str, raw: Iterable[Any]
) -> tuple[dict[str, Definition], dict[str, str]]:
    """The tools by name, and the names of those left out with the reason."""
    good: dict[str, Definition] = {}
    bad: dict[str, str] = {}
    for index, entry in enumerate(raw):
        if len(good) >= MOST_TOOLS:
            bad["…"] = f"the server lists more than {MOST_TOOLS} tools; the rest is left out"
            break
        name, made = _read(server, entry, index)
        if isinstance(made, str):
            bad[name] = made
        elif name in good:
            bad[name] = "the server lists two tools of this name; the first counts"
        else:
            good[name] = made
    return good, bad


def _read(server: str, entry: Any, index: int) -> tuple[str, Definition | str]:
    if not isinstance(entry, dict):
        return f"tool {index}", "its entry is not an object"
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        return f"tool {index}", "it has no name"
    if len(name) > _LONGEST_NAME or not name.isprintable():
        return name[:40], "its name is too long or has characters that cannot be shown"
    problem = _problem(entry)
    if problem is not None:
        return name, problem
    schema = entry.get("inputSchema")
    return name, Definition(
        server,
        name,
        entry.get("description") or "",
        {"type": "object", "properties": {}} if schema is None else schema,
        entry.get("annotations") or {},
        entry.get("title"),
        entry.get("outputSchema"),
    )


_TYPES: Mapping[str, type] = {
    "description": str,
    "title": str,
    "inputSchema": dict,
    "outputSchema": dict,
    "annotations": dict,
}


def _problem(entry: Mapping[str, Any]) -> str | None:
    for key, wanted in _TYPES.items():
        value = entry.get(key)
        if value is not None and not isinstance(value, wanted):
            return f"{key} is a {type(value).__name__}, not {_EXPECTED[wanted]}"
    try:
        size = len(json.dumps(entry))
    except (ValueError, RecursionError):
        return "its definition is nested too deeply"
    if size > _LARGEST:
        return f"its definition has {size} bytes; at most {_LARGEST} are taken"
    return None


_EXPECTED: Mapping[type, str] = {str: "a text", dict: "an object"}

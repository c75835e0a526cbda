"""The cache of servers' tool lists on disk: the next session offers them at once.

Only pinned tools are taken from here, and only while the settings of the server are the same.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolrest.config.files import read_text
from toolrest.config.write import replace_file
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.mcp.definitions import Definition, digest, read_definitions
from toolrest.private_files import make_private

if TYPE_CHECKING:
    from toolrest.mcp.servers import Server

FRESH = 600.0
"""Seconds in which a list is used without asking the server."""
KEPT = 24 * 3600.0
_VERSION = 2


def tool_cache_path(home: str) -> str:
    """The file of the cache in a home."""
    return os.path.join(home, "mcp", "tools.json")


class Cached(Struct, frozen=True):
    """A server's tools when they were last listed."""

    definitions: dict[str, Definition]
    rejected: dict[str, str]
    age: float

    @property
    def fresh(self) -> bool:
        """Whether the server need not be started before it is called."""
        return self.age <= FRESH


class ToolCache:
    """One 0600 file per user, an entry per server."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._read: JSONObject | None = None

    def get(self, server: Server) -> Cached | None:
        """The tools that the server listed, if not long ago and with the same settings."""
        if self._read is None:
            self._read = self._rows()
        row = self._read.get(server.name)
        if not isinstance(row, dict) or row.get("configHash") != config_hash(server):
            return None
        fetched, tools = row.get("fetchedAt"), row.get("tools")
        if not isinstance(fetched, int | float) or not isinstance(tools, list):
            return None
        age = time.time() - fetched
        if not 0 <= age <= KEPT:
            return None
        good, _ = read_definitions(server.name, tools)
        bad = row.get("rejected")
        reasons = bad.items() if isinstance(bad, dict) else ()
        return Cached(
            {name: d for name, d in good.items() if server.offers(name)},
            {name: str(why) for name, why in reasons if server.offers(name)},
            age,
        )

    def put(
        self, server: Server, definitions: Mapping[str, Definition], rejected: Mapping[str, str]
    ) -> None:
        """Store a list; failing to write it is harmless."""
        rows = self._rows()
        rows[server.name] = {
            "fetchedAt": time.time(),
            "configHash": config_hash(server),
            "tools": [definition.to_json() for _, definition in sorted(definitions.items())],
            "rejected": dict(rejected),
        }
        self._write(rows)

    def _rows(self) -> JSONObject:
        try:
            document: Any = json.loads(read_text(self.path) or "{}")
        except (ConfigError, ValueError, RecursionError):
            return {}
        if not isinstance(document, dict) or document.get("version") != _VERSION:
            return {}
        rows = document.get("toolsByServer")
        return rows if isinstance(rows, dict) else {}

    def _write(self, rows: JSONObject) -> None:
        text = json.dumps({"version": _VERSION, "toolsByServer": rows})
        try:
            make_private(os.path.dirname(self.path))
            replace_file(self.path, text)
        except (OSError, ConfigError):
            return


def config_hash(server: Server) -> str:
    """Hash of the server's settings."""
    return digest({"file": server.file, **server.row.as_dict()})

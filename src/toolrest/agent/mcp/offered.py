"""MCP tools in the registry, kept in step with what the servers list.

Some are in every request; others are deferred: a model finds them with `tool_search` first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from toolrest.errors import ToolDefinitionError
from toolrest.gate.output.truncate import BYTES_PER_TOKEN
from toolrest.tools.catalog import is_on
from toolrest.tools.mcp.tool import McpTool
from toolrest.wire.model_facts import model_facts

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.gate.tool.registry import Registry
    from toolrest.gate.tool.tool import Tool
    from toolrest.mcp.definitions import Definition
    from toolrest.mcp.servers import Server
    from toolrest.tools.tool_search import ToolSearch


UNKNOWN_WINDOW = 128_000
_INDEX_SHARE = 2
_FRAME = 60


class DeferredTools:
    """The choice of deferred tools, by a budget. Once deferred in a session, tools stay so: the
    first part of every request should stay the same.
    """

    def __init__(self, config: Config, registry: Registry) -> None:
        self._registry = registry
        self._settings = config.value.tools
        self._budget = int(config.value.mcp.tool_budget * _window(config) * BYTES_PER_TOKEN)
        self._tools: dict[tuple[str, str], McpTool] = {}
        self._loaded: set[tuple[str, str]] = set()
        self._search: ToolSearch | None = None

    @property
    def active(self) -> bool:
        """Whether tools are deferred."""
        return self._search is not None

    def update(self, tools: dict[tuple[str, str], McpTool]) -> None:
        """Replace the list of all servers' tools."""
        self._tools = dict(sorted(tools.items()))
        if not self.active and sum(map(_size, tools.values())) > self._budget:
            search = self._made_search()
            if is_on(search, self._settings):
                self._search = search
                self._registry.add(search, override=True)
        for key, tool in self._tools.items():
            always = tool.server.row.always_load
            tool.offered = not self.active or always or key in self._loaded
        self._registry.touch()

    def _made_search(self) -> ToolSearch:
        from toolrest.tools.tool_search import MOST_ROOM, ToolSearch

        search = ToolSearch(self._deferrable, self.load)
        search.room = min(max(self._budget // _INDEX_SHARE, 400), MOST_ROOM)
        return search

    def load(self, tools: Iterable[Tool]) -> None:
        """Put tools into the requests from now on."""
        for tool in tools:
            if tool.mcp is not None:
                self._loaded.add(tool.mcp)
                tool.offered = tool.late = True
        self._registry.touch()

    def _deferrable(self) -> list[tuple[str, Tool]]:
        return [
            (self._registry.wire_name(tool), tool)
            for tool in self._tools.values()
            if not tool.server.row.always_load
        ]


def _size(tool: McpTool) -> int:
    """An estimate of its size in a request: the schema as it came, not in the form of a wire."""
    schema = tool.definition.input_schema
    return len(tool.name) + len(tool.description) + len(json.dumps(schema)) + _FRAME


def _window(config: Config) -> int:
    return model_facts(config).window or UNKNOWN_WINDOW


class OfferedTools:
    """The servers' tools in the registry; unusable ones are quarantined."""

    def __init__(self, config: Config, registry: Registry) -> None:
        self._settings = config.value.tools
        self._registry = registry
        self._deferred = DeferredTools(config, registry)
        self._tools: dict[tuple[str, str], McpTool] = {}

    def set(
        self, server: Server, wanted: Mapping[str, Definition], rejected: Mapping[str, str]
    ) -> None:
        """Replace the tools of a server; `rejected` are quarantined with their reasons."""
        for key in [key for key in self._tools if key[0] == server.name]:
            if wanted.get(key[1]) != self._tools[key].definition:
                self._registry.remove(self._tools.pop(key))
        for name in wanted:
            self._registry.quarantined.pop(f"mcp__{server.name}__{name}", None)
        for definition in wanted.values():
            if definition.key not in self._tools:
                self._add(definition, server)
        for name, reason in rejected.items():
            self._registry.quarantined[f"mcp__{server.name}__{name}"] = reason
        self.settle()

    def recall(
        self, server: Server, wanted: Mapping[str, Definition], rejected: Mapping[str, str]
    ) -> None:
        """Add the cached tools of an earlier session; call `settle` after the last."""
        for definition in wanted.values():
            self._add(definition, server)
        for name, reason in rejected.items():
            self._registry.quarantined[f"mcp__{server.name}__{name}"] = reason

    def settle(self) -> None:
        """Decide anew which tools are deferred."""
        self._deferred.update(self._tools)

    def of(self, server: Server) -> dict[str, Definition]:
        """The tools of a server in the registry."""
        own = (tool for key, tool in self._tools.items() if key[0] == server.name)
        return {tool.definition.name: tool.definition for tool in own}

    def prepare(self) -> None:
        """Make the schemas for models; it takes its time and may be done in a thread."""
        for tool in list(self._tools.values()):
            with suppress(ToolDefinitionError):
                _ = tool.parameters

    def _add(self, definition: Definition, server: Server) -> None:
        tool = McpTool(definition, server)
        if not is_on(tool, self._settings, "/".join(definition.key)):
            return
        try:
            tool.late = self._registry.asked
            self._registry.add(tool, override=True)
            self._tools[tool.definition.key] = tool
        except ToolDefinitionError as error:
            self._registry.quarantine(tool.name, str(error))

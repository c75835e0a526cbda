"""Which of the servers' tools are in every request, and which a model has to look up first."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from toolrest.gate.output.truncate import BYTES_PER_TOKEN
from toolrest.tools.catalog import is_on

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.gate.tool.registry import Registry
    from toolrest.gate.tool.tool import Tool
    from toolrest.tools.mcp.tool import McpTool
    from toolrest.tools.tool_search import ToolSearch

UNKNOWN_WINDOW = 128_000
_INDEX_SHARE = 2
_FRAME = 60


class DeferredTools:
    """Decides by a budget. Once tools are deferred in a session they stay so: the first part of
    every request should stay the same.
    """

    def __init__(self, config: Config, registry: Registry) -> None:
        self._registry = registry
        self._may = is_on("tool_search", config.value.tools)
        self._budget = int(config.value.mcp.tool_budget * _window(config) * BYTES_PER_TOKEN)
        self._tools: dict[tuple[str, str], McpTool] = {}
        self._loaded: set[tuple[str, str]] = set()
        self._search: ToolSearch | None = None

    @property
    def active(self) -> bool:
        """Whether tools have to be looked up."""
        return self._search is not None

    def update(self, tools: dict[tuple[str, str], McpTool]) -> None:
        """These are all the servers' tools now."""
        self._tools = dict(sorted(tools.items()))
        if not self.active and self._may and sum(map(_size, tools.values())) > self._budget:
            self._search = self._made_search()
            self._registry.add(self._search, override=True)
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
                tool.offered = True
        self._registry.touch()

    def _deferrable(self) -> list[tuple[str, Tool]]:
        return [
            (self._registry.wire_name(tool), tool)
            for tool in self._tools.values()
            if not tool.server.row.always_load
        ]


def _size(tool: McpTool) -> int:
    """About what it takes in a request: the schema as it came, not in the form of a wire."""
    schema = tool.definition.input_schema
    return len(tool.name) + len(tool.description) + len(json.dumps(schema)) + _FRAME


def _window(config: Config) -> int:
    from toolrest.config.schema.model_limits import model_info

    settings = config.value
    known = model_info(settings.model).context_window if settings.model else None
    return settings.model_context_window or known or UNKNOWN_WINDOW

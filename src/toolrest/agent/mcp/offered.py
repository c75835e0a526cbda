"""Which of the servers' tools are in the registry: kept in step with what servers list."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from toolrest.agent.mcp._merge_mcp_deferred import DeferredTools
from toolrest.errors import ToolDefinitionError
from toolrest.tools.catalog import is_on

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.gate.tool.registry import Registry
    from toolrest.mcp.definitions import Definition
    from toolrest.mcp.servers import Server
    from toolrest.tools.mcp.tool import McpTool


class OfferedTools:
    """Puts tools into the registry and takes them out; those that make no sense are set aside."""

    def __init__(self, config: Config, registry: Registry) -> None:
        self._settings = config.value.tools
        self._registry = registry
        self._deferred = DeferredTools(config, registry)
        self._tools: dict[tuple[str, str], McpTool] = {}

    def set(
        self, server: Server, wanted: Mapping[str, Definition], rejected: Mapping[str, str]
    ) -> None:
        """These are the server's tools now; `rejected` are set aside for the reason given."""
        for key in [key for key in self._tools if key[0] == server.name]:
            if wanted.get(key[1]) != self._tools[key].definition:
                self._registry.remove(self._tools.pop(key))
        for name in wanted:
            self._registry.quarantined.pop(f"mcp__{server.name}__{name}", None)
        for definition in wanted.values():
            if definition.key not in self._tools and self._is_on(definition):
                self._add(definition, server, checked=False)
        for name, reason in rejected.items():
            self._registry.quarantined[f"mcp__{server.name}__{name}"] = reason
        self.settle()

    def recall(self, server: Server, wanted: Mapping[str, Definition]) -> None:
        """The tools of an earlier session, which were good then; `settle` comes after the last."""
        for definition in wanted.values():
            if self._is_on(definition):
                self._add(definition, server, checked=True)

    def settle(self) -> None:
        """Decide anew which tools have to be looked up first."""
        self._deferred.update(self._tools)

    def of(self, server: Server) -> dict[str, Definition]:
        """What is in the registry of this server's."""
        own = (tool for key, tool in self._tools.items() if key[0] == server.name)
        return {tool.definition.name: tool.definition for tool in own}

    def _is_on(self, definition: Definition) -> bool:
        settings = self._settings
        spellings = (f"mcp__{definition.server}__{definition.name}", "/".join(definition.key))
        if any(fnmatchcase(name, glob) for name in spellings for glob in settings.disabled):
            return False
        return any(is_on(name, settings) for name in spellings)

    def _add(self, definition: Definition, server: Server, *, checked: bool) -> None:
        from toolrest.tools.mcp.tool import McpTool

        tool = McpTool(definition, server)
        try:
            if not checked:
                tool.validate()
            self._registry.add(tool, override=True)
            self._tools[tool.definition.key] = tool
        except ToolDefinitionError as error:
            self._registry.quarantine(tool.name, str(error))

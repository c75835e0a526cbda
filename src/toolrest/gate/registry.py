"""Which tools there are. One bad tool is set aside with a reason; the rest work."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from toolrest.errors import ToolDefinitionError
from toolrest.gate.names import DEFAULT_NAMESPACE, NameMap, full_name
from toolrest.gate.tool import GROUPS, Tool


class Registry:
    """Names to tools. What is listed is sorted, so that prompts stay byte-identical."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._lookup: dict[str, Tool] = {}
        self._map: NameMap | None = None
        self.quarantined: dict[str, str] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool, *, override: bool = False) -> None:
        """Register a tool; taking the name of another needs `override`."""
        name = tool.name
        if not name:
            raise ToolDefinitionError(f"a tool needs a name: {tool!r}")
        known = self._lookup.get(name)
        if known is not None and not override:
            raise ToolDefinitionError(
                f"there already is a tool named {name}; register yours with override=True "
                "to replace it, or give it another name"
            )
        if known is not None:
            self.remove(known.name)
        self._map = None
        self.quarantined.pop(name, None)
        self._tools[name] = tool
        self._lookup[name] = tool
        for alias in tool.aliases:
            self._lookup.setdefault(alias, tool)

    def remove(self, name: str) -> None:
        """Take a tool out: its name, its aliases, its handler."""
        self._map = None
        tool = self._tools.pop(name, None)
        self._lookup = {key: known for key, known in self._lookup.items() if known is not tool}

    def quarantine(self, name: str, reason: str) -> None:
        """Set a tool aside: it is not offered, and calling it says why."""
        self.remove(name)
        self.quarantined[name] = reason

    def get(self, name: str, namespace: str | None = None) -> Tool | None:
        """The tool of this name, alias, wire name, `server/tool` or namespace and name."""
        found = self._lookup.get(name)
        if found is not None and not namespace:
            return found
        raw = self._names.resolve(name, namespace)
        if raw is None:
            return found if namespace == DEFAULT_NAMESPACE else None
        return self._tools[full_name(raw)]

    @property
    def _names(self) -> NameMap:
        if self._map is None:
            self._map = NameMap(tool.mcp or tool.name for tool in self._tools.values())
        return self._map

    def wire_name(self, tool: Tool) -> str:
        """The name that models see: legal on every wire, unique, reversible."""
        return self._names.wire(tool.mcp or tool.name)

    def listed(self) -> list[Tool]:
        """What models are offered: groups in their fixed order, by name inside a group."""
        offered = (tool for tool in self._tools.values() if tool.offered)
        return sorted(offered, key=lambda t: (GROUPS.index(t.group), t.name))

    def nearest(self, name: str) -> str | None:
        """The known name that looks most like this one."""
        close = difflib.get_close_matches(name[:64], list(self._lookup), n=1, cutoff=0.75)
        return close[0] if close else None

    def __len__(self) -> int:
        return len(self._tools)

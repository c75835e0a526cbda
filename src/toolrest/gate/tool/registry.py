"""The registry of a session's tools. One bad tool is quarantined with a reason; the rest work.

A built-in tool is known by name and loaded when it is first called or offered (`LazyTool`), so
that a session that never runs a command does not load the code for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from toolrest.errors import ToolDefinitionError
from toolrest.gate.tool.tool import Tool, refuse_methods_of_calls
from toolrest.gate.tool.wire_names import DEFAULT_NAMESPACE, NameMap, RawName
from toolrest.items import GROUPS, Group


class LazyTool(Tool):
    """A placeholder for a tool that is not loaded yet; the registry replaces it on first use."""

    def __init__(
        self,
        name: str,
        group: Group,
        load: Callable[[], Tool],
        *,
        aliases: tuple[str, ...] = (),
        capability: str = "",
        offered: bool = True,
    ) -> None:
        self.name = name
        self.group = group
        self.aliases = aliases
        self.capability = capability
        self.offered = offered
        self.load = load


def key_of(tool: Tool) -> RawName:
    """The unique key of a tool: its server and name there, else its own name."""
    return tool.mcp or tool.name


class Registry:
    """Names to tools. What is listed is sorted, so that prompts stay byte-identical."""

    def __init__(
        self, tools: Iterable[Tool] = (), offers: Callable[[Tool], bool] | None = None
    ) -> None:
        self._tools: dict[RawName, Tool] = {}
        self._aliases: dict[str, RawName] = {}
        self._map: NameMap | None = None
        self._found: dict[str, Tool] = {}
        self._set_aside: dict[str, str] = {}
        self.quarantined: dict[str, str] = {}
        self.offers = offers or _everything
        """Whether a tool that is offered by itself is offered in this session."""
        self.approved: set[Tool] = set()
        """Tools that the host program passed; without declared effects they are not asked about."""
        self.asked = False
        """A model was asked with these tools: what comes now is late."""
        self.version = 0
        """Changes whenever what is offered may have changed."""
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool, *, override: bool = False, approved: bool = False) -> None:
        """Register a tool; taking the name of another needs `override`.

        `approved`: the host program passed it, which approves what declares no effects.

        Taking an alias takes only that: its tool stays. Taking a tool's own name takes its place,
        so its other aliases then mean the new tool.
        """
        name, key = tool.name, key_of(tool)
        if not name:
            raise ToolDefinitionError(f"a tool needs a name: {tool!r}")
        refuse_methods_of_calls(tool, name)
        if (key in self._tools or key in self._aliases) and not override:
            raise ToolDefinitionError(
                f"there already is a tool named {name}; register yours with override=True "
                "to replace it, or give it another name"
            )
        self._forget()
        self.quarantined.pop(name, None)
        self._tools[key] = tool
        if isinstance(key, str):
            self._aliases.pop(key, None)
        for alias in tool.aliases:
            self._aliases.setdefault(alias, key)
        if approved:
            self.approved.add(tool)

    def remove(self, name: str | Tool) -> None:
        """Take a tool out: its name, its aliases, its handler."""
        tool = name if isinstance(name, Tool) else self.get(name)
        if tool is None:
            return
        key = key_of(tool)
        self._forget()
        self._tools.pop(key, None)
        self._aliases = {alias: of for alias, of in self._aliases.items() if of != key}

    def quarantine(self, tool: str | Tool, reason: str) -> None:
        """Set a tool aside: it is not offered, and a call to it returns the reason."""
        name = tool if isinstance(tool, str) else tool.name
        found = self.get(name) if isinstance(tool, str) else tool
        if found is not None:
            self._set_aside[self.wire_name(found)] = name
            self.remove(found)
        self.quarantined[name] = reason

    def reason(self, name: str) -> str | None:
        """The reason why the tool of this name or wire name is quarantined, if it is."""
        return self.quarantined.get(self._set_aside.get(name, name))

    def get(self, name: str, namespace: str | None = None) -> Tool | None:
        """The tool of this name, wire name, `server/tool`, alias, or namespace and name."""
        if namespace:
            raw = self._names.resolve(name, namespace)
            if raw is not None:
                return self._real(raw)
            return self.get(name) if namespace == DEFAULT_NAMESPACE else None
        tool = self._tools.get(name)
        if tool is not None:
            return tool if tool.__class__ is not LazyTool else self._real(name)
        if name not in self._found:
            found = self._search(name)
            if found is None:
                return None  # not kept: models make up any number of names
            self._found[name] = found
        return self._found[name]

    def _search(self, name: str) -> Tool | None:
        raw = self._names.resolve(name)
        if raw is None:
            raw = self._aliases.get(name)
        if raw is not None:
            return self._real(raw)
        # Another server's tool by its bare name, where only one is meant.
        bare = [tool for tool in self._tools.values() if tool.name == name]
        return bare[0] if len(bare) == 1 else None

    def _real(self, key: RawName) -> Tool:
        """The tool itself, loaded on first use."""
        tool = self._tools[key]
        if isinstance(tool, LazyTool):
            offered = tool.offered
            tool = self._tools[key] = tool.load()
            tool.offered = offered
        return tool

    def offer(self, group: Group) -> None:
        """Offer the tools of a group that were only known so far."""
        for tool in self._tools.values():
            if tool.group == group:
                tool.offered = True
        self._forget()

    def _forget(self) -> None:
        self.version += 1
        self._map = None
        self._found.clear()

    @property
    def _names(self) -> NameMap:
        if self._map is None:
            self._map = NameMap(self._tools)
        return self._map

    def touch(self) -> None:
        """Record that the offered tools may have changed."""
        self.version += 1

    def wire_name(self, tool: Tool) -> str:
        """The name that models see: legal on every wire, unique, reversible."""
        return self._names.wire(key_of(tool))

    def listed(self) -> list[Tool]:
        """The offered tools: groups in their order, by name inside a group; late ones last."""
        offered = (
            self._real(key)
            for key, tool in list(self._tools.items())
            if tool.offered and self.offers(tool)
        )
        return sorted(offered, key=lambda t: (t.late, GROUPS.index(t.group), t.name))

    def known(self) -> list[Tool]:
        """Every tool, offered or not, in no order; those that were not needed yet as `LazyTool`."""
        return list(self._tools.values())

    def nearest(self, name: str) -> str | None:
        """The known name that looks most like this one."""
        import difflib

        known = [*(tool.name for tool in self._tools.values()), *self._aliases]
        close = difflib.get_close_matches(name[:64], known, n=1, cutoff=0.75)
        return close[0] if close else None

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: str) -> bool:
        """Whether a tool has this name or alias; loads none."""
        return name in self._tools or name in self._aliases


def _everything(_tool: Tool) -> bool:
    """Offer every tool."""
    return True

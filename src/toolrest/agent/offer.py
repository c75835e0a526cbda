"""The tools that a model is offered: those that the host program named, as specs of each wire."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from toolrest.errors import ToolDefinitionError
from toolrest.gate.tool.decorator import as_tool
from toolrest.gate.tool.tool import OfferedAs, Tool
from toolrest.items import GROUP_NAMES

if TYPE_CHECKING:
    from toolrest.gate.session import Session
    from toolrest.gate.tool.registry import Registry
    from toolrest.items import JSONObject, Wire

EVERYTHING = "all"
HOW = 'name them: tools=[my_function, "files", "shell"], or tools=["all"] for all built-in tools'


class NamedTools:
    """What `tools=` names: the caller's own tools, and built-in ones by name or by group.

    A name that is both a group's and a tool's means the group; `tool:NAME` means the tool.
    `"all"` is every built-in tool that the settings and the model's family offer.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        given: Any = values
        if isinstance(given, str | Tool) or not isinstance(given, Iterable):
            shown = repr(given) if isinstance(given, str) else _name_of(given)
            raise ToolDefinitionError(f"tools is a list: write tools=[{shown}]")
        self.own: list[Tool] = []
        self.chosen: list[str] = []
        """The names and groups, as they were given."""
        self.names: set[str] = set()
        self.everything = False
        self._groups: set[str] = set()
        self._added: set[Tool] = set()
        for value in values:
            if not isinstance(value, str):
                self.own.append(as_tool(value))
                continue
            self.chosen.append(value)
            if value == EVERYTHING:
                self.everything = True
            elif value in GROUP_NAMES:
                self._groups |= GROUP_NAMES[value]
            else:
                self.names.add(value.removeprefix("tool:"))
        if "mcp" in self._groups:
            self._groups.add("mcp_resources")

    @property
    def has_built_in(self) -> bool:
        """Whether built-in tools are named."""
        return self.everything or bool(self.names or self._groups)

    def add(self, tool: Tool) -> None:
        """Offer one more tool."""
        self._added.add(tool)

    def __call__(self, tool: Tool) -> bool:
        """Whether a tool is offered."""
        return self.everything or tool in self._added or self.names_it(tool)

    def names_it(self, tool: Tool) -> bool:
        """Whether it was named, or its group."""
        return tool.group in self._groups or not self.names.isdisjoint((tool.name, *tool.aliases))

    def check(self, registry: Registry) -> None:
        """Raise ToolDefinitionError for a name that means no tool of this session."""
        for name in self.names:
            if name not in registry:
                near = registry.nearest(name)
                hint = f"; did you mean {near}?" if near else "."
                raise ToolDefinitionError(
                    f"tools=[{name!r}]: no group and no built-in tool of this session has this "
                    f"name{hint} Groups: {', '.join(GROUP_NAMES)}"
                )


def _name_of(value: Any) -> str:
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else repr(value)


class Offer:
    """The specs of a session's tools, rendered once for each wire."""

    def __init__(self, session: Session, named: NamedTools | None, *, warns: bool = False) -> None:
        self._warns = warns
        self._session = session
        self._registry = session.registry
        self._all = named is None or named.everything
        self._config = session.config
        self._specs: dict[Wire, list[JSONObject]] = {}
        self._forms: dict[Wire, list[OfferedAs]] = {}
        self._changing: list[Tool] = []
        """Tools whose form depends on more than the wire."""
        self._version = -1

    def specs(self, wire: Wire) -> list[JSONObject]:
        """The specs for a wire: the same list until tools come or go, not to be changed."""
        version = self._registry.version
        if version != self._version:
            self._specs.clear()
            self._version = version
            self._changing = [tool for tool in self._registry.listed() if _changes_form(tool)]
        forms = [tool.offered_as(wire, self._session) for tool in self._changing]
        if wire not in self._specs or forms != self._forms[wire]:
            self._specs[wire], self._forms[wire] = self._render(wire), forms
        if self._warns and not self._specs[wire]:
            self._warns = False
            warnings.warn(f"this Toolrest offers no tools; {HOW}", stacklevel=4)
        return self._specs[wire]

    def unoffered(self, wire: Wire) -> dict[str, str]:
        """The tools that have no form on a wire, by name, and why."""
        return {
            tool.name: tool.missing
            for tool in self._registry.listed()
            if tool.offered_as(wire, self._session) == "nothing"
        }

    def _render(self, wire: Wire) -> list[JSONObject]:
        from toolrest.wire.specs import render

        registry = self._registry
        small = self._is_small()
        listed = (tool for tool in registry.listed() if tool.small_window or not small)
        names = {tool: registry.wire_name(tool) for tool in listed}
        rendered = []
        for tool, name in names.items():
            form = tool.offered_as(wire, self._session)
            if form == "nothing":
                continue
            as_functions = form == "function" or self._config.family.prefer_function_tools
            taken = {other for own, other in names.items() if own is not tool}
            try:
                rendered.append(
                    render(tool, wire, name=name, taken=taken, as_functions=as_functions)
                )
            except ToolDefinitionError as error:
                registry.quarantine(tool, str(error))
        return rendered

    def _is_small(self) -> bool:
        """Whether the model's window is too small for all tools, and the user named none."""
        from toolrest.tools.catalog import SMALL_WINDOW
        from toolrest.wire.model_facts import model_facts

        small, window = self._config.value.tools.small_context, model_facts(self._config).window
        if small is None:
            small = window is not None and window <= SMALL_WINDOW
        return small and self._all and self._config.value.tools.enabled is None


def _changes_form(tool: Tool) -> bool:
    return type(tool).offered_as is not Tool.offered_as


def row(tool: Tool) -> dict[str, object]:
    """The row of a tool in the table of tools."""
    return {
        "name": tool.name,
        "kind": tool.kind,
        "risk": tool.level(tool.typical).label,
        "mutating": tool.typical.mutating,
        "parallel": tool.parallel,
        "description": tool.description,
    }

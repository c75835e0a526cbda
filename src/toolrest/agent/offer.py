"""The tools that a model is offered, as specs of each wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.errors import ToolDefinitionError

if TYPE_CHECKING:
    from toolrest.config import Config
    from toolrest.gate.tool.registry import Registry
    from toolrest.gate.tool.tool import Tool
    from toolrest.items import JSONObject, Wire


class Offer:
    """The specs of a session's tools, rendered once for each wire."""

    def __init__(self, registry: Registry, config: Config) -> None:
        self._registry = registry
        self._config = config
        self._specs: dict[Wire, list[JSONObject]] = {}
        self._version = -1

    def specs(self, wire: Wire) -> list[JSONObject]:
        """The specs for a wire: the same list until tools come or go, not to be changed."""
        version = self._registry.version
        if version != self._version:
            self._specs.clear()
            self._version = version
        if wire not in self._specs:
            self._specs[wire] = self._render(wire)
        return self._specs[wire]

    def _render(self, wire: Wire) -> list[JSONObject]:
        from toolrest.wire.specs import render

        registry = self._registry
        small = self._is_small()
        listed = (tool for tool in registry.listed() if tool.small_window or not small)
        names = {tool: registry.wire_name(tool) for tool in listed}
        as_functions = self._config.family.prefer_function_tools
        rendered = []
        for tool, name in names.items():
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

        small, window = self._config.value.tools.small_context, self._config.context_window
        if small is None:
            small = window is not None and window <= SMALL_WINDOW
        return small and self._config.value.tools.enabled is None


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

"""How a session's tools look to an MCP client: their specs, and hints read off their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.items import JSONObject

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.gate.tool.tool import Tool


def offered(rest: Toolrest, *, asks: bool) -> list[JSONObject]:
    """Every tool in the shape of `tools/list`, in the order models see them.

    `asks` says whether the client can show questions; a tool that does nothing else is of no
    use to one that cannot, unless answers are in the settings.
    """
    answered = asks or bool(rest.settings.user_input.answers)
    hints = {
        rest.wire_name(tool): hints_of(tool)
        for tool in rest.tools
        if answered or not tool.asks_user
    }
    return [
        {**spec, "annotations": hints[spec["name"]]}
        for spec in rest.specs("mcp")
        if spec["name"] in hints
    ]


def hints_of(tool: Tool) -> JSONObject:
    """The hints of a tool. What a usual call touches decides; a hint never says less than that.

    Whoever runs a program or calls another server may destroy something and reach anything, so
    such tools say so even when this session's sandbox would stop them.
    """
    effects = tool.typical
    unknown = bool(effects.runs or effects.calls or effects.is_unknown)
    return {
        "title": tool.name.replace("_", " "),
        "readOnlyHint": not effects.mutating,
        "destructiveHint": bool(effects.writes) or unknown,
        "idempotentHint": tool.idempotent or not effects.mutating,
        "openWorldHint": bool(effects.connects) or unknown,
    }

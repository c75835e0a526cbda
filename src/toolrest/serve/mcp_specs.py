"""Specs of a session's tools for an MCP client, with hints from their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolrest.items import JSONObject

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest
    from toolrest.gate.tool.tool import Tool


def offered(rest: Toolrest, *, asks: bool) -> list[JSONObject]:
    """Every tool in the shape of `tools/list`, in the order models see them.

    `asks`: whether the client can show questions; a tool that does nothing else is left out for
    one that cannot, unless answers are in the settings.
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
    """The hints of a tool, from the effects of a usual call; they never claim less than those.

    A tool that runs a program or calls another server may destroy something and reach anything,
    so its hints claim both even when this session's sandbox would deny it.
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

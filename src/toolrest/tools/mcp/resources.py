"""`list_mcp_resources`, `list_mcp_resource_templates`, `read_mcp_resource`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.tool.args_class import Parameters, as_json, param
from toolrest.gate.tool.arguments import Decoded
from toolrest.gate.tool.tool import ExecItem, Tool
from toolrest.items import Group, JSONObject, ToolOutput
from toolrest.mcp.errors import McpError
from toolrest.policy.effects import Effects
from toolrest.tools.mcp.events import reporting

if TYPE_CHECKING:
    from toolrest.mcp.pool import Pool

_NO_SERVER = "toolrest"
_KEPT = ("annotations", "description", "mimeType", "name", "size", "title", "uri", "uriTemplate")


class _ListArgs(Parameters):
    """Parameters."""

    cursor: str | None = param(
        default=None, description="Where the previous answer for this server stopped."
    )
    server: str | None = param(
        default=None, description="Only this MCP server; left out, all of them are asked."
    )


class _ListTool(Tool):
    """Base class of the list tools: a page of one server, or everything of all."""

    group: Group = "mcp_resources"
    exec_item: ExecItem = ""
    small_window = False
    typical = Effects(consults=("MCP servers",))
    idempotent = True
    Args = _ListArgs
    method = ""
    key = ""

    def decode(self, raw: str | Mapping[str, Any]) -> Decoded:
        """Take a call without arguments, too."""
        if isinstance(raw, str) and raw.strip() in ("", "null"):
            raw = "{}"
        return super().decode(raw)

    async def run(self, args: _ListArgs, ctx: Context) -> ToolOutput:
        """Return the list as JSON."""
        server, cursor = _trimmed(args.server), _trimmed(args.cursor)
        if server is None and cursor is not None:
            raise RespondToModel(
                "cursor can only be used when a server is specified", fields=("cursor",)
            )
        pool: Pool = ctx.session.pool()
        given = as_json(args, without_nulls=True)
        if server is None:
            return await _report(ctx, None, self.name, given, lambda: self._everywhere(pool))
        return await _report(ctx, server, self.name, given, lambda: self._at(pool, server, cursor))

    async def _at(self, pool: Pool, server: str, cursor: str | None) -> JSONObject:
        try:
            page = await pool.page(server, self.method, cursor)
        except McpError as error:
            raise RespondToModel(
                f"{self.method} failed: {self.method} failed for `{server}`: {error}"
            ) from None
        found = page.get(self.key)
        entries = _entries(server, found if isinstance(found, list) else [])
        answer: JSONObject = {"server": server, self.key: entries}
        if isinstance(page.get("nextCursor"), str):
            answer["nextCursor"] = page["nextCursor"]
        return answer

    async def _everywhere(self, pool: Pool) -> JSONObject:
        found, failed = await pool.every(self.method, self.key, "resources")
        answer: JSONObject = {
            self.key: [
                entry for server, listed in found.items() for entry in _entries(server, listed)
            ]
        }
        if failed:
            answer["errors"] = [{"server": name, "error": why} for name, why in failed.items()]
        return answer


class ListMcpResources(_ListTool):
    """`list_mcp_resources`."""

    name = "list_mcp_resources"
    description = (
        "List what the connected MCP servers offer to read: files, database schemas and other "
        "context. Prefer this to a web search when it may hold the answer."
    )
    method = "resources/list"
    key = "resources"


class ListMcpResourceTemplates(_ListTool):
    """`list_mcp_resource_templates`."""

    name = "list_mcp_resource_templates"
    description = (
        "List the parameterised resources of the connected MCP servers: fill in a template's "
        "parameters and read the result with read_mcp_resource."
    )
    method = "resources/templates/list"
    key = "resourceTemplates"


class ReadMcpResource(Tool):
    """`read_mcp_resource`."""

    name = "read_mcp_resource"
    description = "Read a resource of an MCP server, by its server and URI."
    group: Group = "mcp_resources"
    exec_item: ExecItem = ""
    small_window = False
    typical = Effects(consults=("MCP servers",))
    idempotent = True

    class Args(Parameters):
        """Parameters."""

        server: str = param(description="The server's name, as list_mcp_resources gives it.")
        uri: str = param(description="The resource's URI, as list_mcp_resources gives it.")

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Return the contents as JSON."""
        server, uri = _trimmed(args.server), _trimmed(args.uri)
        for name, value in (("server", server), ("uri", uri)):
            if value is None:
                raise RespondToModel(
                    f"{name} must be provided", kind="input_invalid", fields=(name,)
                )
        pool: Pool = ctx.session.pool()
        given = as_json(args)
        return await _report(
            ctx, server, self.name, given, lambda: self._read(pool, server or "", uri or "")
        )

    async def _read(self, pool: Pool, server: str, uri: str) -> JSONObject:
        try:
            result = await pool.read_resource(server, uri)
        except McpError as error:
            raise RespondToModel(
                f"resources/read failed: resources/read failed for `{server}` ({uri}): {error}"
            ) from None
        contents = result.get("contents")
        return {
            "server": server,
            "uri": uri,
            "contents": contents if isinstance(contents, list) else [],
        }


def _trimmed(text: str | None) -> str | None:
    return (text or "").strip() or None


def _entries(server: str, listed: list[Any]) -> list[JSONObject]:
    return [
        {"server": server, **{key: entry[key] for key in _KEPT if entry.get(key) is not None}}
        for entry in listed
        if isinstance(entry, dict)
    ]


async def _report(
    ctx: Context, server: str | None, tool: str, arguments: JSONObject, ask: Any
) -> ToolOutput:
    """Ask with begin and end events; returns the answer as JSON."""
    with reporting(ctx, server or _NO_SERVER, tool, arguments) as outcome:
        text = json.dumps(await ask(), ensure_ascii=False, separators=(",", ":"))
        outcome.ok({"content": [{"type": "text", "text": text}]})
    return ToolOutput(text, provenance="external")

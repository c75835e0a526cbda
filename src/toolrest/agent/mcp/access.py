"""The session's MCP servers as tools see them: `ctx.mcp`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from toolrest.errors import RespondToModel
from toolrest.items import JSONObject, ToolOutput
from toolrest.tools.mcp.tool import McpCall

if TYPE_CHECKING:
    from toolrest.gate.session import Lazy
    from toolrest.gate.tool.call import ToolCall
    from toolrest.mcp.pool import Pool

HostCall = Callable[[str, Mapping[str, Any]], Awaitable[tuple["ToolCall | None", ToolOutput]]]
"""Makes a call by name: the call, if it came to that, and its output."""


class McpAccess:
    """The pool of servers; a call is decided, asked about and reported like a model's."""

    def __init__(self, pool: Lazy[Pool], call: HostCall) -> None:
        self._pool = pool
        self._call = call

    async def call(
        self, server: str, tool: str, arguments: Mapping[str, Any] | None = None
    ) -> JSONObject:
        """Call a tool; return the result as the server sent it. RespondToModel when it has none."""
        if server in self._pool().connections:
            await self._pool().wait([server])  # its tools are known once it is ready
        made, output = await self._call(f"{server}/{tool}", dict(arguments or {}))
        if isinstance(made, McpCall) and made.result is not None:
            return made.result
        failure = output.failure
        raise RespondToModel(output.text, kind=failure.kind if failure else "execution_failed")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool(), name)

"""A tool of an MCP server, registered like any other tool."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from toolrest.answer import Answer
from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.decision.decide import Decision
from toolrest.gate.output.mcp_result import output_of
from toolrest.gate.schema.for_wire import clean_text, for_wire
from toolrest.gate.tool.arguments import Decoded
from toolrest.gate.tool.call import ToolCall
from toolrest.gate.tool.raw_schema import RawSchema
from toolrest.gate.tool.tool import ExecItem, Tool
from toolrest.gate.tool.wire_names import full_name
from toolrest.items import Group, JSONObject, ToolOutput
from toolrest.mcp.definitions import Definition, digest
from toolrest.mcp.errors import McpError, McpTimeout
from toolrest.mcp.pins import launch_record
from toolrest.policy.effects import Effects
from toolrest.policy.grants.key import GrantKey
from toolrest.tools.mcp.events import reporting

if TYPE_CHECKING:
    from toolrest.mcp.pool import Pool
    from toolrest.mcp.servers import Server

LONGEST_DESCRIPTION = 2048
_SPARE = 30.0


class McpTool(Tool):
    """A tool of an MCP server. The server's annotations can only raise its risk."""

    group: Group = "mcp"
    exec_item: ExecItem = ""

    def __init__(self, definition: Definition, server: Server, *, offered: bool = True) -> None:
        self.definition = definition
        self.server = server
        self.mcp = definition.key
        self.name = full_name(definition.key)
        words = clean_text(definition.description, LONGEST_DESCRIPTION)
        self.description = words or f"Tool from {server.name}: {definition.name}"
        self.offered = offered
        self.only_reads = server.row.trusted and definition.hint("readOnlyHint") is True
        self._schema = RawSchema(_known_part(definition.input_schema), self.name, loose=True)
        row = server.row
        # The pool enforces the server's own time limits; the gate's is a second limit.
        longest = max(row.tool_timeout_sec, row.tool_timeout_max_sec)
        self.timeout = longest + row.startup_timeout_sec + _SPARE
        self.typical = Effects(
            calls=(self.name,),
            exclusive=not self._beside_others(),
            critical="the server says that it may destroy data" if self._destroys() else None,
        )

    @cached_property
    def pin(self) -> str:
        """A hash of how the server is started and of everything it says about this tool."""
        launch = digest(launch_record(self.server, None))
        return digest([launch, self.definition.digest])[:16]

    def _beside_others(self) -> bool:
        return self.server.row.supports_parallel_tool_calls or self.only_reads

    def _destroys(self) -> bool:
        return self.definition.hint("destructiveHint") is True

    @property
    def parameters(self) -> JSONObject:
        """The server's schema in the form that models are offered."""
        return self._schema.parameters

    def validate(self) -> None:
        """Raise ToolDefinitionError when the schema cannot be offered or checked."""
        self._schema.check()
        for_wire(self._schema.parameters, "responses", tool=self.name)

    def decode(self, raw: str | Mapping[str, Any]) -> Decoded:
        """The arguments, checked by the server's own schema."""
        return self._schema.decode(raw)

    def begin(self, args: Any, ctx: Context) -> McpCall:
        """The call, which keeps what the server sends."""
        return McpCall(self, args, ctx, self.typical)


class McpCall(ToolCall):
    """A call of a server's tool, and the result as the server sent it."""

    tool: McpTool
    result: JSONObject | None = None

    def decide(self) -> Decision | None:
        """Decide by the user's settings for this server, if they cover the tool."""
        server = self.tool.server
        own = server.row.tools.get(self.tool.definition.name)
        mode = own.approval_mode if own is not None else server.row.default_tools_approval_mode
        if mode == "approve":
            return Decision(Answer.ALLOW, "mcp.approve", by_name=own is not None)
        if mode != "prompt":
            return None
        reason = f"mcp_servers.{server.name} wants approval of its tools"
        policy = self.ctx.session.approval_policy
        if policy in ("never", "dangerous"):
            message = f'{reason}, and approval_policy = "{policy}" never asks'
            return Decision(Answer.DENY, "mcp.prompt", message)
        return Decision(Answer.ASK, "mcp.prompt", reason)

    def reaches(self) -> tuple[str, ...]:
        """The server, unless its sandbox holds it off the network."""
        pool: Pool = self.ctx.session.pool()
        connection = pool.connections.get(self.tool.server.name)
        return () if connection is not None and connection.offline else super().reaches()

    def reach_keys(self) -> tuple[GrantKey, ...]:
        """The tool, as its server is started and describes it."""
        return (GrantKey("reach", (self.tool.name, self.tool.pin)),)

    async def run(self) -> ToolOutput:
        """Call the server; an error of its own is an output, not an exception."""
        ctx, known = self.ctx, self.tool.definition
        server, tool = known.key
        pool: Pool = ctx.session.pool()
        with reporting(ctx, server, tool, self.args) as outcome:
            try:
                self.result = await pool.call(
                    server, tool, self.args, known=known, on_progress=_progress(ctx)
                )
            except McpError as error:
                raise _failure(server, tool, error) from None
            outcome.ok(self.result)
        return output_of(self.result, self.tool.server.row.result_view)


def _failure(server: str, tool: str, error: McpError) -> RespondToModel:
    """The message for the model about a call that got no result."""
    text = f"tool call error: tool call failed for `{server}/{tool}`\n\nCaused by:\n    {error}"
    timed_out = isinstance(error, McpTimeout)
    return RespondToModel(text, kind="timed_out" if timed_out else "execution_failed")


def _progress(ctx: Context) -> Any:
    def progress(done: float, total: float | None, message: str | None) -> None:
        fraction = done / total if total else None
        ctx.progress(message or (f"{done:g}" + (f" of {total:g}" if total else "")), fraction)

    return progress


def _known_part(schema: JSONObject) -> JSONObject:
    """Make a schema that does not say so an object."""
    return {**schema, "type": "object", "properties": schema.get("properties") or {}}

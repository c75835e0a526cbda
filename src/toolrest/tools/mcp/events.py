"""The begin and end events of every request to an MCP server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from msgspec import Struct, field

from toolrest.errors import RespondToModel
from toolrest.events import McpToolCallBegin, McpToolCallEnd
from toolrest.gate.context import Context
from toolrest.items import JSONObject


class McpReport(Struct):
    """The result that the end event gets."""

    result: JSONObject = field(default_factory=lambda: {"Err": "cancelled"})

    def ok(self, answer: JSONObject) -> None:
        """Record the server's answer."""
        self.result = {"Ok": answer}


@contextmanager
def reporting(ctx: Context, server: str, tool: str, arguments: JSONObject) -> Iterator[McpReport]:
    """Emit a begin and an end event around an invocation, however it ends."""
    invocation: JSONObject = {"server": server, "tool": tool, "arguments": arguments}
    began = monotonic()
    ctx.emit(McpToolCallBegin(call_id=ctx.call_id, invocation=invocation))
    outcome = McpReport()
    try:
        yield outcome
    except RespondToModel as error:
        outcome.result = {"Err": error.message}
        raise
    finally:
        ctx.emit(
            McpToolCallEnd(
                call_id=ctx.call_id,
                invocation=invocation,
                duration=monotonic() - began,
                result=outcome.result,
            )
        )

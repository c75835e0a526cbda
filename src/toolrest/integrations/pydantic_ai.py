"""pydantic-ai: a toolset whose calls pass the gate, with approvals as deferred tool requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_ai import ApprovalRequired, BinaryContent, RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolrest.gate.approval.pending import PendingApproval
from toolrest.integrations.gated_calls import FrameworkCall, GatedCalls, shown
from toolrest.items import Text, ToolOutput

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest


def _not_null(arguments: Any) -> Any:
    return {} if arguments is None else arguments  # the package asserts that there are some


_ANY = SchemaValidator(
    core_schema.no_info_after_validator_function(_not_null, core_schema.any_schema())
)


class ToolrestToolset(AbstractToolset[Any]):
    """The tools of a `Toolrest` for a pydantic-ai agent.

    ```python
    async with Toolrest(".", tools=["files", "shell"], on_ask="defer") as rest:
        agent = Agent(
            "openai:gpt-5.5",
            toolsets=[ToolrestToolset(rest)],
            output_type=[str, DeferredToolRequests],
        )
    ```

    With `on_ask="defer"` a call that needs approval is a deferred tool request; its metadata says
    what it would do and why it is asked about. `ToolApproved(override_args=…)` is another call,
    which is asked about again; approve it with the same `override_args`, as the request still
    names the model's own.
    """

    def __init__(self, rest: Toolrest, *, id: str | None = None) -> None:  # noqa: A002
        self._calls = GatedCalls(rest)
        self._id = id

    @property
    def id(self) -> str | None:
        """The toolset's id, which only durable execution needs."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """The tools on offer; their arguments are checked by the gate."""
        return {
            tool.name: ToolsetTool(
                toolset=self,
                tool_def=ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=tool.schema,
                ),
                max_retries=1,
                args_validator=_ANY,
            )
            for tool in self._calls.offered()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Run a call, or raise ApprovalRequired; an approved one runs once."""
        call = FrameworkCall(ctx.tool_call_id or "", name, tool_args)
        calls = self._calls
        result = await (calls.resume(call) if ctx.tool_call_approved else calls.call(call))
        if isinstance(result, PendingApproval):
            raise ApprovalRequired(metadata=shown(result))
        return _content(result)


def _content(output: ToolOutput) -> Any:
    if isinstance(output.content, str):
        return output.content
    return [
        part.text if isinstance(part, Text) else BinaryContent.from_data_uri(part.url)
        for part in output.content
    ]

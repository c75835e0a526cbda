"""openai-agents: function tools, and its shell and apply-patch tools, run behind the gate."""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING, Any

from agents import (
    ApplyPatchTool,
    FunctionTool,
    RunContextWrapper,
    ShellActionRequest,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    ToolOutputImage,
    ToolOutputText,
)
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.tool_context import ToolContext

from toolrest.integrations.gated_calls import FrameworkCall, GatedCalls, OfferedTool, as_mapping
from toolrest.items import JSONObject, Text, ToolOutput

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest

_SHELL = "shell_command"
_PATCH = "apply_patch"
_ANY_CALL = token_hex(16)
"""An id that no call has: what is approved for it is approved for every call."""


def function_tools(rest: Toolrest) -> list[FunctionTool]:
    """The tools of a `Toolrest` as function tools.

    ```python
    async with Toolrest(".", tools=["files", "shell"], on_ask="defer") as rest:
        agent = Agent("helper", model="gpt-5.5", tools=function_tools(rest))
    ```

    With `on_ask="defer"` a call that needs approval interrupts the run, as with the package's own
    `needs_approval`: `state.approve(item)` and run again.
    """
    calls, approvals = GatedCalls(rest), _Approvals()
    return [_function_tool(calls, approvals, tool) for tool in calls.offered()]


class _Approvals:
    """The approvals of the package, which keeps them by the ids of calls: each counts once."""

    def __init__(self) -> None:
        self._used: set[tuple[str, str]] = set()

    def take(self, ctx: RunContextWrapper[Any], tool: str, call_id: str) -> bool:
        """Whether a call is approved, by an approval that was not used or one for every call."""
        if ctx.is_tool_approved(tool, call_id) is not True:
            return False
        if self.for_every_call(ctx, tool):
            return True
        fresh = (tool, call_id) not in self._used
        self._used.add((tool, call_id))
        return fresh

    def for_every_call(self, ctx: RunContextWrapper[Any], tool: str) -> bool:
        """Whether a tool's calls are approved without being shown (`always_approve=True`)."""
        return ctx.is_tool_approved(tool, _ANY_CALL) is True


def _function_tool(calls: GatedCalls, approvals: _Approvals, tool: OfferedTool) -> FunctionTool:
    async def invoke(ctx: ToolContext[Any], arguments: str) -> Any:
        call = FrameworkCall(ctx.tool_call_id, tool.name, as_mapping(arguments))
        approved = approvals.take(ctx, tool.name, ctx.tool_call_id)
        always = approvals.for_every_call(ctx, tool.name)
        return _content(await calls.finish(call, approved=approved, always=always))

    async def needs(ctx: RunContextWrapper[Any], arguments: JSONObject, call_id: str) -> bool:
        return await calls.needs_approval(FrameworkCall(call_id, tool.name, arguments))

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,
        # A function here makes the package interrupt for arguments that are no JSON object, too.
        needs_approval=needs if calls.defers else False,
    )


def _content(output: ToolOutput) -> Any:
    if isinstance(output.content, str):
        return output.content
    return [
        ToolOutputText(text=part.text)
        if isinstance(part, Text)
        else ToolOutputImage(image_url=part.url)
        for part in output.content
    ]


def shell_tool(rest: Toolrest) -> ShellTool:
    """The package's `ShellTool`, whose commands run in the sandbox and ask as ours do."""
    calls, approvals = GatedCalls(rest), _Approvals()

    async def run(request: ShellCommandRequest) -> ShellResult:
        call_id, action = request.data.call_id, request.data.action
        approved = approvals.take(request.ctx_wrapper, "shell", call_id)
        always = approvals.for_every_call(request.ctx_wrapper, "shell")
        outputs = []
        for command, call in _shell_calls(action, call_id):
            output = await calls.finish(call, approved=approved, always=always)
            outputs.append(_shell_output(command, output))
        return ShellResult(output=outputs)

    async def needs(ctx: RunContextWrapper[Any], action: ShellActionRequest, call_id: str) -> bool:
        # Each is looked at: the run is interrupted once for all of them.
        needed = [await calls.needs_approval(call) for _, call in _shell_calls(action, call_id)]
        return any(needed)

    return ShellTool(executor=run, needs_approval=needs)


def _shell_calls(action: ShellActionRequest, call_id: str) -> list[tuple[str, FrameworkCall]]:
    """The commands of an action, each with the call that runs it."""
    limit = {} if action.timeout_ms is None else {"timeout_ms": action.timeout_ms}
    return [
        (line, FrameworkCall(f"{call_id}-{n}", _SHELL, {"command": line, **limit}, of_host=True))
        for n, line in enumerate(action.commands)
    ]


def _shell_output(command: str, output: ToolOutput) -> ShellCommandOutput:
    timed_out = output.failure is not None and output.failure.kind == "timed_out"
    code = output.metadata.get("exit_code", 126 if output.failed else 0)
    outcome = ShellCallOutcome("timeout") if timed_out else ShellCallOutcome("exit", code)
    return ShellCommandOutput(stdout=output.text, outcome=outcome, command=command)


def apply_patch_tool(rest: Toolrest) -> ApplyPatchTool:
    """The package's `ApplyPatchTool`, whose operations pass the gate and can be undone.

    The package does not tell an editor which call it works for. So an approval has to be given in
    the process that asked; in another one the operation is not run.
    """
    editor = GatedEditor(rest)
    return ApplyPatchTool(editor=editor, needs_approval=editor.needs_approval)


class GatedEditor:
    """The editor of `apply_patch_tool`: each operation is one patch."""

    def __init__(self, rest: Toolrest) -> None:
        self._calls = GatedCalls(rest)
        self._approvals = _Approvals()
        self._call_ids: dict[str, str] = {}  # of the patches that are about to be applied

    async def needs_approval(
        self, ctx: RunContextWrapper[Any], operation: ApplyPatchOperation, call_id: str
    ) -> bool:
        """Whether an operation would be asked about."""
        patch = _patch(operation)
        if patch is None:
            return False
        self._call_ids[patch] = call_id
        return await self._calls.needs_approval(_call(call_id, patch))

    async def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Add a file."""
        return await self._apply(operation)

    async def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Change a file, and perhaps move it."""
        return await self._apply(operation)

    async def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Delete a file."""
        return await self._apply(operation)

    async def _apply(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        patch = _patch(operation)
        if patch is None:
            return ApplyPatchResult("failed", "not run: the operation is not one file's patch")
        call = _call(self._call_ids.pop(patch, "apply-patch"), patch)
        context = operation.ctx_wrapper
        approved = (
            self._calls.was_asked(call)
            and context is not None
            and self._approvals.take(context, _PATCH, call.id)
        )
        output = await self._calls.finish(call, approved=approved)
        return ApplyPatchResult("failed" if output.failed else "completed", output.text)


def _call(call_id: str, patch: str) -> FrameworkCall:
    return FrameworkCall(call_id, _PATCH, patch, of_host=True)


_HEADINGS = {"create_file": "Add", "update_file": "Update", "delete_file": "Delete"}


def _patch(operation: ApplyPatchOperation) -> str | None:
    """The operation as a patch; None when its texts would make it more than one file's."""
    lines = [] if operation.type == "delete_file" else (operation.diff or "").split("\n")
    paths = [operation.path, *([operation.move_to] if operation.move_to else [])]
    if lines and not lines[-1]:
        lines.pop()
    if any("\n" in path or "\r" in path for path in paths):
        return None
    if any(line.startswith("***") and line.strip() != "*** End of File" for line in lines):
        return None
    head = [f"*** {_HEADINGS[operation.type]} File: {operation.path}"]
    if operation.move_to:
        head.append(f"*** Move to: {operation.move_to}")
    return "\n".join(["*** Begin Patch", *head, *lines, "*** End Patch"])

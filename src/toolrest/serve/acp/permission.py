"""An approval as a permission request of the Agent Client Protocol, and its answer."""

from __future__ import annotations

from typing import Any

from acp.helpers import text_block, tool_content
from acp.schema import AllowedOutcome, PermissionOption, ToolCallUpdate

from toolrest.gate.approval.request import ApprovalRequest, Review
from toolrest.policy.terminal_safe import display_safe
from toolrest.serve.acp import diffs
from toolrest.timeline.approval import approval_form
from toolrest.timeline.calls import call_title, command_line
from toolrest.timeline.stored import fenced

_TITLE = 200


def options(request: ApprovalRequest) -> list[PermissionOption]:
    """The answers, and two ways to deny; what each stores is in the text of the call."""
    form = approval_form(request)
    approving = (*form.options[:-1], *form.more)
    return [
        *(
            PermissionOption(
                option_id=request.answer_for(option.key),
                name=option.label,
                kind="allow_once" if option.key == "once" else "allow_always",
            )
            for option in approving
        ),
        PermissionOption(option_id="denied", name="No", kind="reject_once"),
        PermissionOption(option_id="abort", name="No, and stop the turn", kind="reject_once"),
    ]


def tool_call(request: ApprovalRequest, kind: Any) -> ToolCallUpdate:
    """The call as it is shown: a title, all that it takes to decide, its changes as diffs."""
    shown = diffs.of_changes(request.changes, request.cwd)
    whole = diffs.shows_all(request.changes, request.cwd)
    text = fenced("\n".join(approval_form(request, diff=not whole).details))
    return ToolCallUpdate(
        tool_call_id=request.call_id,
        title=_title(request, shown),
        kind=kind,
        status="pending",
        content=[tool_content(text_block(text)), *shown],
        raw_input={
            "arguments": display_safe(request.arguments),
            "because": display_safe(request.retry_reason or request.reason),
            "risk": request.risk.label,
            "folder": request.cwd,
            "outside the sandbox": request.leaves,
        },
    )


def _title(request: ApprovalRequest, shown: list[diffs.Diff]) -> str:
    if request.command:
        title = display_safe(command_line(request.command))
    elif shown:
        title = diffs.title(shown, request.cwd)
    else:
        title = display_safe(call_title(request.tool, request.arguments, request.cwd))
    if len(title) > _TITLE:
        title = f"{title[:_TITLE]} … (all of it below)"
    return f"Outside the sandbox: {title}" if request.leaves else title


def review(outcome: Any, offered: list[PermissionOption]) -> Review:
    """The review that the editor's answer means; an option that was not offered denies."""
    if not isinstance(outcome, AllowedOutcome):
        return Review("abort")
    chosen: Any = outcome.option_id
    known = {option.option_id for option in offered}
    return Review(chosen) if chosen in known else Review("denied")

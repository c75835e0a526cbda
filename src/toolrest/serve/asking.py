"""Approvals as MCP elicitations: what the person behind the client is shown, and what they said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolrest.gate.approval import Answer, ApprovalRequest
from toolrest.policy.display import display_safe

if TYPE_CHECKING:
    from mcp_types import ClientCapabilities, ElicitRequestFormParams, ElicitResult

_CHOICES: dict[str, Answer] = {"approve": "approved", "deny": "denied", "abort": "abort"}
_SHOWN = 2000


def can_ask(capabilities: ClientCapabilities | None) -> bool:
    """Whether this client shows forms. A bare `elicitation` capability means forms."""
    asked = capabilities.elicitation if capabilities is not None else None
    return asked is not None and (asked.form is not None or asked.url is None)


def form(request: ApprovalRequest) -> ElicitRequestFormParams:
    """The question about one call: what runs, what it touches, why it is asked."""
    from mcp_types import ElicitRequestFormParams

    lines = [
        f"Toolrest asks before it runs {display_safe(request.tool)} ({request.risk.label}).",
        f"Arguments: {display_safe(request.arguments)[:_SHOWN]}",
        f"Because: {display_safe(request.reason)[:_SHOWN]}",
    ]
    if request.keys:
        lines.append("Touches: " + "; ".join(display_safe(key) for key in request.keys)[:_SHOWN])
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "decision": {
                "type": "string",
                "title": "Decision",
                "description": "approve runs this one call; abort also ends the turn",
                "enum": list(_CHOICES),
            }
        },
        "required": ["decision"],
    }
    return ElicitRequestFormParams(message="\n".join(lines), requested_schema=schema)


def answer(result: ElicitResult | None) -> Answer:
    """What a filled-in form says; anything but a clear yes is no."""
    if result is None or result.action != "accept":
        return "denied"
    return _CHOICES.get(str((result.content or {}).get("decision")), "denied")

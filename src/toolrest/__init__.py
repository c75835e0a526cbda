"""Toolrest: the tool system of a coding agent."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers know the name; importing typing would cost more than we do
if TYPE_CHECKING:
    from toolrest.agent.conversation.session import AgentSession as AgentSession
    from toolrest.agent.open_session import open_session as open_session
    from toolrest.agent.rest import Toolrest as Toolrest
    from toolrest.agent.turn import Turn as Turn
    from toolrest.errors import ConfigError as ConfigError
    from toolrest.errors import Fatal as Fatal
    from toolrest.errors import RespondToModel as RespondToModel
    from toolrest.errors import ToolDefinitionError as ToolDefinitionError
    from toolrest.errors import ToolrestError as ToolrestError
    from toolrest.gate.approval.approvals import ApprovalRequest as ApprovalRequest
    from toolrest.gate.approval.pending import PendingApproval as PendingApproval
    from toolrest.gate.approval.pending import PendingError as PendingError
    from toolrest.gate.approval.request import Review as Review
    from toolrest.gate.approval.user_questions import UserQuestions as UserQuestions
    from toolrest.gate.context import Context as Context
    from toolrest.gate.tool.decorator import tool as tool
    from toolrest.gate.tool.tool import Grammar as Grammar
    from toolrest.gate.tool.tool import Tool as Tool
    from toolrest.items import Image as Image
    from toolrest.items import Text as Text
    from toolrest.items import ToolOutput as ToolOutput
    from toolrest.policy.effects import Effects as Effects
    from toolrest.policy.effects import Risk as Risk

_HOMES = {
    "AgentSession": "toolrest.agent.conversation.session",
    "ApprovalRequest": "toolrest.gate.approval.approvals",
    "ConfigError": "toolrest.errors",
    "Context": "toolrest.gate.context",
    "Effects": "toolrest.policy.effects",
    "Fatal": "toolrest.errors",
    "Grammar": "toolrest.gate.tool.tool",
    "Image": "toolrest.items",
    "PendingApproval": "toolrest.gate.approval.pending",
    "PendingError": "toolrest.gate.approval.pending",
    "RespondToModel": "toolrest.errors",
    "Review": "toolrest.gate.approval.request",
    "Risk": "toolrest.policy.effects",
    "Text": "toolrest.items",
    "Tool": "toolrest.gate.tool.tool",
    "ToolDefinitionError": "toolrest.errors",
    "ToolOutput": "toolrest.items",
    "Toolrest": "toolrest.agent.rest",
    "ToolrestError": "toolrest.errors",
    "Turn": "toolrest.agent.turn",
    "UserQuestions": "toolrest.gate.approval.user_questions",
    "open_session": "toolrest.agent.open_session",
    "tool": "toolrest.gate.tool.decorator",
}

__all__ = sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> object:
    """Load a public name when it is first used: `import toolrest` itself costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'toolrest' has no attribute {name!r}")
    # `import toolrest` loads nothing else.
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

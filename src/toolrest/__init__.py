"""Toolrest: the tool system of a coding agent."""

from __future__ import annotations

from toolrest.lazy_names import LazyNames

__version__ = "0.3.0"

TYPE_CHECKING = False  # type checkers know the name; importing typing would cost more than we do
if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation as Conversation
    from toolrest.agent.conversation.events import AgentMessage as AgentMessage
    from toolrest.agent.conversation.events import AgentMessageDelta as AgentMessageDelta
    from toolrest.agent.conversation.events import AgentReasoning as AgentReasoning
    from toolrest.agent.conversation.events import AgentReasoningDelta as AgentReasoningDelta
    from toolrest.agent.conversation.events import TaskComplete as TaskComplete
    from toolrest.agent.conversation.events import TokenCount as TokenCount
    from toolrest.agent.conversation.result import AgentError as AgentError
    from toolrest.agent.conversation.result import TurnResult as TurnResult
    from toolrest.agent.conversation.turn_events import TurnEvents as TurnEvents
    from toolrest.agent.front.agent import Agent as Agent
    from toolrest.agent.front.sandbox import Sandbox as Sandbox
    from toolrest.agent.front.sandbox import SandboxResult as SandboxResult
    from toolrest.agent.open_session import open_session as open_session
    from toolrest.agent.rest import Toolrest as Toolrest
    from toolrest.config.config import Config as Config
    from toolrest.config.loader import load_config as load_config
    from toolrest.errors import ConfigError as ConfigError
    from toolrest.errors import Fatal as Fatal
    from toolrest.errors import RespondToModel as RespondToModel
    from toolrest.errors import ToolDefinitionError as ToolDefinitionError
    from toolrest.errors import ToolrestError as ToolrestError
    from toolrest.events import ApprovalDeferred as ApprovalDeferred
    from toolrest.events import ApprovalRequested as ApprovalRequested
    from toolrest.events import Event as Event
    from toolrest.events import PlanUpdate as PlanUpdate
    from toolrest.events import ToolCallBegin as ToolCallBegin
    from toolrest.events import ToolCallDecision as ToolCallDecision
    from toolrest.events import ToolCallDelta as ToolCallDelta
    from toolrest.events import ToolCallEnd as ToolCallEnd
    from toolrest.events import ToolCallProgress as ToolCallProgress
    from toolrest.gate.approval.pending import PendingApproval as PendingApproval
    from toolrest.gate.approval.pending import PendingError as PendingError
    from toolrest.gate.approval.request import ApprovalRequest as ApprovalRequest
    from toolrest.gate.approval.request import Choice as Choice
    from toolrest.gate.approval.request import Review as Review
    from toolrest.gate.approval.user_questions import UserQuestions as UserQuestions
    from toolrest.gate.call.turn import Turn as Turn
    from toolrest.gate.context import Context as Context
    from toolrest.gate.tool.call import ToolCall as ToolCall
    from toolrest.gate.tool.call import ToolQuestion as ToolQuestion
    from toolrest.gate.tool.decorator import tool as tool
    from toolrest.gate.tool.tool import Grammar as Grammar
    from toolrest.gate.tool.tool import Tool as Tool
    from toolrest.items import Image as Image
    from toolrest.items import Text as Text
    from toolrest.items import ToolOutput as ToolOutput
    from toolrest.policy.effects import Effects as Effects
    from toolrest.policy.effects import Risk as Risk
    from toolrest.timeline.approval import AnswerOption as AnswerOption
    from toolrest.timeline.approval import ApprovalForm as ApprovalForm
    from toolrest.timeline.approval import approval_form as approval_form
    from toolrest.wire.model import Model as Model
    from toolrest.wire.model import ModelError as ModelError
    from toolrest.wire.model import Usage as Usage

    AgentSession = Conversation  # its name in 0.2

_NAMES = LazyNames(
    __name__,
    {
        "toolrest.agent.conversation.events": (
            "AgentMessage AgentMessageDelta AgentReasoning AgentReasoningDelta TaskComplete "
            "TokenCount"
        ),
        "toolrest.agent.conversation.conversation": "Conversation",
        "toolrest.agent.conversation.result": "AgentError TurnResult",
        "toolrest.agent.conversation.turn_events": "TurnEvents",
        "toolrest.gate.call.turn": "Turn",
        "toolrest.agent.front.agent": "Agent",
        "toolrest.agent.front.sandbox": "Sandbox SandboxResult",
        "toolrest.agent.open_session": "open_session",
        "toolrest.agent.rest": "Toolrest",
        "toolrest.config.config": "Config",
        "toolrest.config.loader": "load_config",
        "toolrest.errors": "ConfigError Fatal RespondToModel ToolDefinitionError ToolrestError",
        "toolrest.events": (
            "ApprovalDeferred ApprovalRequested Event PlanUpdate ToolCallBegin "
            "ToolCallDecision ToolCallDelta ToolCallEnd ToolCallProgress"
        ),
        "toolrest.gate.approval.pending": "PendingApproval PendingError",
        "toolrest.gate.approval.request": "ApprovalRequest Choice Review",
        "toolrest.gate.approval.user_questions": "UserQuestions",
        "toolrest.gate.context": "Context",
        "toolrest.gate.tool.call": "ToolCall ToolQuestion",
        "toolrest.gate.tool.decorator": "tool",
        "toolrest.gate.tool.tool": "Grammar Tool",
        "toolrest.items": "Image Text ToolOutput",
        "toolrest.policy.effects": "Effects Risk",
        "toolrest.timeline.approval": "AnswerOption ApprovalForm approval_form",
        "toolrest.wire.model": "Model ModelError Usage",
    },
    renamed={"AgentSession": "Conversation"},
)
__all__ = sorted(["__version__", *_NAMES.names()])
__getattr__ = _NAMES.get


def __dir__() -> list[str]:
    return __all__

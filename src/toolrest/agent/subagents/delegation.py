"""Delegation: give a session sub-agents, and make a sub-agent's session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from toolrest.agent.conversation.usage import Budget
from toolrest.agent.rest import Toolrest
from toolrest.agent.subagents.subagents import AgentCall, AgentStatus, ChildAgent, SubAgents
from toolrest.events import Event, ToolCallBegin, ToolCallEnd
from toolrest.gate.approval.request import ApprovalRequest, Approver, Review
from toolrest.tools.agents.roles import Role, narrowed, roles

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.config import Config
    from toolrest.wire.model import Model

MakeModel = Callable[["Config"], "Model"]
ROOT = "root"


def delegate(
    rest: Toolrest,
    make_model: MakeModel,
    *,
    environ: Mapping[str, str],
    shared: Model | None = None,
    depth: int = 0,
    path: str = ROOT,
) -> SubAgents | None:
    """Give this session sub-agents and the tools for them; None where settings have none.

    `make_model` makes the model of each child, with the child's settings; a model that is `shared`
    serves the children, too, but for those whose role names another one.
    """
    settings = rest.settings
    if not settings.tools.include_collab_tools or depth >= settings.agents.max_depth:
        return None

    async def open_child(child: ChildAgent) -> Conversation:
        return _session(rest, child, make_model, environ, shared, depth + 1)

    agents = SubAgents(
        open_child,
        roles(settings),
        limit=settings.agents.max_agents,
        path=path,
        emit=rest.session.bus.emit,
        make_budget=_budget,
    )
    rest.session.registry.offer("agents")
    return agents


def _budget(role: Role) -> Budget:
    return Budget(role.max_turns, role.max_tool_calls, role.max_tokens)


def _session(
    parent: Toolrest,
    child: ChildAgent,
    make_model: MakeModel,
    environ: Mapping[str, str],
    shared: Model | None,
    depth: int,
) -> Conversation:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.prompt import base_instructions

    config = _silenced(narrowed(parent.config, child.role), parent)
    rest = Toolrest(
        parent.session.files.workspace,
        config=config,
        on_ask=_asks(parent, child.path),
        env=environ,
        session_id=child.id,
        shares=parent.session.for_agent(),
    )
    for tool in parent.tools:
        if tool.group in ("user", "mcp"):
            rest.add_tool(tool, approved=tool in parent.session.registry.approved)
    agents = delegate(
        rest, make_model, environ=environ, shared=shared, depth=depth, path=child.path
    )
    rest.subscribe(_reports(parent, child))
    texts = [base_instructions(config.value), child.role.instructions or ""]
    model = shared if shared is not None and child.role.model is None else make_model(config)
    return Conversation(
        rest,
        model,
        history=child.history,
        instructions="\n\n".join(text for text in texts if text),
        agents=agents,
        owns_model=model is not shared,
        shares=parent.session.for_agent(),
    )


def _silenced(config: Config, parent: Toolrest) -> Config:
    """A child's settings with its parent's `on_ask`, for requests without an approver."""
    unasked = parent.session.approvals.unasked
    return structs.replace(config, value=config.value.replace(on_ask=unasked))


def _reports(parent: Toolrest, child: ChildAgent) -> Callable[[Event], None]:
    """A listener that tells a parent's subscribers what its child does, and the child's own."""
    emit = parent.session.bus.emit

    def report(event: Event) -> None:
        if isinstance(event, ToolCallBegin | ToolCallEnd):
            ended = isinstance(event, ToolCallEnd)
            arguments = "" if isinstance(event, ToolCallEnd) else event.arguments
            emit(
                AgentCall(
                    agent_id=child.id,
                    path=child.path,
                    tool=event.tool,
                    arguments=arguments,
                    ended=ended,
                )
            )
        elif isinstance(event, AgentCall | AgentStatus):
            emit(copy(event))

    return report


def _asks(parent: Toolrest, path: str) -> Approver:
    """An approver that passes a child's requests to its parent's, with the child's path."""

    async def ask(request: ApprovalRequest) -> Review | None:
        tagged = request if request.agent else replace(request, agent=path)
        return await parent.session.approvals.review(tagged)

    return ask

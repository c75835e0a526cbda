"""Tools for sub-agents: start one, send it a message, wait for it, close it, open it again.

What they do is the session's business; these tools check what the model sent and pass it on.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from toolrest.answer import Answer
from toolrest.errors import RespondToModel
from toolrest.gate.context import Context
from toolrest.gate.decision.decide import Decision
from toolrest.gate.tool.args_class import Parameters, param
from toolrest.gate.tool.tool import ExecItem, Tool
from toolrest.items import Group, ToolOutput
from toolrest.policy.effects import Effects
from toolrest.tools.agents import events
from toolrest.tools.agents.events import Pair, reporting
from toolrest.tools.agents.roles import roles

if TYPE_CHECKING:
    from toolrest.gate.session import Ground

Status: TypeAlias = "str | dict[str, str | None]"
"""`"running"`, `{"completed": "last message"}` and the others of the contract."""

DEFAULT_WAIT_MS = 30_000
SHORTEST_WAIT_MS = 10_000
LONGEST_WAIT_MS = 300_000
FINAL_WORDS = ("shutdown", "not_found")


def is_final(status: Status) -> bool:
    """Whether an agent with this status will do nothing more by itself."""
    return isinstance(status, dict) or status in FINAL_WORDS


class SubAgentControl(Protocol):
    """The sub-agents of a session, as these tools use them (`Context.agents`)."""

    @property
    def roles(self) -> Mapping[str, str]:
        """Every role with its description."""

    async def spawn(self, message: str, role: str) -> str:
        """Start an agent and return its id."""

    async def send(self, agent_id: str, message: str, *, interrupt: bool) -> str:
        """Send an agent a message and return the id of the submission."""

    async def wait(
        self, ids: Sequence[str], seconds: float
    ) -> tuple[dict[str, Status], dict[str, Any]]:
        """Wait until one agent is final; returns all statuses, and what stopped agents left."""

    async def close(self, agent_id: str) -> Status:
        """End an agent and all it runs; returns its status before that."""

    async def resume(self, agent_id: str) -> Status:
        """Open a closed agent again and return its status."""


class Collab(Tool):
    """Base class of the five sub-agent tools."""

    group: Group = "agents"
    exec_item: ExecItem = ""
    small_window = False
    needs = ("include_collab_tools",)
    offered_when = ("session:agents",)
    capability = "agents/message"
    pair: Pair

    def decide(self, args: Any, effects: Effects, ctx: Context) -> Decision | None:
        """Allow it without approval: every call of the sub-agent is decided like its parent's.

        The modes that ask about anything above a read ask about this, too.
        """
        if ctx.session.approval_policy in ("auto", "strict"):
            return None
        return Decision(Answer.ALLOW, "agents.judged_by_call")


class SpawnAgent(Collab):
    """`spawn_agent`: start a sub-agent with a task."""

    name = "spawn_agent"
    capability = "agents"
    pair = (events.CollabAgentSpawnBegin, events.CollabAgentSpawnEnd)
    # The agent's own calls pass the gate one by one, inside this session's limits.
    typical = Effects(calls=("agent",), exclusive=False, confined=True)

    def __init__(self, roles: Mapping[str, str]) -> None:
        listed = "; ".join(f"{name}: {words}" for name, words in roles.items())
        self.description = (
            "Start another agent on a task of its own and go on at once. It works in the same "
            "folder under this session's limits and does not see your conversation, so put "
            "all it needs into the message. Returns its id for wait, send_input and close_agent. "
            f"Kinds of agents: {listed}."
        )

    @classmethod
    def build(cls, ground: Ground) -> Tool:
        """With the roles of the session."""
        return cls({name: role.description for name, role in roles(ground.settings).items()})

    class Args(Parameters, extra="ignore"):
        """Parameters."""

        message: str = param(description="The whole task, for an agent that knows nothing yet.")
        agent_type: str | None = param(
            default=None, description="Which kind of agent; the default one if left out."
        )

    async def run(self, args: Args, ctx: Context) -> str:
        """Start the agent."""
        _check_message(args.message)
        role = args.agent_type or "default"
        role = "default" if role == "general" else role
        if role not in ctx.session.agents.roles:
            known = ", ".join(ctx.session.agents.roles)
            raise RespondToModel(f"unknown agent_type '{role}'; there are {known}")
        with reporting(ctx, self.pair, prompt=args.message) as end:
            agent_id = await ctx.session.agents.spawn(args.message, role)
            end.receivers, end.statuses = (agent_id,), {agent_id: "running"}
        return _dumps({"agent_id": agent_id})


class SendInput(Collab):
    """`send_input`: send a message to a sub-agent."""

    name = "send_input"
    pair = (events.CollabAgentInteractionBegin, events.CollabAgentInteractionEnd)
    description = (
        "Give an agent that you started more to do. If it is working, it hears this before its "
        "next step; with interrupt it drops what it does and turns to this at once."
    )
    typical = Effects(calls=("agent",), exclusive=False, confined=True)

    class Args(Parameters, extra="ignore"):
        """Parameters."""

        id: str = param(description="The agent's id.")
        message: str = param(description="What it is to do or to know.")
        interrupt: bool = param(default=False, description="Stop what it is doing first.")

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Messages to one agent arrive in the order they were sent."""
        return Effects(
            calls=("agent",), exclusive=False, confined=True, serial=(f"agent:{args.id}",)
        )

    async def run(self, args: Args, ctx: Context) -> str:
        """Send the message."""
        agent_id = _checked_id(args.id)
        _check_message(args.message)
        with reporting(ctx, self.pair, (agent_id,), args.message) as end:
            sent = await ctx.session.agents.send(agent_id, args.message, interrupt=args.interrupt)
            end.statuses = {agent_id: "running"}
        return _dumps({"submission_id": sent})


class Wait(Collab):
    """`wait`: wait for sub-agents."""

    name = "wait"
    pair = (events.CollabWaitingBegin, events.CollabWaitingEnd)
    description = (
        "Wait until one of these agents is done, failed or closed, and read what became of it. "
        "Prefer one long wait to many short ones."
    )
    typical = Effects.none()
    polling = True
    timeout = LONGEST_WAIT_MS / 1000 + 30

    class Args(Parameters, extra="ignore"):
        """Parameters."""

        ids: list[str] = param(description="The agents' ids; the first to be done ends the wait.")
        timeout_ms: int | None = param(
            default=None,
            description=(
                f"How long to wait at most: {DEFAULT_WAIT_MS} if left out, at least "
                f"{SHORTEST_WAIT_MS}, at most {LONGEST_WAIT_MS}."
            ),
        )

    async def run(self, args: Args, ctx: Context) -> ToolOutput:
        """Wait for the first of the agents."""
        if not args.ids:
            raise RespondToModel("ids must be non-empty")
        ids = [_checked_id(agent_id) for agent_id in args.ids]
        asked = DEFAULT_WAIT_MS if args.timeout_ms is None else args.timeout_ms
        if asked <= 0:
            raise RespondToModel("timeout_ms must be greater than zero")
        seconds = min(max(asked, SHORTEST_WAIT_MS), LONGEST_WAIT_MS) / 1000
        with reporting(ctx, self.pair, tuple(ids)) as end:
            found, partial = await ctx.session.agents.wait(ids, seconds)
            end.statuses = dict(found)
        answer: dict[str, Any] = {"status": found, "timed_out": not found}
        if partial:
            answer["partial"] = partial
        return ToolOutput(_dumps(answer), success=None, structured=answer)


class OneAgent(Collab):
    """Base class of tools that act on one sub-agent and return its status."""

    typical = Effects(serial=("agent",))

    class Args(Parameters, extra="ignore"):
        """Parameters."""

        id: str = param(description="The agent's id.")

    def effects(self, args: Args, ctx: Context) -> Effects:
        """Calls about one agent run in call order."""
        return Effects(serial=(f"agent:{args.id}",))

    async def run(self, args: Args, ctx: Context) -> str:
        """Act on the agent, with a begin and an end event."""
        agent_id = _checked_id(args.id)
        with reporting(ctx, self.pair, (agent_id,)) as end:
            status = await self.turn(agent_id, ctx)
            end.statuses = {agent_id: status}
        return _dumps({"status": status})

    async def turn(self, agent_id: str, ctx: Context) -> Status:
        """Act on the agent."""
        raise NotImplementedError


class CloseAgent(OneAgent):
    """`close_agent`: end a sub-agent."""

    name = "close_agent"
    pair = (events.CollabCloseBegin, events.CollabCloseEnd)
    description = (
        "End an agent that you no longer need, with everything it runs, and make room for "
        "another. Returns how it stood before."
    )

    async def turn(self, agent_id: str, ctx: Context) -> Status:
        """Close it."""
        status: Status = await ctx.session.agents.close(agent_id)
        return status


class ResumeAgent(OneAgent):
    """`resume_agent`: open a closed sub-agent again."""

    name = "resume_agent"
    pair = (events.CollabResumeBegin, events.CollabResumeEnd)
    description = (
        "Open an agent again that you have closed; it remembers its conversation. "
        "Then send_input gives it something to do."
    )

    async def turn(self, agent_id: str, ctx: Context) -> Status:
        """Open it."""
        status: Status = await ctx.session.agents.resume(agent_id)
        return status


def _check_message(message: str) -> None:
    if not message.strip():
        raise RespondToModel("Empty message can't be sent to an agent")


def _checked_id(agent_id: str) -> str:
    try:
        return str(uuid.UUID(agent_id))
    except ValueError:
        raise RespondToModel(
            f"invalid agent id {agent_id}: it is not one that spawn_agent returned"
        ) from None


def _dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

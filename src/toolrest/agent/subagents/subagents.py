"""Sub-agents: each is a session of its own, limited by its parent's rights.

A child works in the same folder with its parent's settings, narrowed by its role and never
widened; it asks through its parent's channel, and what it may run counts for both. It ends when
its parent does.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from toolrest.errors import RespondToModel
from toolrest.events import Event
from toolrest.items import JSONObject
from toolrest.tools.agents.collab import Status, is_final

if TYPE_CHECKING:
    from toolrest.agent.conversation.conversation import Conversation
    from toolrest.agent.conversation.result import TurnResult
    from toolrest.agent.conversation.usage import Budget
    from toolrest.tools.agents.roles import Role

CLOSE_SECONDS = 1.5
"""The time that closing waits for a child; after that it ends in the background."""


class AgentStatus(Event, kw_only=True):
    """The new status of a sub-agent."""

    type = "collab_agent_status"
    agent_id: str
    path: str
    role: str
    status: Any


class AgentCall(Event, kw_only=True):
    """A sub-agent has begun a call, or has ended it."""

    type = "collab_agent_call"
    agent_id: str
    path: str
    tool: str
    arguments: str = ""
    ended: bool = False


class ChildAgent(Struct):
    """One sub-agent, open or closed."""

    id: str
    path: str
    role: Role
    status: Status = "pending_init"
    conversation: Conversation | None = None
    history: list[JSONObject] = field(default_factory=list)
    work: asyncio.Task[None] | None = None
    partial: JSONObject | None = None
    before_close: Status = "shutdown"


Open = Callable[["ChildAgent"], Awaitable["Conversation"]]
"""Makes a child's session; it begins with the child's `history`."""


class SubAgents:
    """The sub-agents of one session. `limit` is how many may work at once."""

    def __init__(
        self,
        open_child: Open,
        roles: Mapping[str, Role],
        *,
        limit: int,
        path: str,
        emit: Callable[[Event], None],
        make_budget: Callable[[Role], Budget],
    ) -> None:
        self._open = open_child
        self._roles = roles
        self._limit = limit
        self._path = path
        self._emit = emit
        self._make_budget = make_budget
        self._children: dict[str, ChildAgent] = {}
        self._changed: list[asyncio.Future[None]] = []
        self._dying: set[asyncio.Task[Any]] = set()

    @property
    def roles(self) -> Mapping[str, str]:
        """Every role's name and what it is for."""
        return {name: role.description for name, role in self._roles.items()}

    async def aclose(self) -> None:
        """End every child; one that does not end in time goes on ending in the background."""
        await asyncio.gather(
            *(self._end(child) for child in self._children.values()), return_exceptions=True
        )
        if self._dying:
            await asyncio.wait(self._dying, timeout=CLOSE_SECONDS)

    # For the tools

    async def spawn(self, message: str, role: str) -> str:
        """Start an agent on a task; returns its id."""
        self._check_room()
        child_id = str(uuid.uuid4())
        chosen = self._roles[role]
        path = f"{self._path}/{role}-{len(self._children) + 1}"
        child = self._children[child_id] = ChildAgent(child_id, path, chosen)
        try:
            child.conversation = await self._open(child)
        except Exception as error:
            del self._children[child_id]
            raise RespondToModel(f"collab spawn failed: {error}") from error
        self._start(child, message)
        return child_id

    async def send(self, agent_id: str, message: str, *, interrupt: bool) -> str:
        """Send a message to an agent, whether it is working or not."""
        child = self._child(agent_id)
        conversation = child.conversation
        if conversation is None:
            raise RespondToModel(f"agent with id {agent_id} is closed; resume_agent opens it again")
        if interrupt and child.work is not None:
            await conversation.interrupt()
            await asyncio.wait({child.work})
        if child.work is not None:
            conversation.say(message)
        else:
            self._check_room()
            self._start(child, message)
        return str(uuid.uuid4())

    async def wait(
        self, ids: Sequence[str], seconds: float
    ) -> tuple[dict[str, Status], dict[str, Any]]:
        """Wait for the first final status; returns all statuses that are final then."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not (found := self._finals(ids)):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            await self._change(left)
        stopped = {
            agent_id: self._children[agent_id].partial
            for agent_id in found
            if agent_id in self._children and self._children[agent_id].partial is not None
        }
        return found, stopped

    async def close(self, agent_id: str) -> Status:
        """End an agent; returns its status before."""
        child = self._child(agent_id)
        status = child.status
        await self._end(child)
        return status

    async def resume(self, agent_id: str) -> Status:
        """Open a closed agent with its history; one that is open stays as it is."""
        child = self._child(agent_id)
        if child.conversation is None:
            try:
                child.conversation = await self._open(child)
            except Exception as error:
                raise RespondToModel(f"collab tool failed: {error}") from error
            self._set(child, child.before_close)
        return child.status

    # One child's life

    def _child(self, agent_id: str) -> ChildAgent:
        if agent_id not in self._children:
            raise RespondToModel(f"agent with id {agent_id} not found")
        return self._children[agent_id]

    def _check_room(self) -> None:
        working = sum(child.work is not None for child in self._children.values())
        if working >= self._limit:
            raise RespondToModel(
                f"collab spawn failed: agent thread limit reached (max {self._limit}); wait for "
                "one of them, or close it"
            )

    def _start(self, child: ChildAgent, message: str) -> None:
        child.partial = None
        self._set(child, "running")
        child.work = asyncio.ensure_future(self._work(child, message))

    async def _work(self, child: ChildAgent, message: str) -> None:
        conversation = child.conversation
        assert conversation is not None  # noqa: S101  a child that works is open
        status: Status = {"errored": "Interrupted"}
        try:
            budget = self._make_budget(child.role)
            seconds = child.role.max_seconds
            turn = asyncio.ensure_future(conversation.run(message, budget=budget))
            done, _ = await asyncio.wait({turn}, timeout=seconds)
            if not done:
                await conversation.interrupt("timeout")
            result = await turn
            status = self._outcome(child, result)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            status = {"errored": f"{type(error).__name__}: {error}"}
        finally:
            child.work = None
            if child.conversation is conversation:
                self._set(child, status)

    def _outcome(self, child: ChildAgent, result: TurnResult) -> Status:
        if result.status == "completed":
            return {"completed": result.text}
        if result.status == "budget":
            child.partial = {
                "reason": result.reason,
                "error": result.error,
                "last_message": result.text,
                "model_requests": result.turns,
                "tool_calls": result.tool_calls,
                "tokens": result.usage.total,
            }
        if result.status == "interrupted":
            return {"errored": "Interrupted"}
        return {"errored": result.error or result.reason}

    async def _end(self, child: ChildAgent) -> None:
        """Close a child; waits at most CLOSE_SECONDS."""
        conversation, child.conversation = child.conversation, None
        if conversation is None:
            return
        child.before_close = child.status if is_final(child.status) else {"errored": "Interrupted"}
        child.history = conversation.history
        self._set(child, "shutdown")
        closing = asyncio.ensure_future(self._shut(conversation, child))
        self._dying.add(closing)
        closing.add_done_callback(self._dying.discard)
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS)

    async def _shut(self, conversation: Conversation, child: ChildAgent) -> None:
        with contextlib.suppress(Exception):
            await conversation.aclose()
        child.history = conversation.history

    # Waiting for a change

    def _finals(self, ids: Sequence[str]) -> dict[str, Status]:
        known: dict[str, Status] = {
            agent_id: self._children[agent_id].status if agent_id in self._children else "not_found"
            for agent_id in ids
        }
        return {agent_id: status for agent_id, status in known.items() if is_final(status)}

    async def _change(self, seconds: float) -> None:
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.append(changed)
        await asyncio.wait({changed}, timeout=seconds)
        if changed in self._changed:
            self._changed.remove(changed)

    def _set(self, child: ChildAgent, status: Status) -> None:
        child.status = status
        self._emit(
            AgentStatus(agent_id=child.id, path=child.path, role=child.role.name, status=status)
        )
        for changed in self._changed:
            if not changed.done():
                changed.set_result(None)
        self._changed.clear()

"""Sub-agents: their cells, from the events of a living session or the outputs of a stored one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolrest.timeline.calls import arguments_of, call_title, command_of
from toolrest.timeline.cells import AgentCell, CallCell

if TYPE_CHECKING:
    from toolrest.agent.subagents.subagents import AgentCall, AgentStatus
    from toolrest.tools.agents.events import CollabBegin, CollabEnd

ROOT = "root"
_AT_WORK = ("pending_init", "running")


class Agents:
    """The sub-agents of a living session, by their ids."""

    def __init__(self) -> None:
        self._cells: dict[str, AgentCell] = {}
        self._tasks: dict[str, str] = {}

    def messaged(self, event: CollabBegin) -> None:
        """Keep the message to an agent: it is its task if that makes it work again."""
        for agent_id in event.receiver_thread_ids:
            self._tasks[agent_id] = event.prompt or ""

    def spawned(self, event: CollabEnd) -> AgentCell | None:
        """The task of the agent that was started just now."""
        cell = self._cells.get(event.receiver_thread_ids[0]) if event.receiver_thread_ids else None
        if cell is not None:
            cell.task = event.prompt or ""
        return cell

    def status(self, event: AgentStatus) -> tuple[AgentCell, bool]:
        """An agent's cell with its new status, and whether the cell is new."""
        cell = self._cells.get(event.agent_id)
        state, last = state_of(event.status)
        works = state in _AT_WORK
        is_new = cell is None or (cell.done and works)
        if cell is None or is_new:
            task = self._tasks.pop(event.agent_id, "")
            cell = AgentCell(agent_id=event.agent_id, path=event.path, task=task, time=event.time)
            self._cells[event.agent_id] = cell
        if not cell.done:  # what is done is closed, too, later on
            cell.state, cell.last, cell.done = state, last, not works
            cell.seconds = max(0.0, event.time - cell.time)
        return cell, is_new

    def call(self, event: AgentCall) -> AgentCell | None:
        """A call of an agent, as it begins or ends."""
        cell = self._cells.get(event.agent_id)
        if cell is None or cell.done:
            return None
        if event.ended:
            cell.doing = ""
            return cell
        command = command_of(event.arguments)
        title = call_title(event.tool, event.arguments)
        cell.doing = title if command is None else f"$ {command}"
        cell.calls += 1
        return cell

    def name(self, agent_id: str) -> str:
        """An agent's name; its id while it has none."""
        cell = self._cells.get(agent_id)
        return agent_id if cell is None else cell.name


def state_of(status: Any) -> tuple[str, str]:
    """An agent's status as a word and its last message."""
    if isinstance(status, dict) and len(status) == 1:
        ((state, last),) = status.items()
        return str(state), str(last or "")
    return str(status), ""


def reported_states(arguments: str, output: str) -> dict[str, tuple[str, str]]:
    """What a call's output says of sub-agents: the state and last message of each, by its id."""
    if not output.startswith(('{"agent_id":', '{"status":')):
        return {}
    value, asked = arguments_of(output), arguments_of(arguments)
    if isinstance(started := value.get("agent_id"), str):
        return {started: ("running", "")}
    status, one = value.get("status"), asked.get("id")
    if isinstance(one, str):
        return {one: state_of(status)}
    known = status if isinstance(status, dict) and isinstance(asked.get("ids"), list) else {}
    return {name: state_of(state) for name, state in known.items()}


class StoredAgents:
    """The sub-agents of a stored session: a cell when one is started, another when it is done."""

    def __init__(self) -> None:
        self._known: dict[str, AgentCell] = {}

    def take(self, call: CallCell) -> list[AgentCell]:
        """The cells that a call's output brings; the call itself is hidden behind them."""
        states = reported_states(call.arguments, call.result)
        asked = arguments_of(call.arguments)
        found = []
        for agent_id, (state, last) in states.items():
            before = self._known.get(agent_id)
            if before is None and isinstance(task := asked.get("message"), str):
                role = str(asked.get("agent_type") or "default")
                path = f"{ROOT}/{role}-{len(self._known) + 1}"
                cell = AgentCell(agent_id=agent_id, path=path, task=task, done=True)
            elif before is not None and before.state != state and not before.last:
                cell = AgentCell(
                    agent_id=agent_id,
                    path=before.path,
                    task=before.task,
                    state=state,
                    last=last,
                    done=True,
                )
            else:
                continue
            self._known[agent_id] = cell
            found.append(cell)
        call.hidden = call.hidden or bool(found)
        return found

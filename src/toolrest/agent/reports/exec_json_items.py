"""Items of `exec --json`, one for every call: commands, searches, servers, sub-agents, others."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct, field

from toolrest.answer import Answer
from toolrest.events import (
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    TerminalInteraction,
    ToolCallBegin,
    ToolCallDecision,
    ToolCallDelta,
    ToolCallEnd,
)
from toolrest.items import JSONObject
from toolrest.tools.agents.events import CollabBegin, CollabEnd

_HALF = 512 * 1024
_DENIED = ("approval_denied", "policy_denied")


class _New(Protocol):
    def __call__(self, kind: str, **fields: Any) -> JSONObject: ...


class _Output(Struct):
    """The output of a command: its first and its last half MiB."""

    head: str = ""
    tail: str = ""
    lost: int = 0

    def add(self, text: str) -> None:
        if not self.tail and len(self.head) + len(text) <= _HALF:
            self.head += text
            return
        room = max(0, _HALF - len(self.head)) if not self.tail else 0
        self.head += text[:room]
        self.tail += text[room:]
        if len(self.tail) > 2 * _HALF:
            self._cut()

    def _cut(self) -> None:
        extra = len(self.tail) - _HALF
        if extra > 0:
            self.lost += extra
            self.tail = self.tail[extra:]

    def text(self) -> str:
        self._cut()
        note = f"\n... {self.lost} characters omitted ...\n" if self.lost else ""
        return f"{self.head}{note}{self.tail}"


class _Command(Struct):
    item: JSONObject
    process_id: str | None
    output: _Output = field(default_factory=_Output)


class CallItems:
    """The items of calls: a command's goes from its start to its end, over several calls."""

    def __init__(self, new: _New, write: Callable[[str, JSONObject], None]) -> None:
        self._new = new
        self._write_item = write
        self._by_call: dict[str, _Command] = {}
        self._by_process: dict[str, _Command] = {}
        self._arguments: dict[str, str] = {}
        self._others: dict[str, JSONObject] = {}
        self._begun: dict[str, ToolCallBegin] = {}
        self._finished: dict[str, list[JSONObject]] = {}
        """Finished items by their calls, whose outputs are not written down yet."""
        self._itemised: set[str] = set()
        """Calls that have an item, by their own events."""

    def itemised(self, call_id: str) -> None:
        """Record that a call has its item."""
        self._itemised.add(call_id)

    def hold(self, call_id: str, item: JSONObject) -> None:
        """Keep a finished item until its call has ended."""
        self._finished.setdefault(call_id, []).append(item)

    def __call__(self, event: Event) -> None:
        """Take any other event of the session."""
        if isinstance(event, ToolCallDelta):
            if event.call_id in self._by_call:
                self._by_call[event.call_id].output.add(event.text)
        elif isinstance(event, ToolCallEnd):
            self._end(event)
        elif isinstance(event, ToolCallBegin):
            self._begun[event.call_id] = event
            if event.exec_item == "command_execution":
                self._arguments[event.call_id] = event.arguments
                self._typing(event)
            elif event.exec_item == "tool_call":
                self._start_call(event)
        elif isinstance(event, ToolCallDecision):
            self._decision(event)
        elif isinstance(event, ExecCommandEnd):
            self._ended(event)
        elif isinstance(event, TerminalInteraction):
            pass
        else:
            self._by_name(event)

    def command(self, event: ExecCommandBegin, line: str) -> None:
        """Start the item of a program."""
        self.itemised(event.call_id)
        if event.call_id in self._by_call:
            return  # the same call, once more outside the sandbox
        item = self._new(
            "command_execution",
            command=line,
            aggregated_output="",
            exit_code=None,
            status="in_progress",
        )
        found = self._by_call[event.call_id] = _Command(item, event.process_id)
        if event.process_id is not None:
            self._by_process[event.process_id] = found
        self._write_item("started", item)

    def _typing(self, event: ToolCallBegin) -> None:
        """Assign a call on a running command to that command's item."""
        if not self._by_process:
            return
        values = _values(event.arguments)
        session = values.get("session_id") if isinstance(values, dict) else None
        found = self._by_process.get(str(session))
        if found is not None:
            self._by_call[event.call_id] = found
            self.itemised(event.call_id)

    def _end(self, event: ToolCallEnd) -> None:
        self._arguments.pop(event.call_id, None)
        for item in self._finished.pop(event.call_id, ()):
            lost = {"status": "failed"} if event.failure == "fatal" and "status" in item else {}
            self._write_item("completed", item | lost)
        begun = self._begun.pop(event.call_id, None)
        planned = begun is not None and begun.exec_item == "todo_list" and event.failure is None
        if begun is not None and event.call_id not in self._itemised and not planned:
            # Neither the tool nor the decision had an item for it.
            self._start_call(begun)
        self._itemised.discard(event.call_id)
        if event.call_id in self._others:
            self._end_call(event)
        found = self._by_call.pop(event.call_id, None)
        if found is None or (event.exit_code is None and event.failure is None):
            if found is not None and found.process_id is None:
                self._finish(found, None, "failed")
            return
        status = "completed" if event.exit_code == 0 and event.failure is None else "failed"
        self._finish(found, event.exit_code, status)

    def _ended(self, event: ExecCommandEnd) -> None:
        """Finish the item of a command that ended after its call."""
        found = self._by_process.get(event.process_id or "")
        if found is not None and event.call_id not in self._by_call:
            found.output = _Output()
            found.output.add(event.aggregated_output)
            self._finish(found, event.exit_code, event.status)

    def _finish(self, found: _Command, code: int | None, status: str) -> None:
        if found.item["status"] != "in_progress":
            return
        if found.process_id is not None:
            self._by_process.pop(found.process_id, None)
        found.item["aggregated_output"] = found.output.text()
        found.item["exit_code"] = code
        found.item["status"] = status
        self._write_item("completed", found.item)

    def _decision(self, event: ToolCallDecision) -> None:
        """Write a denied command as declined."""
        if event.verdict != Answer.DENY or event.call_id not in self._arguments:
            return
        line = _command_line(self._arguments.pop(event.call_id))
        if line is None or event.call_id in self._by_call:
            return
        item = self._new(
            "command_execution", command=line, aggregated_output="", exit_code=None,
            status="declined",
        )  # fmt: skip
        self.itemised(event.call_id)
        self._write_item("started", item | {"status": "in_progress"})
        self._write_item("completed", item)

    def _by_name(self, event: Event) -> None:
        """Take an event by its type's name: MCP calls, web searches, sub-agents."""
        if event.type == "mcp_tool_call_begin":
            self._mcp_begin(event)
        elif event.type == "mcp_tool_call_end":
            self._mcp_end(event)
        elif event.type == "web_search_end":
            query = str(getattr(event, "query", ""))
            action = getattr(event, "action", None) or {"type": "search", "query": query}
            call_id = str(getattr(event, "call_id", ""))
            self.itemised(call_id)
            self.hold(call_id, self._new("web_search", query=query, action=action))
        elif event.type.startswith("collab_"):
            self._collab(event)

    def _mcp_begin(self, event: Any) -> None:
        call = event.invocation
        self.itemised(event.call_id)
        item = self._others[event.call_id] = self._new(
            "mcp_tool_call",
            server=call.get("server", ""),
            tool=call.get("tool", ""),
            arguments=call.get("arguments"),
            result=None,
            error=None,
            status="in_progress",
        )
        self._write_item("started", item)

    def _start_call(self, event: ToolCallBegin) -> None:
        """Start the item of a call that Codex has no item for."""
        self.itemised(event.call_id)
        item = self._others[event.call_id] = self._new(
            "tool_call", tool=event.tool, arguments=_values(event.arguments), status="in_progress"
        )
        self._write_item("started", item)

    def _end_call(self, event: ToolCallEnd) -> None:
        item = self._others.pop(event.call_id)
        if event.failure is None and event.success is not False:
            item["output"] = event.output
            item["status"] = "completed"
        else:
            item["error"] = {"message": event.output}
            item["status"] = "declined" if event.failure in _DENIED else "failed"
        self._write_item("completed", item)

    def _mcp_end(self, event: Any) -> None:
        item = self._others.pop(event.call_id, None)
        if item is None:
            return
        from toolrest.gate.output import mcp_result  # few runs call another server

        outcome = event.result if isinstance(event.result, dict) else {}
        answer = outcome.get("Ok")
        read = mcp_result.read(answer) if isinstance(answer, dict) else None
        if read is not None and not read.failed:
            item["result"] = {"content": read.content, "structured_content": read.structured}
            item["status"] = "completed"
        else:
            error = outcome.get("Err", answer)
            item["error"] = {"message": error if isinstance(error, str) else json.dumps(error)}
            item["status"] = "failed"
        self.hold(event.call_id, item)

    def _collab(self, event: Event) -> None:
        if isinstance(event, CollabEnd):
            item = self._others.pop(event.call_id, None)
            if item is not None:
                item["receiver_thread_ids"] = list(event.receiver_thread_ids)
                item["agents_states"] = {
                    agent: _state(status) for agent, status in event.statuses.items()
                }
                item["status"] = "completed" if event.success else "failed"
                self.hold(event.call_id, item)
        elif isinstance(event, CollabBegin):
            self.itemised(event.call_id)
            item = self._others[event.call_id] = self._new(
                "collab_tool_call",
                tool=event.tool,
                sender_thread_id=event.sender_thread_id,
                receiver_thread_ids=list(event.receiver_thread_ids),
                prompt=event.prompt,
                agents_states={},
                status="in_progress",
            )
            self._write_item("started", item)

    def close(self) -> None:
        """Finish all open items as failed when the turn is over."""
        running = {id(found): found for found in self._by_process.values()}
        running |= {id(found): found for found in self._by_call.values()}
        for found in running.values():
            self._finish(found, None, "failed")
        for items in self._finished.values():
            for item in items:
                self._write_item("completed", item)
        self._finished.clear()
        for item in self._others.values():
            self._write_item("completed", item | {"status": "failed"})
        for table in (self._by_call, self._by_process, self._others, self._arguments):
            table.clear()
        self._begun.clear()
        self._itemised.clear()


def _state(status: Any) -> JSONObject:
    """An agent's status as its name and message."""
    if isinstance(status, dict) and len(status) == 1:
        ((name, message),) = status.items()
        return {"status": name, "message": message}
    return {"status": status, "message": None}


def _values(arguments: str) -> Any:
    """The arguments of a call; a freeform call's stay text, and so do those nested too deeply."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _command_line(arguments: str) -> str | None:
    values = _values(arguments)
    line = values.get("cmd", values.get("command")) if isinstance(values, dict) else None
    if isinstance(line, list):
        return shlex.join(map(str, line))
    return line if isinstance(line, str) else None

"""LangChain and LangGraph: tools that run behind the gate, with approvals as interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from langchain_core.tools import BaseTool
from langgraph.config import get_config
from langgraph.types import interrupt
from pydantic import PrivateAttr

from toolrest.gate.approval.pending import PendingApproval
from toolrest.gate.approval.request import Review, read_answer
from toolrest.integrations.gated_calls import (
    FrameworkCall,
    GatedCalls,
    OfferedTool,
    call_text,
    shown,
)
from toolrest.items import Text, ToolOutput

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest

_CALL_ID: ContextVar[str | None] = ContextVar("toolrest_call_id", default=None)
_MOST_KEPT = 1000
_Key: TypeAlias = tuple[str, str, str]
"""A call: the graph's task, the call's id, its tool and arguments."""
_Result: TypeAlias = "ToolOutput | PendingApproval"


def tools(rest: Toolrest) -> list[BaseTool]:
    """The tools of a `Toolrest` for LangChain and LangGraph; they are asynchronous.

    ```python
    async with Toolrest(".", tools=["files", "shell"], on_ask="defer") as rest:
        node = ToolNode(tools(rest))
    ```

    With `on_ask="defer"` a call that needs approval interrupts the graph. The interrupt's value
    says what the call would do; the answer names its id, so that no answer reaches another call:
    `Command(resume={interrupt.id: {interrupt.value["id"]: "approved"}})`, or `"denied"`. Outside a
    graph it is not run, nor is a call without an id: the graph could not tell it from another one.
    """
    session = _Session(rest)
    return [GatedTool(session, tool) for tool in session.calls.offered()]


class _Session:
    """What the tools of one `Toolrest` share: its calls, and those of tasks under way.

    A graph runs a task again from its start after an interrupt. A call beside the one that was
    asked about is not made a second time: it has its output by then, or is still running, because
    the interrupt does not end it.
    """

    def __init__(self, rest: Toolrest) -> None:
        self.calls = GatedCalls(rest)
        self._made: dict[_Key, asyncio.Task[_Result]] = {}

    async def output(self, tool: str, arguments: Mapping[str, Any]) -> ToolOutput:
        task, given = _task(), _CALL_ID.get()
        call = FrameworkCall(given or f"langchain-{uuid4().hex}", tool, arguments)
        if task is None or given is None:
            return await self.calls.settled(await self.calls.call(call))
        key = (task, call.id, call_text(call))
        made = self._made.get(key) or self._make(key, self._held_or_made(call))
        result = await made
        if isinstance(result, PendingApproval):
            review = _review(result)
            if self._made.get(key) is made:
                self._make(key, self.calls.resume(call, review.answer, review.note))
            result = await self._made[key]
        return await self.calls.settled(result)

    async def _held_or_made(self, call: FrameworkCall) -> _Result:
        return await self.calls.held(call) or await self.calls.call(call)

    def _make(self, key: _Key, step: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        def forget_if_failed(done: asyncio.Task[_Result]) -> None:
            if (done.cancelled() or done.exception()) and self._made.get(key) is done:
                del self._made[key]

        made = self._made[key] = asyncio.ensure_future(step)
        made.add_done_callback(forget_if_failed)
        if len(self._made) > _MOST_KEPT:
            del self._made[next(iter(self._made))]
        return made


class GatedTool(BaseTool):
    """A tool of a `Toolrest`."""

    _session: _Session = PrivateAttr()

    def __init__(self, session: _Session, tool: OfferedTool) -> None:
        super().__init__(name=tool.name, description=tool.description, args_schema=tool.schema)
        self._session = session

    async def arun(self, *args: Any, tool_call_id: str | None = None, **kwargs: Any) -> Any:
        """Run a call, under the id that the model gave it."""
        token = _CALL_ID.set(tool_call_id)
        try:
            return await super().arun(*args, tool_call_id=tool_call_id, **kwargs)
        finally:
            _CALL_ID.reset(token)

    async def _arun(self, /, **arguments: Any) -> Any:
        return _content(await self._session.output(self.name, arguments))

    def _run(self, /, **arguments: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke or astream")


def _task() -> str | None:
    """The graph's task that is running, the same when it runs again; None outside a graph."""
    try:
        found: str | None = get_config().get("configurable", {}).get("checkpoint_ns")
    except RuntimeError:
        return None
    return found or None


def _review(pending: PendingApproval) -> Review:
    """The answer to this very request; answers to others are left for them."""
    while True:
        given = interrupt(shown(pending))  # raises, unless the graph was resumed with a value
        if isinstance(given, Mapping) and pending.id in given:
            review = read_answer(given[pending.id])
            if review is not None:
                return review


def _content(output: ToolOutput) -> Any:
    if isinstance(output.content, str):
        return output.content
    return [
        {"type": "text", "text": part.text}
        if isinstance(part, Text)
        else {"type": "image_url", "image_url": {"url": part.url}}
        for part in output.content
    ]

"""LangChain and LangGraph: tools that run behind the gate, with approvals as interrupts."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
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
    not_approved,
    shown,
)
from toolrest.items import Text, ToolOutput

if TYPE_CHECKING:
    from toolrest.agent.rest import Toolrest

_CALL_ID: ContextVar[str | None] = ContextVar("toolrest_call_id", default=None)
_MOST_KEPT = 1000


def tools(rest: Toolrest) -> list[BaseTool]:
    """The tools of a `Toolrest` for LangChain and LangGraph; they are asynchronous.

    ```python
    async with Toolrest(".", tools=["files", "shell"], on_ask="defer") as rest:
        node = ToolNode(tools(rest))
    ```

    With `on_ask="defer"` a call that needs approval interrupts the graph. The interrupt's value
    says what the call would do; the answer names its id, so that no answer reaches another call:
    `Command(resume={value["id"]: "approved"})`, or `"denied"`. Outside a graph it is not run.
    """
    session = _Session(rest)
    return [GatedTool(session, tool) for tool in session.calls.offered()]


class _Session:
    """What the tools of one `Toolrest` share: its calls, and the outputs of tasks under way.

    A graph runs a task again from its start after an interrupt: a call that has its output by
    then, beside the one that was asked about, is not made a second time.
    """

    def __init__(self, rest: Toolrest) -> None:
        self.calls = GatedCalls(rest)
        self._outputs: dict[tuple[str, str, str], ToolOutput] = {}

    async def output(self, call: FrameworkCall) -> ToolOutput:
        task = _task()
        if task is None:
            result = await self.calls.call(call)
            return not_approved(result) if isinstance(result, PendingApproval) else result
        key = (task, call.id, call.tool)
        if key not in self._outputs:
            self._outputs[key] = await self._settled(call)
            if len(self._outputs) > _MOST_KEPT:
                del self._outputs[next(iter(self._outputs))]
        return self._outputs[key]

    async def _settled(self, call: FrameworkCall) -> ToolOutput:
        result = self.calls.held(call) or await self.calls.call(call)
        if isinstance(result, PendingApproval):
            review = _review(result)
            result = await self.calls.resume(call, review.answer, review.note)
        return not_approved(result) if isinstance(result, PendingApproval) else result


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
        call_id = _CALL_ID.get() or f"langchain-{uuid4().hex}"
        return _content(await self._session.output(FrameworkCall(call_id, self.name, arguments)))

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

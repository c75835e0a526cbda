"""Dynamic tools: registered with a name and a schema, run by the client of the session.

A call becomes an event (or a callback), and waits for the answer. The client runs the
tool and may refuse; modes that ask about everything ask here, too.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from toolrest.answer import Answer
from toolrest.errors import Failure, RespondToModel, ToolDefinitionError
from toolrest.events import DynamicToolCallRequest
from toolrest.gate.context import Context
from toolrest.gate.decision.decide import Decision
from toolrest.gate.schema.for_wire import normalise
from toolrest.gate.tool import arguments
from toolrest.gate.tool.registry import Registry
from toolrest.gate.tool.tool import Tool
from toolrest.items import Content, Group, Image, JSONObject, Text, ToolOutput
from toolrest.policy.effects import Effects

CANCELLED = "dynamic tool call was cancelled before receiving a response"
_ASKING = ("untrusted", "auto", "strict")


class DynamicCall(Struct, frozen=True):
    """A model's call of a dynamic tool; the arguments are any JSON value."""

    call_id: str
    turn_id: str
    tool: str
    arguments: Any


DynamicAnswer: TypeAlias = Any
"""Text, or `{output, success}`, or `{contentItems, success}` with inputText and inputImage."""
OnDynamicCall: TypeAlias = Callable[[DynamicCall], "DynamicAnswer | Awaitable[DynamicAnswer]"]


class DynamicCalls:
    """The calls that wait for an answer, by call id."""

    def __init__(self, handler: OnDynamicCall | None = None) -> None:
        self.handler = handler
        self._waiting: dict[str, asyncio.Future[DynamicAnswer]] = {}

    def respond(self, call_id: str, answer: DynamicAnswer) -> None:
        """Answer a call; KeyError when none of this id waits."""
        future = self._waiting.get(call_id)
        if future is None or future.done():
            raise KeyError(f"no dynamic tool call with the id {call_id} waits for an answer")
        # The answer may come from another thread than the session's.
        future.get_loop().call_soon_threadsafe(_settle, future, answer)

    def close(self) -> None:
        """Cancel the calls that still wait."""
        for future in self._waiting.values():
            future.cancel()

    async def answer(self, call: DynamicCall, announce: Callable[[], None]) -> DynamicAnswer:
        """Wait for the client's answer; `announce` emits the request."""
        if self.handler is not None:
            announce()
            answer = self.handler(call)
            return await answer if inspect.isawaitable(answer) else answer
        future = self._waiting[call.call_id] = asyncio.get_running_loop().create_future()
        try:
            announce()
            await asyncio.wait({future})
            if future.cancelled():
                raise RespondToModel(CANCELLED, kind="aborted")
            return future.result()
        finally:
            self._waiting.pop(call.call_id, None)


def _settle(future: asyncio.Future[DynamicAnswer], answer: DynamicAnswer) -> None:
    if not future.done():
        future.set_result(answer)


class DynamicTool(Tool):
    """A tool that the client runs. It runs alone and is mutating unless it says otherwise."""

    group: Group = "user"

    def __init__(self, spec: Mapping[str, Any], calls: DynamicCalls) -> None:
        self.name = _name(spec.get("name"))
        self.description = str(spec.get("description") or "")
        self._schema = _schema(spec, self.name)
        self._calls = calls
        self.typical = Effects(calls=(self.name,), exclusive=True)

    @property
    def parameters(self) -> JSONObject:
        """The client's own schema."""
        return self._schema

    def decode(self, raw: str | Mapping[str, Any]) -> arguments.Decoded:
        """Accept any JSON value: the client checks it."""
        try:
            return arguments.Decoded(json.loads(arguments.as_json_text(raw)))
        except (ValueError, RecursionError) as error:
            raise arguments.invalid([f"not JSON: {error}"], ()) from None

    def aborted_text(self, seconds: float) -> str:
        """The message when the client did not answer in time."""
        return CANCELLED

    def decide(self, args: Any, effects: Effects, ctx: Context) -> Decision | None:
        """Allow it, as the client may refuse to run it; modes that ask about everything ask."""
        if ctx.session.approval_policy in _ASKING:
            return None
        return Decision(Answer.ALLOW, "dynamic.client", "the client runs it")

    async def run(self, args: Any, ctx: Context) -> ToolOutput:
        """Pass the call to the client and wait for its answer."""
        call = DynamicCall(ctx.call_id, ctx.turn_id, self.name, args)
        event = DynamicToolCallRequest(
            call_id=ctx.call_id, tool=self.name, arguments=ctx.redact_json(args)
        )
        return as_output(await self._calls.answer(call, lambda: ctx.emit(event)), self.name)


def add_dynamic_tools(
    registry: Registry, specs: Iterable[Mapping[str, Any]], calls: DynamicCalls
) -> list[Tool]:
    """The client's tools, checked as a whole: ToolDefinitionError before any is registered.

    One that has a built-in tool's name takes its place.
    """
    made: dict[str, Tool] = {}
    for spec in specs:
        tool = DynamicTool(spec, calls)
        known = registry.get(tool.name)
        if known is not None and known.mcp is not None:
            raise ToolDefinitionError(f"dynamic tool name conflicts with MCP tool: {tool.name}")
        if tool.name in made:
            raise ToolDefinitionError(f"duplicate dynamic tool name: {tool.name}")
        made[tool.name] = tool
    return list(made.values())


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ToolDefinitionError("dynamic tool name must not be empty")
    if name != name.strip():
        raise ToolDefinitionError(f"dynamic tool name has leading/trailing whitespace: {name}")
    if name == "mcp" or name.startswith("mcp__"):
        raise ToolDefinitionError(f"dynamic tool name is reserved: {name}")
    return name


def _schema(spec: Mapping[str, Any], name: str) -> JSONObject:
    given = spec.get("inputSchema", spec.get("input_schema", {"type": "object"}))
    try:
        if not isinstance(given, Mapping):
            raise ToolDefinitionError("it is not an object")
        schema: JSONObject = normalise(dict(given), tool=name)
        if schema.get("type") != "object":
            raise ToolDefinitionError("its type is not object")
    except ToolDefinitionError as error:
        raise ToolDefinitionError(
            f"dynamic tool input schema is not supported for {name}: {error}"
        ) from None
    schema.setdefault("properties", {})
    return schema


def as_output(answer: DynamicAnswer, tool: str) -> ToolOutput:
    """A client's answer as an output; RespondToModel when it is none."""
    if isinstance(answer, ToolOutput):
        return answer
    if isinstance(answer, str):
        return ToolOutput(answer)
    if isinstance(answer, Mapping):
        content = _content(answer)
        if content is not None:
            output = ToolOutput(content, success=answer.get("success", True) is not False)
            if not output.success:
                output.failure = Failure("execution_failed", output.text)
            return output
    raise RespondToModel(f"the client's answer to {tool} is not valid")


def _content(answer: Mapping[str, Any]) -> str | list[Content] | None:
    if isinstance(answer.get("output"), str):
        return str(answer["output"])
    items = answer.get("contentItems", answer.get("content_items"))
    if not isinstance(items, list):
        return None
    parts: list[Content] = []
    for item in items:
        if isinstance(item, Mapping) and isinstance(item.get("text"), str):
            parts.append(Text(item["text"]))
        elif isinstance(item, Mapping) and isinstance(item.get("imageUrl"), str):
            parts.append(Image(item["imageUrl"]))
        else:
            return None
    return parts

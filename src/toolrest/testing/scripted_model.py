"""A scripted model without a server: it replies what its script holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from msgspec.structs import replace

from toolrest.items import JSONObject, Wire
from toolrest.testing.script import (
    Call,
    Cut,
    Fail,
    Freeform,
    Garbage,
    Incomplete,
    LocalShell,
    Part,
    Pause,
    Player,
    Raw,
    Reply,
    Say,
    Script,
    Think,
)
from toolrest.wire.model import (
    Completed,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelErrorKind,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    Usage,
)

_KINDS: Final[dict[str, ModelErrorKind]] = {
    "context_length_exceeded": "context_window",
    "insufficient_quota": "quota",
    "invalid_prompt": "invalid_request",
    "rate_limit_exceeded": "rate_limit",
    "server_is_overloaded": "overloaded",
    "overloaded_error": "overloaded",
    "usage_limit_reached": "usage_limit",
}
_STATUSES: Final[dict[int, ModelErrorKind]] = {
    400: "invalid_request",
    401: "auth",
    403: "auth",
    404: "not_found",
    429: "rate_limit",
    529: "overloaded",
}


class ScriptedModel:
    """A `Model` that replies from a script, without a server; `requests` holds its requests.

    `wire` only sets the form in which tools are rendered. Each request's items are copied as they
    were when it was made.
    """

    def __init__(
        self,
        script: Script,
        *,
        wire: Wire = "responses",
        name: str = "scripted",
        context_window: int | None = 128_000,
        stream_max_retries: int = 2,
    ) -> None:
        self.wire: Wire = wire
        self.name = name
        self.context_window = context_window
        self.stream_max_retries = stream_max_retries
        self.requests: list[ModelRequest] = []
        self.closed = False
        self._player = Player(script)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """The next reply of the script, event by event."""
        self.requests.append(_copy(request))
        reply = self._player.next(request)
        if reply is None:
            played = self._player.played
            raise ModelError("script", f"the script is over: it has {played} replies")
        for position, part in enumerate(reply.parts):
            async for event in self._part(position, part):
                yield event
            # A real stream lets others run between its events.
            await asyncio.sleep(0)
        yield Completed(f"resp_{self._player.played}", _usage(reply), reply.end_turn)

    async def aclose(self) -> None:
        """Note that the model was closed."""
        self.closed = True

    async def _part(self, position: int, part: Part) -> AsyncIterator[ModelEvent]:
        if isinstance(part, Fail | Cut | Incomplete | Garbage):
            raise failure(part)
        if isinstance(part, Pause):
            await asyncio.sleep(part.seconds)
        else:
            item = self._item(position, part)
            yield ItemStarted(item["type"], item.get("id", ""))
            if isinstance(part, Say):
                for piece in pieces(part.text, part.chunks):
                    yield TextDelta(piece)
                    if part.seconds:
                        await asyncio.sleep(part.seconds / part.chunks)
            elif isinstance(part, Think):
                yield ReasoningDelta(part.text)
            yield ItemDone(item)

    def _item(
        self, position: int, part: Say | Think | Call | Freeform | LocalShell | Raw
    ) -> JSONObject:
        if isinstance(part, Raw):
            return part.item
        if isinstance(part, Say | Think):
            return item_of(part, "")
        return item_of(part, self._player.call_id(position, part.call_id))


def item_of(part: Say | Think | Call | Freeform | LocalShell, call_id: str) -> JSONObject:
    """The part as a Responses item."""
    if isinstance(part, Say):
        content = [{"type": "output_text", "text": part.text}]
        return {"type": "message", "role": "assistant", "content": content}
    if isinstance(part, Think):
        summary = [{"type": "summary_text", "text": part.text}]
        return {"type": "reasoning", "summary": summary, "encrypted_content": part.signature}
    if isinstance(part, Call):
        arguments = part.arguments_text
        called = {"name": part.name, "arguments": arguments, "call_id": call_id}
        return {"type": "function_call", **called}
    if isinstance(part, Freeform):
        called = {"call_id": call_id, "name": part.name, "input": part.input}
        return {"type": "custom_tool_call", "status": "completed", **called}
    action: JSONObject = {"type": "exec", "command": list(part.command), "env": {}}
    if part.timeout_ms is not None:
        action["timeout_ms"] = part.timeout_ms
    if part.workdir is not None:
        action["working_directory"] = part.workdir
    shell: JSONObject = {"call_id": call_id, "status": "completed", "action": action}
    return {"type": "local_shell_call", **shell}


def failure(part: Fail | Cut | Incomplete | Garbage) -> ModelError:
    """The error that a client would make of this fault."""
    if isinstance(part, Cut):
        return ModelError("stream", "stream closed before response.completed")
    if isinstance(part, Garbage):
        message = f"cannot read an event of the server's answer: {part.text}"
        return ModelError("stream", message)
    if isinstance(part, Incomplete):
        message = f"Incomplete response returned, reason: {part.reason}"
        return ModelError("incomplete", message)
    kind = _KINDS.get(part.code) or _STATUSES.get(part.status, "server")
    wait = float(part.retry_after) if isinstance(part.retry_after, int | float) else None
    return ModelError(kind, part.message, status=part.status, retry_after=wait)


def pieces(text: str, count: int) -> list[str]:
    """The text in that many parts, none of them empty."""
    size = max(1, -(-len(text) // max(1, count)))
    return [text[at : at + size] for at in range(0, len(text), size)]


def _usage(reply: Reply) -> Usage:
    return reply.usage or Usage(input=100, output=10, total=110)


def _copy(request: ModelRequest) -> ModelRequest:
    return replace(request, items=list(request.items), tools=list(request.tools))

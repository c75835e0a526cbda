"""Replies as frames of a stream: what the three APIs would send for the same parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from toolrest.items import JSONObject
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
    Think,
)
from toolrest.testing.scripted_model import pieces
from toolrest.wire.model import Usage

Frame: TypeAlias = bytes | Pause | Cut
"""Bytes to send, a silence, or the end of the connection."""

_STOPS: Final = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def frame(value: Any, event: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


def paced(part: Part, frames: Iterable[Frame]) -> Iterator[Frame]:
    """The deltas of a part, with the silences between them."""
    for each in frames:
        yield each
        if isinstance(part, Say) and part.seconds:
            yield Pause(part.seconds / part.chunks)


class OutgoingReply(Struct):
    """A reply that is being sent: the numbers of its parts, and its usage."""

    reply: Reply
    player: Player
    model: str
    signed: set[tuple[str, str]] = field(default_factory=set)

    @property
    def usage(self) -> Usage:
        """The usage that the reply reports."""
        return self.reply.usage or Usage(input=100, output=10, total=110)

    @property
    def response_id(self) -> str:
        """The response's id, the same for the same place in the script."""
        return f"resp_{self.player.played}"

    def function(self, position: int, part: Call | Freeform | LocalShell) -> tuple[str, str, str]:
        """A call as id, name and arguments, for APIs that have functions only."""
        call_id = self.player.call_id(position, part.call_id)
        if isinstance(part, Call):
            return call_id, part.name, part.arguments_text
        if isinstance(part, Freeform):
            return call_id, part.name, json.dumps({"input": part.input})
        arguments: JSONObject = {"command": list(part.command)}
        if part.timeout_ms is not None:
            arguments["timeout_ms"] = part.timeout_ms
        if part.workdir is not None:
            arguments["workdir"] = part.workdir
        return call_id, "shell", json.dumps(arguments)


def chat(outgoing: OutgoingReply) -> Iterator[Frame]:
    """The reply on Chat Completions."""
    head = {
        "id": outgoing.response_id,
        "object": "chat.completion.chunk",
        "created": 0,
        "model": outgoing.model,
    }

    def chunk(delta: JSONObject, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return frame({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    calls = 0
    for position, part in enumerate(outgoing.reply.parts):
        if isinstance(part, Pause | Cut):
            yield part
        elif isinstance(part, Garbage):
            yield f"data: {part.text}\n\n".encode()
        elif isinstance(part, Fail):
            yield frame({"error": {"code": part.code, "message": part.message}})
            return
        elif isinstance(part, Incomplete):
            yield chunk({}, "length" if part.reason == "max_output_tokens" else part.reason)
            yield b"data: [DONE]\n\n"
            return
        elif isinstance(part, Say):
            texts = pieces(part.text, part.chunks)
            yield from paced(part, (chunk({"content": text}) for text in texts))
        elif isinstance(part, Think):
            yield chunk({"reasoning_content": part.text})
        elif not isinstance(part, Raw):
            yield from _chat_call(outgoing.function(position, part), calls, chunk)
            calls += 1
    yield chunk({}, "tool_calls" if calls else "stop")
    yield frame({**head, "choices": [], "usage": chat_usage(outgoing.usage)})
    yield b"data: [DONE]\n\n"


def _chat_call(
    call: tuple[str, str, str], index: int, chunk: Callable[[JSONObject], bytes]
) -> Iterator[Frame]:
    call_id, name, arguments = call
    function = {"name": name, "arguments": ""}
    first = {"index": index, "id": call_id, "type": "function", "function": function}
    yield chunk({"tool_calls": [first]})
    for text in pieces(arguments, 2):
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": text}}]})


def chat_usage(usage: Usage) -> JSONObject:
    """The tokens as Chat Completions counts them."""
    return {
        "prompt_tokens": usage.input,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input},
        "completion_tokens": usage.output,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_output},
        "total_tokens": usage.total,
    }


def anthropic(outgoing: OutgoingReply) -> Iterator[Frame]:
    """The reply on Anthropic's Messages API."""
    usage = outgoing.usage
    message = {
        "id": outgoing.response_id,
        "type": "message",
        "role": "assistant",
        "model": outgoing.model,
        "content": [],
        "usage": {
            "input_tokens": usage.input - usage.cached_input - usage.cache_write_input,
            "cache_read_input_tokens": usage.cached_input,
            "cache_creation_input_tokens": usage.cache_write_input,
            "output_tokens": 1,
        },
    }
    yield _event({"type": "message_start", "message": message})
    yield _event({"type": "ping"})
    stop = "end_turn"
    for position, part in enumerate(outgoing.reply.parts):
        if isinstance(part, Pause | Cut):
            yield part
        elif isinstance(part, Garbage):
            yield f"event: content_block_delta\ndata: {part.text}\n\n".encode()
        elif isinstance(part, Fail):
            error = {"type": part.code, "message": part.message}
            yield _event({"type": "error", "error": error})
            return
        elif isinstance(part, Incomplete):
            stop = _STOPS.get(part.reason, part.reason)
            break
        elif not isinstance(part, Raw):
            yield from _anthropic_block(outgoing, position, part)
            stop = "tool_use" if isinstance(part, Call | Freeform | LocalShell) else stop
    if outgoing.reply.end_turn is False:
        stop = "pause_turn"
    tail: JSONObject = {"type": "message_delta", "delta": {"stop_reason": stop}}
    yield _event({**tail, "usage": {"output_tokens": usage.output}})
    yield _event({"type": "message_stop"})


def _anthropic_block(
    outgoing: OutgoingReply, index: int, part: Say | Think | Call | Freeform | LocalShell
) -> Iterator[Frame]:
    deltas: list[JSONObject]
    if isinstance(part, Say):
        block: JSONObject = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": t} for t in pieces(part.text, part.chunks)]
    elif isinstance(part, Think):
        outgoing.signed.add((part.text, part.signature))
        block = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": part.text}]
        deltas.append({"type": "signature_delta", "signature": part.signature})
    else:
        call_id, name, arguments = outgoing.function(index, part)
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": t} for t in pieces(arguments, 2)]
    place = {"index": index}
    yield _event({"type": "content_block_start", **place, "content_block": block})
    events = (_event({"type": "content_block_delta", **place, "delta": d}) for d in deltas)
    yield from paced(part, events)
    yield _event({"type": "content_block_stop", **place})


def _event(value: JSONObject) -> bytes:
    return frame(value, str(value["type"]))

"""A reply as the frames of a stream: what the three APIs would send for the same parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from toolrest.items import JSONObject
from toolrest.testing.script import (
    Call,
    Cut,
    Fail,
    Freeform,
    Garbage,
    Incomplete,
    LocalShell,
    Pause,
    Player,
    Raw,
    Reply,
    Say,
    Think,
)
from toolrest.testing.scripted_model import item_of, pieces
from toolrest.wire.model import Usage

Frame: TypeAlias = bytes | Pause | Cut
"""Bytes to send, a silence, or the end of the connection."""

_STOPS: Final = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def frame(value: Any, event: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(value, ensure_ascii=False)}\n\n".encode()


@dataclass(slots=True)
class Telling:
    """A reply on its way out: how its parts are numbered, and what it costs."""

    reply: Reply
    player: Player
    model: str
    signed: set[tuple[str, str]] = field(default_factory=set)

    @property
    def usage(self) -> Usage:
        """What the answer says it used."""
        return self.reply.usage or Usage(input=100, output=10, total=110)

    @property
    def response_id(self) -> str:
        """The same for the same place in the script."""
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


def responses(telling: Telling) -> Iterator[Frame]:
    """The reply on the Responses API."""
    response: JSONObject = {"id": telling.response_id, "object": "response"}
    response["model"] = telling.model
    yield frame({"type": "response.created", "response": {**response, "status": "in_progress"}})
    for position, part in enumerate(telling.reply.parts):
        if isinstance(part, Pause | Cut):
            yield part
        elif isinstance(part, Garbage):
            yield f"data: {part.text}\n\n".encode()
        elif isinstance(part, Fail):
            failed = {"code": part.code, "message": part.message}
            body = {**response, "status": "failed", "error": failed}
            yield frame({"type": "response.failed", "response": body})
            return
        elif isinstance(part, Incomplete):
            details = {"reason": part.reason}
            body = {**response, "status": "incomplete", "incomplete_details": details}
            yield frame({"type": "response.incomplete", "response": body})
            return
        else:
            yield from _response_item(telling, position, part)
    done = {**response, "status": "completed", "usage": _responses_usage(telling.usage)}
    if telling.reply.end_turn is not None:
        done["end_turn"] = telling.reply.end_turn
    yield frame({"type": "response.completed", "response": done})


def _response_item(
    telling: Telling, position: int, part: Say | Think | Call | Freeform | LocalShell | Raw
) -> Iterator[Frame]:
    if isinstance(part, Raw):
        item = part.item
    else:
        given = "" if isinstance(part, Say | Think) else part.call_id
        item = item_of(part, telling.player.call_id(position, given))
        item = {**item, "id": f"item_{telling.player.played}_{position}"}
    place = {"output_index": position}
    started = {key: item[key] for key in ("type", "id", "call_id", "name", "role") if key in item}
    yield frame({"type": "response.output_item.added", **place, "item": started})
    delta = {"item_id": item.get("id", ""), **place}
    if isinstance(part, Say):
        for text in pieces(part.text, part.chunks):
            yield frame({"type": "response.output_text.delta", **delta, "delta": text})
    elif isinstance(part, Think):
        kind = "response.reasoning_summary_text.delta"
        yield frame({"type": kind, **delta, "summary_index": 0, "delta": part.text})
    elif isinstance(part, Call):
        for text in pieces(part.arguments_text, 2):
            kind = "response.function_call_arguments.delta"
            yield frame({"type": kind, **delta, "delta": text})
    yield frame({"type": "response.output_item.done", **place, "item": item})


def _responses_usage(usage: Usage) -> JSONObject:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached_input},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_output},
        "total_tokens": usage.total,
    }


def chat(telling: Telling) -> Iterator[Frame]:
    """The reply on Chat Completions."""
    head = {"id": telling.response_id, "object": "chat.completion.chunk", "model": telling.model}

    def chunk(delta: JSONObject, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return frame({**head, "choices": [choice]})

    yield chunk({"role": "assistant", "content": ""})
    calls = 0
    for position, part in enumerate(telling.reply.parts):
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
            yield from (chunk({"content": text}) for text in pieces(part.text, part.chunks))
        elif isinstance(part, Think):
            yield chunk({"reasoning_content": part.text})
        elif not isinstance(part, Raw):
            yield from _chat_call(telling.function(position, part), calls, chunk)
            calls += 1
    yield chunk({}, "tool_calls" if calls else "stop")
    yield frame({**head, "choices": [], "usage": _chat_usage(telling.usage)})
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


def _chat_usage(usage: Usage) -> JSONObject:
    return {
        "prompt_tokens": usage.input,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input},
        "completion_tokens": usage.output,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_output},
        "total_tokens": usage.total,
    }


def anthropic(telling: Telling) -> Iterator[Frame]:
    """The reply on Anthropic's Messages API."""
    usage = telling.usage
    message = {
        "id": telling.response_id,
        "type": "message",
        "role": "assistant",
        "model": telling.model,
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
    for position, part in enumerate(telling.reply.parts):
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
            yield from _anthropic_block(telling, position, part)
            stop = "tool_use" if isinstance(part, Call | Freeform | LocalShell) else stop
    if telling.reply.end_turn is False:
        stop = "pause_turn"
    tail: JSONObject = {"type": "message_delta", "delta": {"stop_reason": stop}}
    yield _event({**tail, "usage": {"output_tokens": usage.output}})
    yield _event({"type": "message_stop"})


def _anthropic_block(
    telling: Telling, index: int, part: Say | Think | Call | Freeform | LocalShell
) -> Iterator[Frame]:
    deltas: list[JSONObject]
    if isinstance(part, Say):
        block: JSONObject = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": t} for t in pieces(part.text, part.chunks)]
    elif isinstance(part, Think):
        telling.signed.add((part.text, part.signature))
        block = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [{"type": "thinking_delta", "thinking": part.text}]
        deltas.append({"type": "signature_delta", "signature": part.signature})
    else:
        call_id, name, arguments = telling.function(index, part)
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": t} for t in pieces(arguments, 2)]
    place = {"index": index}
    yield _event({"type": "content_block_start", **place, "content_block": block})
    for delta in deltas:
        yield _event({"type": "content_block_delta", **place, "delta": delta})
    yield _event({"type": "content_block_stop", **place})


def _event(value: JSONObject) -> bytes:
    return frame(value, str(value["type"]))

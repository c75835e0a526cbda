"""Replies as one document, for clients that do not stream. Faults inside end it early."""

from __future__ import annotations

import json

from toolrest.items import JSONObject
from toolrest.testing.frames import OutgoingReply, chat_usage
from toolrest.testing.frames_responses import responses
from toolrest.testing.script import Call, Cut, Fail, Freeform, Incomplete, LocalShell, Say, Think


def document(wire: str, outgoing: OutgoingReply) -> JSONObject | None:
    """The whole answer; None where the connection would have been cut."""
    if any(isinstance(part, Cut | Fail) for part in outgoing.reply.parts):
        return None
    if wire == "responses":
        return _response(outgoing)
    return _completion(outgoing) if wire == "chat" else _message(outgoing)


def _response(outgoing: OutgoingReply) -> JSONObject | None:
    frames = [item for item in responses(outgoing) if isinstance(item, bytes)]
    data = frames[-1].partition(b"data: ")[2]
    response: JSONObject = json.loads(data)["response"]
    return response


def _completion(outgoing: OutgoingReply) -> JSONObject:
    parts = outgoing.reply.parts
    calls = [
        {"id": own, "type": "function", "function": {"name": name, "arguments": arguments}}
        for own, name, arguments in (
            outgoing.function(position, part)
            for position, part in enumerate(parts)
            if isinstance(part, Call | Freeform | LocalShell)
        )
    ]
    text = "".join(part.text for part in parts if isinstance(part, Say))
    message: JSONObject = {"role": "assistant", "content": text or None}
    thought = "".join(part.text for part in parts if isinstance(part, Think))
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    finish = "tool_calls" if calls else "stop"
    if any(isinstance(part, Incomplete) for part in parts):
        finish = "length"
    return {
        "id": outgoing.response_id,
        "object": "chat.completion",
        "created": 0,
        "model": outgoing.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": chat_usage(outgoing.usage),
    }


def _message(outgoing: OutgoingReply) -> JSONObject:
    content: list[JSONObject] = []
    stop = "end_turn"
    for position, part in enumerate(outgoing.reply.parts):
        if isinstance(part, Say):
            content.append({"type": "text", "text": part.text})
        elif isinstance(part, Think):
            outgoing.signed.add((part.text, part.signature))
            signed = {"thinking": part.text, "signature": part.signature}
            content.append({"type": "thinking", **signed})
        elif isinstance(part, Call | Freeform | LocalShell):
            own, name, arguments = outgoing.function(position, part)
            made = {"id": own, "name": name, "input": json.loads(arguments)}
            content.append({"type": "tool_use", **made})
            stop = "tool_use"
        elif isinstance(part, Incomplete):
            stop = "max_tokens"
    usage = outgoing.usage
    return {
        "id": outgoing.response_id,
        "type": "message",
        "role": "assistant",
        "model": outgoing.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": usage.input, "output_tokens": usage.output},
    }

"""Replies as the Responses API streams them, with all that its own clients look for."""

from __future__ import annotations

from collections.abc import Iterator

from toolrest.items import JSONObject
from toolrest.testing.frames import Frame, OutgoingReply, frame, paced
from toolrest.testing.script import (
    Call,
    Cut,
    Fail,
    Freeform,
    Garbage,
    Incomplete,
    LocalShell,
    Pause,
    Raw,
    Say,
    Think,
)
from toolrest.testing.scripted_model import item_of, pieces
from toolrest.wire.model import Usage


def responses(outgoing: OutgoingReply) -> Iterator[Frame]:
    """The reply on the Responses API."""
    return _Stream(outgoing).frames()


class _Stream:
    def __init__(self, outgoing: OutgoingReply) -> None:
        self._telling = outgoing
        self._number = -1
        self._output: list[JSONObject] = []

    def frames(self) -> Iterator[Frame]:
        outgoing = self._telling
        for kind in ("created", "in_progress"):
            yield self._event(kind, response=self._response("in_progress"))
        for position, part in enumerate(outgoing.reply.parts):
            if isinstance(part, Pause | Cut):
                yield part
            elif isinstance(part, Garbage):
                yield f"data: {part.text}\n\n".encode()
            elif isinstance(part, Fail):
                failed = {"code": part.code, "message": part.message}
                yield self._event("failed", response=self._response("failed", error=failed))
                return
            elif isinstance(part, Incomplete):
                more = {"incomplete_details": {"reason": part.reason}}
                yield self._event("incomplete", response=self._response("incomplete", **more))
                return
            else:
                yield from self._item(position, part)
        done = self._response("completed", usage=_usage(outgoing.usage))
        if outgoing.reply.end_turn is not None:
            done["end_turn"] = outgoing.reply.end_turn
        yield self._event("completed", response=done)

    def _event(self, kind: str, **fields: object) -> bytes:
        self._number += 1
        name = f"response.{kind}"
        return frame({"type": name, "sequence_number": self._number, **fields}, name)

    def _response(self, status: str, **more: object) -> JSONObject:
        return {
            "id": self._telling.response_id,
            "object": "response",
            "created_at": 0,
            "status": status,
            "model": self._telling.model,
            "output": list(self._output),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "error": None,
            "incomplete_details": None,
            **more,
        }

    def _item(
        self, position: int, part: Say | Think | Call | Freeform | LocalShell | Raw
    ) -> Iterator[Frame]:
        item = part.item if isinstance(part, Raw) else self._made(position, part)
        place = {"output_index": len(self._output)}
        empty = {"content": [], "summary": [], "arguments": "", "input": ""}
        started = {key: empty.get(key, value) for key, value in item.items()}
        yield self._event("output_item.added", **place, item={**started, "status": "in_progress"})
        within = {**place, "item_id": item.get("id", "")}
        if isinstance(part, Say):
            yield from self._text(part, within)
        elif isinstance(part, Think):
            yield from self._summary(part, within)
        elif isinstance(part, Call):
            text = part.arguments_text
            for piece in pieces(text, 2):
                yield self._event("function_call_arguments.delta", **within, delta=piece)
            ended = {**within, "arguments": text, "name": part.name}
            yield self._event("function_call_arguments.done", **ended)
        elif isinstance(part, Freeform):
            yield self._event("custom_tool_call_input.delta", **within, delta=part.input)
            yield self._event("custom_tool_call_input.done", **within, input=part.input)
        self._output.append(item)
        yield self._event("output_item.done", **place, item=item)

    def _made(self, position: int, part: Say | Think | Call | Freeform | LocalShell) -> JSONObject:
        player = self._telling.player
        given = "" if isinstance(part, Say | Think) else part.call_id
        item = item_of(part, player.call_id(position, given))
        item = {"id": f"item_{player.played}_{position}", **item}
        if isinstance(part, Say):
            item["content"] = [{**item["content"][0], "annotations": []}]
        return item if isinstance(part, Think) else {**item, "status": "completed"}

    def _text(self, part: Say, within: JSONObject) -> Iterator[Frame]:
        within = {**within, "content_index": 0}
        content: JSONObject = {"type": "output_text", "annotations": []}
        yield self._event("content_part.added", **within, part={**content, "text": ""})
        texts = pieces(part.text, part.chunks)
        deltas = (self._event("output_text.delta", **within, delta=t, logprobs=[]) for t in texts)
        yield from paced(part, deltas)
        yield self._event("output_text.done", **within, text=part.text, logprobs=[])
        yield self._event("content_part.done", **within, part={**content, "text": part.text})

    def _summary(self, part: Think, within: JSONObject) -> Iterator[Frame]:
        within = {**within, "summary_index": 0}
        content = {"type": "summary_text", "text": ""}
        yield self._event("reasoning_summary_part.added", **within, part=content)
        yield self._event("reasoning_summary_text.delta", **within, delta=part.text)
        yield self._event("reasoning_summary_text.done", **within, text=part.text)
        whole = {**content, "text": part.text}
        yield self._event("reasoning_summary_part.done", **within, part=whole)


def _usage(usage: Usage) -> JSONObject:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input,
            "cache_write_tokens": usage.cache_write_input,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_output},
        "total_tokens": usage.total,
    }

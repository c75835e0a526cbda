"""The parser of Anthropic's stream of blocks into items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from toolrest.items import JSONObject
from toolrest.wire.apis.chat_calls import is_object
from toolrest.wire.apis.responses import count
from toolrest.wire.http.error_bodies import error_in_stream
from toolrest.wire.items.json_text import dumps
from toolrest.wire.items.others import OtherKeys
from toolrest.wire.items.repair_json import repaired
from toolrest.wire.model import (
    FILTER_CUT,
    LIMIT_CUT,
    ArgumentsDelta,
    Completed,
    CutCall,
    ItemDone,
    ItemStarted,
    ModelError,
    ModelEvent,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from toolrest.wire.reply import Parser

_KINDS = {"text": "message", "tool_use": "function_call", "thinking": "reasoning"}
_KINDS["redacted_thinking"] = "reasoning"
_KEYS = frozenset({"type", "id", "name", "input", "text"})
_CUTS = {
    "max_tokens": LIMIT_CUT,
    "model_context_window_exceeded": LIMIT_CUT,
    "refusal": FILTER_CUT,
}


class _Block(Struct):
    kind: str
    head: JSONObject
    pieces: list[str] = field(default_factory=list)
    signature: str = ""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class AnthropicParser(Parser):
    """A parser that makes an item of each block.

    A call without whole arguments waits for the next block or the end: the reply may be cut there.
    """

    def __init__(
        self,
        schemas: Mapping[str, Mapping[str, Any]],
        *,
        repairs: bool = True,
        place: str = "",
    ) -> None:
        self._others = OtherKeys(place)
        self._schemas = schemas
        self._repairs = repairs
        self._open: dict[int, _Block] = {}
        self._doubtful: list[_Block] = []
        self._id = ""
        self._usage: JSONObject = {}
        self._stop: str | None = None

    def take(self, event: JSONObject) -> Iterator[ModelEvent]:
        """The events of one server-sent event."""
        kind = event.get("type")
        if kind == "content_block_delta":
            yield from self._delta(event)
        elif kind == "content_block_start":
            yield from self._start(event)
        elif kind == "content_block_stop":
            block = self._open.pop(_index(event), None)
            if block is not None:
                yield from self._finished(block)
        elif kind == "message_start":
            message = event.get("message")
            if isinstance(message, dict):
                self._id = str(message.get("id") or "")
                self._count(message.get("usage"))
        elif kind == "message_delta":
            self._stopped(event.get("delta"))
            self._count(event.get("usage"))
        elif kind == "message_stop":
            yield from self._complete()
        elif kind == "error" or (kind is None and event.get("error")):
            raise error_in_stream(event, "anthropic")

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _stopped(self, delta: Any) -> None:
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        self._stop = reason if isinstance(reason, str) else self._stop
        self.is_ending = self._stop is not None

    def _start(self, event: JSONObject) -> Iterator[ModelEvent]:
        head: Any = event.get("content_block")
        if not _is_block(head):
            return
        self.goes_on()
        yield from self._release()
        block = self._open[_index(event)] = _Block(head["type"], head)
        call_id = head.get("id")
        yield ItemStarted(_KINDS[block.kind], call_id if isinstance(call_id, str) else "")
        begun = head.get(block.kind)
        if isinstance(begun, str) and begun:
            yield from self._more(block, begun)

    def _delta(self, event: JSONObject) -> Iterator[ModelEvent]:
        block, delta = self._open.get(_index(event)), event.get("delta")
        if block is None or not isinstance(delta, dict):
            return
        signature = delta.get("signature")
        if isinstance(signature, str):
            block.signature += signature
        for key in ("text", "partial_json", "thinking"):
            piece = delta.get(key)
            if isinstance(piece, str) and piece:
                yield from self._more(block, piece)

    def _more(self, block: _Block, piece: str) -> Iterator[ModelEvent]:
        self.goes_on()
        block.pieces.append(piece)
        if block.kind == "text":
            yield TextDelta(piece)
        elif block.kind == "thinking":
            yield ReasoningDelta(piece)
        else:
            yield ArgumentsDelta(str(block.head.get("id")), str(block.head.get("name")), piece)

    def _finished(self, block: _Block) -> Iterator[ModelEvent]:
        if block.kind == "tool_use":
            if self._stop in _CUTS or not is_object(block.text):
                self._doubtful.append(block)
            else:
                yield ItemDone(self._call(block))
        elif block.kind == "text":
            if block.text:
                content = [{"type": "output_text", "text": block.text}]
                item: JSONObject = {"type": "message", "role": "assistant", "content": content}
                yield ItemDone(self._with_others(item, block))
        else:
            yield ItemDone(_reasoning(block))

    def _release(self) -> Iterator[ModelEvent]:
        doubtful, self._doubtful = self._doubtful, []
        cut = _CUTS.get(self._stop or "")
        for block in doubtful:
            item = self._call(block)
            yield ItemDone(item) if cut is None else CutCall(item, cut)

    def _call(self, block: _Block) -> JSONObject:
        given = block.head.get("input")
        text = block.text or (dumps(given) if isinstance(given, dict) else "{}")
        name = block.head.get("name")
        made = repaired(text, self._schemas.get(str(name))) if self._repairs else []
        item: JSONObject = {
            "type": "function_call",
            "name": name if isinstance(name, str) else "",
            "arguments": made[0].text if len(made) == 1 else text,
            "call_id": str(block.head.get("id") or ""),
        }
        if len(made) == 1 and made[0].notes:
            item["repaired"] = list(made[0].notes)
        return self._with_others(item, block)

    def _with_others(self, item: JSONObject, block: _Block) -> JSONObject:
        kept: JSONObject = {}
        self._others.add(kept, block.head, _KEYS)
        return self._others.on(item, block=kept)

    def _complete(self) -> Iterator[ModelEvent]:
        while self._open:  # some gateways do not say where a block ends
            yield from self._finished(self._open.pop(min(self._open)))
        yield from self._release()
        if self._stop == "max_tokens":
            message = "Incomplete response returned, reason: max_tokens"
            raise ModelError("incomplete", message, usage=_usage(self._usage))
        if self._stop == "model_context_window_exceeded":
            raise ModelError("context_window", "the answer was cut: the context window is full")
        if self._stop == "refusal":
            message = "the model declined to answer (stop_reason refusal)"
            raise ModelError("policy", message, usage=_usage(self._usage))
        again = False if self._stop == "pause_turn" else None
        self.completed = Completed(self._id, _usage(self._usage), again)

    def end(self) -> Iterator[ModelEvent]:
        """Complete a stream that has its stop reason; ModelError for any other, as it was cut."""
        if self._stop is None:
            raise ModelError("stream", "stream closed before message_stop")
        yield from self._complete()

    def whole(self, document: JSONObject) -> Iterator[ModelEvent]:
        """The events of a message that was not streamed."""
        content = document.get("content")
        if document.get("type") == "error" or not isinstance(content, list):
            raise error_in_stream(document, "anthropic")
        self._stopped(document)
        for head in content:
            if _is_block(head):
                yield from self._release()
                block = _Block(head["type"], head)
                begun = head.get(block.kind)
                if isinstance(begun, str):
                    block.pieces.append(begun)
                block.signature = str(head.get("signature") or "")
                yield from self._finished(block)
        self._id = str(document.get("id") or "")
        self._count(document.get("usage"))
        yield from self._complete()


def _is_block(head: Any) -> bool:
    kind = head.get("type") if isinstance(head, dict) else None
    return isinstance(kind, str) and kind in _KINDS


def _index(event: JSONObject) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


def _reasoning(block: _Block) -> JSONObject:
    """The reasoning item, with the signature that must go back unchanged."""
    if block.kind == "redacted_thinking":
        data = block.head.get("data")
        origin: JSONObject = {"redacted": data if isinstance(data, str) else ""}
        return {"type": "reasoning", "summary": [], "anthropic": origin}
    signature = block.signature or block.head.get("signature") or ""
    summary = [{"type": "summary_text", "text": block.text}]
    return {"type": "reasoning", "summary": summary, "anthropic": {"signature": signature}}


def _usage(value: JSONObject) -> Usage | None:
    if not value:
        return None
    read = count(value, "cache_read_input_tokens")
    written = count(value, "cache_creation_input_tokens")
    inputs = count(value, "input_tokens") + read + written
    outputs = count(value, "output_tokens")
    return Usage(
        input=inputs,
        cached_input=read,
        output=outputs,
        total=inputs + outputs,
        cache_write_input=written,
    )

"""The parser of a Chat Completions stream: deltas to items, in the order a reader expects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field

from toolrest.items import JSONObject
from toolrest.wire.apis.calls_in_text import text_calls
from toolrest.wire.apis.chat_calls import CallAssembler, Slot, is_object
from toolrest.wire.apis.responses import count
from toolrest.wire.http.error_bodies import error_in_stream
from toolrest.wire.items.others import OTHERS, OtherKeys, is_empty
from toolrest.wire.items.pairing import printable_id
from toolrest.wire.items.repair_json import Arguments, repaired
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
    Notice,
    ReasoningDelta,
    TextDelta,
    Usage,
)
from toolrest.wire.provider import Profile
from toolrest.wire.reply import Parser

REASONING: Final = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
_KNOWN: Final = frozenset(
    {
        *REASONING,
        *("role", "content", "tool_calls", "function_call", "refusal", "audio", "annotations"),
        *("reasoning_details", "thinking_blocks"),
    }
)
_JOINED: Final = frozenset({"text", "summary", "data"})
_CUTS: Final = {"length": LIMIT_CUT, "content_filter": FILTER_CUT}
_THINK: Final = ("<think>", "</think>")


class Endings(Struct):
    """How the streams of one server end, learned from those that were read.

    A stream without a finish reason and without `[DONE]` was cut, unless the server has never sent
    either: the second one in a row is believed.
    """

    are_marked: bool = False
    unmarked: int = 0


class _Part(Struct):
    """One of OpenRouter's `reasoning_details`, in pieces."""

    last: JSONObject = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def whole(self) -> JSONObject:
        return self.last | {key: "".join(pieces) for key, pieces in self.texts.items()}


class ChatParser(Parser):
    """The parser of chunks; items come at the end, when nothing can be added to them."""

    def __init__(
        self,
        profile: Profile,
        schemas: Mapping[str, Mapping[str, Any]],
        *,
        limited: bool = False,
        endings: Endings | None = None,
        place: str = "",
    ) -> None:
        self._profile = profile
        self._schemas = schemas
        self._limited = limited
        self._endings = Endings() if endings is None else endings
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._field = ""
        self._details: dict[str, _Part] = {}
        self._blocks: list[JSONObject] = []
        self._others = OtherKeys(place)
        self._calls = CallAssembler(self._others)
        self._finish: str | None = None
        self._id = ""
        self._usage: Usage | None = None

    def feed(self, data: bytes) -> Iterator[ModelEvent]:
        """The events of one server-sent event; `[DONE]` is the end."""
        if data.strip() in (b"[DONE]", b"DONE"):
            self._endings.are_marked = True
            return self._done()
        return super().feed(data)

    def take(self, event: JSONObject) -> Iterator[ModelEvent]:
        """The events of one chunk."""
        if event.get("error") or _is_failure(event):
            raise error_in_stream(event, "chat")
        if isinstance(event.get("id"), str):
            self._id = event["id"]
        self._usage = chat_usage(event.get("usage")) or self._usage
        choices = event.get("choices")
        for choice in choices[:1] if isinstance(choices, list) else []:
            if isinstance(choice, dict):
                yield from self._choice(choice)

    def _choice(self, choice: JSONObject) -> Iterator[ModelEvent]:
        if choice.get("error"):  # of OpenRouter, when its own upstream fails
            raise error_in_stream(choice, "chat")
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict):
            yield from self._delta(delta)
        if isinstance(message, dict):
            yield from self._message(message)
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            # Some servers send one with every chunk, or text and calls after it.
            self._finish = finish
            self.is_ending = self._endings.are_marked = True

    def _message(self, message: JSONObject) -> Iterator[ModelEvent]:
        """Take the parts of a whole message that its deltas did not have."""
        missing = {key: message[key] for key in message if key not in self._others.message}
        if self._text:
            missing.pop("content", None)
        if self._thoughts:
            missing = {key: missing[key] for key in missing if key not in REASONING}
        if self._calls.slots:
            missing.pop("tool_calls", None)
        yield from self._delta(missing)

    def _delta(self, delta: JSONObject) -> Iterator[ModelEvent]:
        yield from self._reasoning(delta)
        self._others.add(self._others.message, delta, _KNOWN)
        text = _content(delta.get("content"))
        if text:
            self.goes_on()
            if not self._text:
                yield ItemStarted("message")
            self._text.append(text)
            yield TextDelta(text)
        calls = delta.get("tool_calls")
        if calls is None and not is_empty(delta.get("function_call")):
            calls = [{"index": 0, "function": delta["function_call"]}]
        for slot, piece, is_new in self._calls.add(calls or []):
            self.goes_on()
            call_id = slot.call_id and printable_id(slot.call_id)
            if is_new:
                yield ItemStarted("function_call", call_id)
            yield ArgumentsDelta(call_id, slot.name, piece)

    def _reasoning(self, delta: JSONObject) -> Iterator[ModelEvent]:
        found = ((name, _thought(delta.get(name))) for name in REASONING)
        # Mistral's stands among the parts of the content, and is not sent back.
        for name, text in (*found, ("", _thinking(delta.get("content")))):
            if text:
                if not self._thoughts:
                    yield ItemStarted("reasoning")
                self._field = self._field or name
                self._thoughts.append(text)
                yield ReasoningDelta(text, summary=False)
                break
        details = delta.get("reasoning_details")
        for detail in details if isinstance(details, list) else []:
            if isinstance(detail, dict):
                self._detail(detail)
        blocks = delta.get("thinking_blocks")
        for block in blocks if isinstance(blocks, list) else []:
            if isinstance(block, dict):
                self._sign(block)

    def _detail(self, piece: JSONObject) -> None:
        """Add a piece of OpenRouter's reasoning to its part; Claude's signature comes last."""
        own = len(self._details) if piece.get("index") is None else ""
        part = self._details.setdefault(f"{piece.get('type')} {piece.get('index')} {own}", _Part())
        for key, value in piece.items():
            if key in _JOINED and isinstance(value, str):
                part.texts.setdefault(key, []).append(value)
            if value is not None or key not in part.last:
                part.last[key] = value

    def _sign(self, piece: JSONObject) -> None:
        """Add a piece of Anthropic's thinking, as LiteLLM sends it; its signature comes last."""
        last = self._blocks[-1] if self._blocks else {}
        if piece.get("type") != "thinking" or "thinking" not in last or last.get("signature"):
            self._blocks.append({**piece})
            return
        last["thinking"] += _thought(piece.get("thinking"))
        if piece.get("signature"):
            last["signature"] = piece["signature"]

    # The end

    def _done(self) -> Iterator[ModelEvent]:
        if self._finish is None and not (self._text or self._thoughts or self._calls.slots):
            raise ModelError("stream", "the server's answer has no message in it")
        if self._finish == "error":
            raise ModelError("stream", "the server stopped with an error")
        yield from self._flush()
        self.completed = Completed(self._id, self._usage)

    def end(self) -> Iterator[ModelEvent]:
        """Complete a stream that ended without `[DONE]`; of a cut one only whole calls count."""
        if self._finish is None:
            yield from self._unmarked_end()
        yield from self._done()

    def _unmarked_end(self) -> Iterator[ModelEvent]:
        """Nothing if this may be how the server ends a reply, else its whole calls and an error."""
        slots, endings = self._calls.slots, self._endings
        whole = [slot for slot in slots if is_object(slot.arguments)]
        if (self._text or slots) and len(whole) == len(slots) and not endings.are_marked:
            endings.unmarked += 1
            if endings.unmarked == 2:
                yield Notice(
                    "the server ends its answers without a finish reason: "
                    "a cut one cannot be told from a whole one"
                )
            if endings.unmarked > 1:
                return
        self._calls.slots = whole
        if whole:
            yield from self._flush()
        raise ModelError("stream", "stream closed before the answer was finished")

    def whole(self, document: JSONObject) -> Iterator[ModelEvent]:
        """The events of a completion that was not streamed."""
        if not isinstance(document.get("choices"), list):
            raise error_in_stream(document, "chat")
        yield from self.take(document)
        yield from self._done()

    def _flush(self) -> Iterator[ModelEvent]:
        """The items: reasoning, then text, then calls."""
        text, thought = _without_tags("".join(self._text))
        if self._thoughts or self._details or self._blocks:
            details = [part.whole for part in self._details.values()]
            origin = {"field": self._field, "details": details, "blocks": self._blocks}
            yield ItemDone(_reasoning_item("".join(self._thoughts), origin))
        elif thought:
            yield ItemDone(_reasoning_item(thought, {"field": ""}))
        text, calls = self._calls_and(text)
        message = self._others.message
        if text:
            content = [{"type": "output_text", "text": text}]
            said = {"type": "message", "role": "assistant", "content": content}
            yield ItemDone(self._others.on(said, message=message))
        elif calls:
            calls[0] = self._others.on(calls[0], **{**calls[0].get(OTHERS, {}), "message": message})
        cut = _CUTS.get(self._finish or "")
        for item in calls:
            yield ItemDone(item) if cut is None else CutCall(item, cut)
        self._check_finish()

    def _calls_and(self, text: str) -> tuple[str, list[JSONObject]]:
        """The calls, and the text without those that were in it."""
        if self._finish in _CUTS:
            return text, [
                self._made(slot, own, Arguments(slot.arguments))
                for slot, own in self._calls.named()
            ]
        if self._calls.slots or not self._profile.text_calls:
            return text, [
                item for slot, own in self._calls.named() for item in self._items(slot, own)
            ]
        found = text_calls(text, self._schemas)
        self._calls.slots = [Slot(None, "", call.name, [call.arguments]) for call in found.calls]
        named = list(self._calls.named())
        pairs = zip(named, found.calls, strict=True)
        return found.text, [
            self._made(slot, own, Arguments(call.arguments, call.notes))
            for (slot, own), call in pairs
        ]

    def _items(self, slot: Slot, call_id: str) -> Iterator[JSONObject]:
        """The call; more than one when a server ran several together."""
        text = slot.arguments
        made = repaired(text, self._schemas.get(slot.name)) if self._profile.repair else []
        for number, arguments in enumerate(made or [Arguments(text or "{}")]):
            if number == 0:
                yield self._made(slot, call_id, arguments)
            else:
                yield self._made(Slot(None, "", slot.name), f"{call_id}_{number + 1}", arguments)

    def _made(self, slot: Slot, call_id: str, arguments: Arguments) -> JSONObject:
        """The call under a short id; its own goes back to the server, as its unknown keys do."""
        short = printable_id(call_id)
        item: JSONObject = {
            "type": "function_call",
            "name": slot.name,
            "arguments": arguments.text,
            "call_id": short,
        }
        if arguments.notes:
            item["repaired"] = list(arguments.notes)
        own = call_id if short != call_id else ""
        return self._others.on(item, id=own, call=slot.others, function=slot.function_others)

    def _check_finish(self) -> None:
        if self._finish == "length":
            reason = "max_output_tokens" if self._limited else "the server's own limit"
            message = f"Incomplete response returned, reason: {reason}"
            raise ModelError("incomplete", message, usage=self._usage)
        if self._finish == "content_filter":
            message = "the server's content filter stopped the answer"
            raise ModelError("policy", message, usage=self._usage)


def _is_failure(event: JSONObject) -> bool:
    """Whether a chunk without `choices` is an error that is not called one, as vLLM's is."""
    if "choices" in event or not event.get("message"):
        return False
    return "code" in event or event.get("object") == "error"


def _content(value: Any) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _thinking(content: Any) -> str:
    """The text of the parts that are thinking, which have parts of their own."""
    parts = content if isinstance(content, list) else []
    thinking = (part.get("thinking") for part in parts if isinstance(part, dict))
    return "".join(_thought(each) or _content(each) for each in thinking)


def _thought(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("text") or value.get("content")
    return value if isinstance(value, str) else ""


def _without_tags(text: str) -> tuple[str, str]:
    """Text and the reasoning at its start, from servers that do not separate them."""
    begin, end = _THINK
    stripped = text.lstrip()
    if stripped.startswith(begin) and end in stripped:
        thought, _, rest = stripped.removeprefix(begin).partition(end)
        return rest.lstrip(), thought.strip()
    return text, ""


def _reasoning_item(text: str, origin: JSONObject) -> JSONObject:
    """The reasoning, with the fields that the server wants to get it back in."""
    content = [{"type": "reasoning_text", "text": text}]
    given = {key: value for key, value in origin.items() if value or key == "field"}
    return {"type": "reasoning", "summary": [], "content": content, "chat": given}


def chat_usage(value: Any) -> Usage | None:
    """The tokens of one completion."""
    if not isinstance(value, dict):
        return None
    inputs, outputs = count(value, "prompt_tokens"), count(value, "completion_tokens")
    read, written = value.get("prompt_tokens_details"), value.get("completion_tokens_details")
    return Usage(
        input=inputs,
        cached_input=count(read, "cached_tokens") or count(value, "prompt_cache_hit_tokens"),
        output=outputs,
        reasoning_output=count(written, "reasoning_tokens"),
        total=count(value, "total_tokens") or inputs + outputs,
    )

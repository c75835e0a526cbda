"""A history as the messages of Anthropic's API: blocks, in turns of user and assistant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from toolrest.items import LOADED_TOOLS, Content, Image, JSONObject
from toolrest.wire.items.encode import NOTHING, anthropic_block
from toolrest.wire.items.others import OTHERS, Origin
from toolrest.wire.items.pairing import is_call, is_models, is_output
from toolrest.wire.items.parts import (
    as_function,
    is_blank,
    output_parts,
    parts_of,
    text_of,
    without_images,
)

CONTINUE: Final[JSONObject] = {
    "role": "user",
    "content": [{"type": "text", "text": "Continue."}],
}
_ANYWHERE: Final = Origin()
MARK: Final = {"type": "ephemeral"}


def anthropic_messages(
    items: Sequence[JSONObject],
    *,
    images: bool = True,
    origin: Origin = _ANYWHERE,
    refers: bool = False,
) -> list[JSONObject]:
    """The messages for a stretch of paired items, as the server at `origin` takes them.

    `refers`: an output that loads tools refers to them, and they are in the request.
    """
    building = _Messages(origin, refers)
    for item in items:
        building.add(item if images else without_images(item))
    return building.made


def loaded_in(item: JSONObject) -> list[str]:
    """The names of the tools that an output brings in."""
    names = item.get(LOADED_TOOLS)
    return [each for each in names if isinstance(each, str)] if isinstance(names, list) else []


def marked(message: JSONObject) -> JSONObject:
    """The message with a cache mark on its last block."""
    *before, last = message["content"]
    return {**message, "content": [*before, {**last, "cache_control": MARK}]}


def closed(messages: list[JSONObject], before: JSONObject | None) -> list[JSONObject]:
    """The end of a history, closed by a user message: the API would continue an assistant's.

    `before` is the last message before these; without one they are the whole history, which
    must begin with a user message.
    """
    made = list(messages)
    if before is None and (not made or made[0]["role"] != "user"):
        made.insert(0, CONTINUE)
    last = made[-1] if made else before
    if last is not None and last["role"] != "user":
        made.append(CONTINUE)
    return made


class _Messages:
    def __init__(self, origin: Origin, refers: bool) -> None:
        self._origin = origin
        self._refers = refers
        self.made: list[JSONObject] = []
        self._thoughts: list[JSONObject] = []
        """Thinking that waits for a text or a call: the API refuses a message that ends with it."""

    def add(self, item: JSONObject) -> None:
        if is_models(item):
            self._models(item)
        elif is_output(item):
            loaded = loaded_in(item) if self._refers else []
            self._put("user", [_references(item, loaded) if loaded else _result(item)])
        elif not is_blank(item):
            self._put("user", _blocks(parts_of(item.get("content"))))

    def _models(self, item: JSONObject) -> None:
        if is_call(item):
            self._put("assistant", [{**self._others(item), **_tool_use(item)}])
        elif item.get("type") == "message":
            text = text_of(parts_of(item.get("content")))
            if text.strip():
                self._say({**self._others(item), "type": "text", "text": text.rstrip()})
        elif item.get("type") == "reasoning":
            self._thoughts += _thinking(item)

    def _others(self, item: JSONObject) -> JSONObject:
        return self._origin.part(item, "block") if OTHERS in item else {}

    def _say(self, block: JSONObject) -> None:
        """Add text before the calls of its message: results must follow calls at once."""
        last = self.made[-1] if self.made else None
        if last is not None and last["role"] == "assistant":
            blocks = last["content"]
            at = next((n for n, b in enumerate(blocks) if b["type"] == "tool_use"), len(blocks))
            blocks[at:at] = [*self._thought(), block]
        else:
            self._put("assistant", [block])

    def _thought(self) -> list[JSONObject]:
        thoughts, self._thoughts = self._thoughts, []
        return thoughts

    def _put(self, role: str, blocks: list[JSONObject]) -> None:
        if not blocks:
            return
        thoughts = self._thought()  # those of a reply that was cut are dropped
        blocks = [*thoughts, *blocks] if role == "assistant" else blocks
        last = self.made[-1] if self.made else None
        if last is not None and last["role"] == role:
            last["content"] += blocks
        else:
            self.made.append({"role": role, "content": blocks})


def _tool_use(item: JSONObject) -> JSONObject:
    call_id, name, arguments = as_function(item)
    return {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}


def _thinking(item: JSONObject) -> list[JSONObject]:
    """The thinking blocks that this API signed, as they came; no others go back to it."""
    origin = item.get("anthropic")
    if not isinstance(origin, dict):
        return []
    if isinstance(origin.get("redacted"), str):
        return [{"type": "redacted_thinking", "data": origin["redacted"]}]
    text = text_of(parts_of(item.get("summary")))
    return [{"type": "thinking", "thinking": text, "signature": origin.get("signature", "")}]


def _result(item: JSONObject) -> JSONObject:
    blocks = _blocks(output_parts(item))
    content: Any = blocks or NOTHING
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        content = blocks[0]["text"]
    result: JSONObject = {"type": "tool_result", "tool_use_id": item["call_id"], "content": content}
    return result | {"is_error": True} if item.get("failed") is True else result


def _references(item: JSONObject, names: list[str]) -> JSONObject:
    """The result of a search for tools; the server has their definitions, and puts them here."""
    content = [{"type": "tool_reference", "tool_name": name} for name in names]
    return {"type": "tool_result", "tool_use_id": item["call_id"], "content": content}


def _blocks(parts: list[Content]) -> list[JSONObject]:
    """The blocks without blank texts, for which the API refuses the whole request."""
    return [anthropic_block(part) for part in parts if isinstance(part, Image) or part.text.strip()]

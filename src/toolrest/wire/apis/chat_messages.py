"""A history as the messages of Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolrest.items import Content, Image, JSONObject, Text
from toolrest.wire.items.json_text import utf8
from toolrest.wire.items.others import OTHERS, Origin
from toolrest.wire.items.pairing import is_call, is_models, is_output, printable_id
from toolrest.wire.items.parts import (
    as_function,
    is_blank,
    output_parts,
    parts_of,
    text_of,
    without_images,
)
from toolrest.wire.provider import Profile

_DETAILS: Final = frozenset({"auto", "low", "high"})
_ANYWHERE: Final = Origin()
_FOLLOWS: Final = "The image follows in the next message."


def chat_messages(
    items: Sequence[JSONObject], profile: Profile, origin: Origin = _ANYWHERE
) -> list[JSONObject]:
    """The messages for a stretch of paired items, as the server at `origin` takes them."""
    building = _Messages(profile, origin)
    for item in items:
        building.add(item if profile.images else without_images(item))
    return building.finish()


class _Messages:
    def __init__(self, profile: Profile, origin: Origin) -> None:
        self._profile = profile
        self._origin = origin
        self._ids: dict[str, str] = {}
        """Ids of calls as the server gave them, by our shorter ones."""
        self._made: list[JSONObject] = []
        self._speaking: JSONObject | None = None
        self._shown: list[JSONObject] = []

    def add(self, item: JSONObject) -> None:
        if is_models(item):
            self._show()
            self._models(item)
        elif is_output(item):
            self._end()
            self._made.append(self._tool(item))
        elif not is_blank(item):
            self._end()
            self._show()
            self._other(item)

    def finish(self) -> list[JSONObject]:
        self._end()
        self._show()
        return self._made

    # The model's items: one message a group

    def _models(self, item: JSONObject) -> None:
        if self._speaking is None:
            self._speaking = {"role": "assistant", "content": None}
        speaking = self._speaking
        if OTHERS in item:
            for key, value in self._origin.part(item, "message").items():
                speaking.setdefault(key, value)
        if is_call(item):
            speaking.setdefault("tool_calls", []).append(self._call(item))
        elif item.get("type") == "message":
            text = "" if is_blank(item) else text_of(parts_of(item.get("content")))
            before = speaking["content"]
            speaking["content"] = f"{before}\n{text}" if before and text else before or text or None
        elif item.get("type") == "reasoning" and self._profile.reasoning != "never":
            self._thought(item, speaking)

    def _call(self, item: JSONObject) -> JSONObject:
        call_id, name, arguments = as_function(item)
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        if OTHERS not in item:
            return call
        given = self._origin.call_id(item)
        if given and printable_id(given) == call_id:  # else it was used before
            self._ids[call_id] = call["id"] = given
        call["function"] = {**self._origin.part(item, "function"), **function}
        return {**self._origin.part(item, "call"), **call}

    def _thought(self, item: JSONObject, speaking: JSONObject) -> None:
        """Add reasoning under the name that the server itself used."""
        origin = item.get("chat")
        if not isinstance(origin, dict):
            return
        name = origin.get("field")
        refused = self._origin.refused
        if isinstance(name, str) and name and name not in refused:
            text = text_of(parts_of(item.get("content")))
            speaking[name] = f"{speaking[name]}\n{text}" if name in speaking else text
        for key, name in (("details", "reasoning_details"), ("blocks", "thinking_blocks")):
            if isinstance(origin.get(key), list) and name not in refused:
                speaking.setdefault(name, []).extend(origin[key])

    def _end(self) -> None:
        speaking, self._speaking = self._speaking, None
        if speaking is not None and (speaking["content"] or "tool_calls" in speaking):
            self._made.append(speaking)

    # Outputs and other messages

    def _tool(self, item: JSONObject) -> JSONObject:
        parts = output_parts(item)
        images = [part for part in parts if isinstance(part, Image)]
        content: str | list[JSONObject] = text_of(parts)
        if images and self._profile.tool_images == "inline":
            content = list(map(_part, parts))
        elif images:
            # OpenAI takes images from users only; the label names the call.
            label = f"Image from the tool call {item['call_id']}:"
            self._shown += [{"type": "text", "text": label}, *map(_part, images)]
            content = content or _FOLLOWS
        call_id = self._ids.get(item["call_id"], item["call_id"])
        return {"role": "tool", "tool_call_id": call_id, "content": content}

    def _show(self) -> None:
        if self._shown:
            self._user("user", self._shown)
            self._shown = []

    def _other(self, item: JSONObject) -> None:
        role = str(item.get("role"))
        if role in ("developer", "system"):
            # Templates of local models take instructions at the start only.
            role = "developer" if self._profile.developer_role else "user"
        parts = parts_of(item.get("content"))
        has_image = any(isinstance(part, Image) for part in parts)
        self._user(role, list(map(_part, parts)) if has_image else text_of(parts))

    def _user(self, role: str, content: str | list[JSONObject]) -> None:
        last = self._made[-1] if self._made else None
        # Some templates insist that user and assistant take turns; OpenAI's own does not.
        if not self._profile.developer_role and last is not None and last["role"] == role:
            last["content"] = _together(last["content"], content)
        elif content:
            self._made.append({"role": role, "content": content})


def _together(one: str | list[JSONObject], two: str | list[JSONObject]) -> str | list[JSONObject]:
    if isinstance(one, str) and isinstance(two, str):
        return f"{one}\n\n{two}" if two else one
    return [*_listed(one), *_listed(two)]


def _listed(content: str | list[JSONObject]) -> list[JSONObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _part(part: Content) -> JSONObject:
    if isinstance(part, Text):
        return {"type": "text", "text": utf8(part.text)}
    detail = {"detail": part.detail} if part.detail in _DETAILS else {}
    return {"type": "image_url", "image_url": {"url": utf8(part.url), **detail}}

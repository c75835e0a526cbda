"""The history of a conversation as Responses items, with its size in tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolrest.agent.history.tokens import item_tokens
from toolrest.items import LOADED_TOOLS, Answered, CallItem, JSONObject, ToolOutput
from toolrest.wire.items.encode import encode
from toolrest.wire.items.json_text import dumps
from toolrest.wire.items.pairing import OUTPUT_OF, call_id_of, is_call, is_output
from toolrest.wire.items.parts import is_image

_NOT_USERS = (
    "# agents.md instructions for ",
    "<user_instructions>",
    "<skill",
    "<environment_context>",
    "<turn_aborted>",
)
IMAGE_START, IMAGE_END = "<image name=[Image #", "</image>"
"""The marks around an image of a message."""


class History:
    """Items in order; an item that was added is never changed, so it is turned to bytes once."""

    def __init__(self, items: Iterable[JSONObject] = ()) -> None:
        self.items: list[JSONObject] = []
        self.tokens = 0
        """An estimate over all items."""
        self.since_reply = 0
        """The estimate of the items since the model's last reply."""
        self._open: dict[str, JSONObject] = {}
        self._ids: set[str] = set()
        self._numbers: dict[str, int] = {}
        self.replace(items)

    def append(self, item: JSONObject, text: str | None = None) -> None:
        """Add an item; `text` is its JSON, when that is at hand."""
        text = dumps(item) if text is None else text
        size = len(text) if text.isascii() else len(text.encode())
        tokens = item_tokens(item, size)
        self.items.append(item)
        self.tokens += tokens
        self.since_reply += tokens
        call_id = call_id_of(item)
        if is_call(item):
            self._ids.add(call_id)
            self._open[call_id] = item
        elif is_output(item):
            self._open.pop(call_id, None)

    def never_again(self, call_ids: Iterable[str]) -> None:
        """Reserve the ids of calls that are no longer in the history."""
        self._ids.update(call_ids)

    def replied(self) -> None:
        """Mark all items as counted by the model's server."""
        self.since_reply = 0

    def replace(self, items: Iterable[JSONObject]) -> None:
        """Start again from these items."""
        self.items, self.tokens, self.since_reply, self._open = [], 0, 0, {}
        for item in items:
            self.append(item)

    def unused_id(self, wanted: str) -> str:
        """The id, or one like it when a call had it before: a server takes each only once."""
        wanted = wanted or "call"
        number, free = self._numbers.get(wanted, 1), wanted
        while free in self._ids:
            number += 1
            free = f"{wanted}_{number}"
        self._numbers[wanted] = number
        return free

    def open_calls(self) -> list[JSONObject]:
        """Calls that have no output yet, in order."""
        return list(self._open.values())

    def last_text(self, start: str) -> str | None:
        """The latest message that starts with this text."""
        for item in reversed(self.items):
            if item.get("type") == "message" and (text := message_text(item)).startswith(start):
                return text
        return None


_INTERRUPTED = (
    "interrupted: Toolrest stopped while this call was running. It may have taken effect in whole, "
    "in part or not at all, and it was not repeated; check before you do it again."
)


def output_item(call: JSONObject, text: str) -> JSONObject:
    """An output for a call that no tool will answer."""
    item: JSONObject = {"type": OUTPUT_OF[call["type"]], "call_id": call_id_of(call)}
    if call["type"] == "view_image_call":
        return item | {"image_data": None, "metadata": {"error": text}}
    if call["type"] == "web_search_call":
        return item | {"results": [], "error": text}
    return item | {"output": text}


def interrupted_item(call: JSONObject) -> JSONObject:
    """The output of a call that was running when Toolrest stopped."""
    return output_item(call, _INTERRUPTED)


def answered_item(call: CallItem, output: ToolOutput) -> JSONObject:
    """The item of a call's output."""
    item = encode([Answered(call, output)])[0]
    # Only the Anthropic wire sends these.
    if loaded := output.metadata.get(LOADED_TOOLS):
        item[LOADED_TOOLS] = loaded
    return item | {"failed": True} if output.failed else item


def message(role: str, *parts: str | JSONObject) -> JSONObject:
    """A message item; texts become parts of the kind that the role uses."""
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "message", "role": role, "content": content}


def message_text(item: JSONObject) -> str:
    """The text parts of a message, joined."""
    content: Any = item.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def own_text(item: JSONObject) -> str:
    """The text of a user's message as it was written, without the marks of its images."""
    content = item.get("content")
    if isinstance(content, list) and any(map(is_image, content)):
        return message_text({"content": [part for part in content if not _is_mark(part)]})
    return message_text(item)


def _is_mark(part: Any) -> bool:
    text = part.get("text") if isinstance(part, dict) else None
    return text == IMAGE_END or (isinstance(text, str) and text.startswith(IMAGE_START))


def is_user_turn(item: JSONObject) -> bool:
    """Whether this is a user's own message, not one that Toolrest adds in the user's role."""
    if item.get("type") != "message" or item.get("role") != "user":
        return False
    return not message_text(item)[:64].lower().startswith(_NOT_USERS)


def without_refused_images(items: Sequence[JSONObject]) -> list[JSONObject] | None:
    """The items without the images that a server probably refused; None without images.

    Those before the last reply were taken once, so they come second: servers have a limit for all
    images together, and a smaller one for each when there are many.
    """
    return without_images(items) or without_images(items, anywhere=True)


def without_images(
    items: Sequence[JSONObject], *, anywhere: bool = False
) -> list[JSONObject] | None:
    """The items with a text for each image since the model's last reply; None without images.

    `anywhere`: also for those before it.
    """
    kept = list(items)
    changed = False
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if item.get("type") == "message" and item.get("role") == "assistant" and not anywhere:
            break
        key = "content" if item.get("type") == "message" else "output"
        parts = item.get(key)
        if not isinstance(parts, list) or not any(is_image(part) for part in parts):
            continue
        kept[at] = item | {key: [_NO_IMAGE if is_image(part) else part for part in parts]}
        changed = True
    return kept if changed else None


_NO_IMAGE = {"type": "input_text", "text": "[image left out: the server could not read it]"}

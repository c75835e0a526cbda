"""Parts of canonical items that every wire needs: texts, images, calls as functions, outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from toolrest.items import Content, Image, JSONObject, Text
from toolrest.wire.items.json_text import dumps, utf8
from toolrest.wire.items.pairing import is_call

WIRE_NAME: Final = "wire_name"
"""Key of a call that was made by a name no API takes: that of the offered tool it meant."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")


class FunctionCallForm(NamedTuple):
    """A call in the form of the wires that have functions only."""

    call_id: str
    name: str
    arguments: str


def parts_of(value: Any) -> list[Content]:
    """The texts and images of a message's content or of an output; other parts are dropped."""
    if isinstance(value, str):
        return [Text(value)]
    parts: list[Content] = []
    for part in value if isinstance(value, list) else []:
        if not isinstance(part, dict):
            continue
        if isinstance(part.get("text"), str):
            parts.append(Text(part["text"]))
        elif isinstance(part.get("image_url"), str):
            detail = part.get("detail")
            parts.append(Image(part["image_url"], detail if isinstance(detail, str) else None))
    return parts


def leading_texts(items: Sequence[JSONObject]) -> tuple[int, list[str]]:
    """The number of developer messages that a history begins with, and their texts."""
    texts: list[str] = []
    for item in items:
        if item.get("type") != "message" or item.get("role") not in ("developer", "system"):
            break
        texts.append(text_of(parts_of(item.get("content"))))
    return len(texts), texts


def is_blank(item: JSONObject) -> bool:
    """Whether an item is empty for a model: a message without text or images."""
    kind = item.get("type")
    if kind == "message":
        parts = parts_of(item.get("content"))
        return not any(isinstance(part, Image) or part.text.strip() for part in parts)
    return kind != "reasoning" and not (isinstance(kind, str) and "_call" in kind)


def speaks(item: JSONObject) -> bool:
    """Whether one of the model's items makes a message where reasoning alone does not."""
    return is_call(item) or (
        item.get("type") == "message" and item.get("role") == "assistant" and not is_blank(item)
    )


def text_of(parts: list[Content]) -> str:
    """The texts among the parts, each on its own line."""
    return "\n".join(utf8(part.text) for part in parts if isinstance(part, Text))


def output_parts(item: JSONObject) -> list[Content]:
    """The parts of an output item of any kind."""
    kind = item.get("type")
    if kind == "view_image_call_output":
        image, metadata = item.get("image_data"), item.get("metadata")
        error = metadata.get("error") if isinstance(metadata, dict) else None
        if isinstance(image, str):
            return [Image(image)]
        return [Text(error if isinstance(error, str) else "no image")]
    if kind == "web_search_call_output":
        return [Text(item.get("error") or dumps(item.get("results") or []))]
    return parts_of(item.get("output"))


def as_function(item: JSONObject) -> FunctionCallForm:
    """Any call as a function call: freeform input under `input`, the hosted shell as `shell`.

    Hosted items have no name; the functions are those that `wire/specs.py` offers in their place.
    """
    kind, call_id = item.get("type"), str(item.get("call_id"))
    if kind == "custom_tool_call":
        return FunctionCallForm(call_id, sent_name(item), dumps({"input": item.get("input")}))
    if kind == "local_shell_call":
        return FunctionCallForm(call_id, "shell", dumps(_shell(item.get("action"))))
    if kind == "view_image_call":
        path = item.get("image_path", item.get("path"))
        return FunctionCallForm(call_id, "view_image", dumps({"path": path}))
    if kind == "web_search_call":
        return FunctionCallForm(call_id, "web_search", dumps({"query": item.get("query")}))
    return FunctionCallForm(call_id, sent_name(item), object_text(item.get("arguments")))


def _shell(action: Any) -> JSONObject:
    if not isinstance(action, dict):
        return {}
    names = {"command": "command", "working_directory": "workdir", "timeout_ms": "timeout_ms"}
    return {ours: action[key] for key, ours in names.items() if action.get(key) is not None}


def sent_name(item: JSONObject) -> str:
    """The name of a call as it is sent: of the offered tool it meant, else made legal."""
    return legal_name(item.get(WIRE_NAME) or item.get("name"))


def legal_name(name: Any) -> str:
    """A tool's name as the APIs take it; a model may have called an impossible name."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    word = _NOT_NAME.sub("_", name)[:64] if isinstance(name, str) else ""
    return word or "unknown"


def object_text(arguments: Any) -> str:
    """Arguments as the text of a JSON object; `{}` for what is none.

    Servers read arguments back into objects and fail on what a model misspelled long ago.
    """
    if isinstance(arguments, dict):
        return dumps(arguments)
    try:
        if isinstance(arguments, str) and isinstance(json.loads(arguments), dict):
            return utf8(arguments)
    except (ValueError, RecursionError):
        pass
    return "{}"


LEFT_OUT: Final = "[image left out: this model does not take images]"


def without_images(item: JSONObject) -> JSONObject:
    """The item with a text for each image; the item itself when it has none."""
    for key in ("content", "output"):
        parts = item.get(key)
        if isinstance(parts, list) and any(map(is_image, parts)):
            text = {"type": "input_text", "text": LEFT_OUT}
            return {**item, key: [text if is_image(part) else part for part in parts]}
    if item.get("type") == "view_image_call_output" and item.get("image_data"):
        return {**item, "image_data": None, "metadata": {"error": LEFT_OUT}}
    return item


def is_image(part: Any) -> bool:
    """Whether this part of a message or output is an image."""
    return isinstance(part, dict) and part.get("type") == "input_image"

"""Encode outputs, each in the wire its call came on, in call order."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

from toolrest.items import (
    Answered,
    Content,
    CustomToolCall,
    Image,
    JSONObject,
    MalformedCall,
    Text,
    ToolOutput,
    ViewImageCall,
    WebSearchCall,
)
from toolrest.wire.items.json_text import dumps, plain_json, utf8

__all__ = ["NOTHING", "Images", "anthropic_block", "dumps", "encode"]

Images: TypeAlias = Literal["inline", "user_message"]
"""The place of images of a Chat tool message: in it, or in one user message after all of them."""

NOTHING: Final = "(no output)"
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)?((?:;[^;,]*)*),(.*)", re.DOTALL)
_ANTHROPIC_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_CHAT_DETAILS: Final = frozenset({"auto", "low", "high"})


def encode(answered: Sequence[Answered], *, images: Images = "inline") -> list[JSONObject]:
    """The items or messages to send back, one output for every call.

    Anthropic's results share one user message, where the first of them stands. `images` is for
    Chat Completions servers that refuse images in tool messages, as OpenAI's own does.
    """
    encoded: list[JSONObject] = []
    results: list[JSONObject] = []
    shown: list[JSONObject] = []
    for answer in answered:
        wire = answer.item.wire
        if wire == "anthropic":
            if not results:
                encoded.append({"role": "user", "content": results})
            results.append(_tool_result(answer))
        elif wire == "chat":
            encoded.append(_tool_message(answer, shown if images == "user_message" else None))
        else:
            encoded.append(_mcp_result(answer.output) if wire == "mcp" else _responses(answer))
    if shown:
        encoded.append({"role": "user", "content": shown})
    return encoded


def _parts(output: ToolOutput) -> list[Content]:
    return [Text(output.content)] if isinstance(output.content, str) else output.content


def _call_id(answer: Answered) -> str:
    return utf8(answer.item.call_id or "")


# Responses


def _responses(answer: Answered) -> JSONObject:
    item = answer.item
    malformed = item.item if isinstance(item, MalformedCall) else ""
    if isinstance(item, ViewImageCall) or malformed == "view_image_call":
        return _view_image(answer)
    if isinstance(item, WebSearchCall) or malformed == "web_search_call":
        return _web_search(answer)
    freeform = isinstance(item, CustomToolCall) or (isinstance(item, MalformedCall) and item.custom)
    parts = [_input_part(part) for part in _parts(answer.output)]
    plain = len(parts) <= 1 and all(part["type"] == "input_text" for part in parts)
    return {
        "type": "custom_tool_call_output" if freeform else "function_call_output",
        "call_id": _call_id(answer),
        "output": utf8(answer.output.text) if plain else parts,
    }


def _input_part(part: Content) -> JSONObject:
    if isinstance(part, Text):
        return {"type": "input_text", "text": utf8(part.text)}
    detail = {} if part.detail is None else {"detail": part.detail}
    return {"type": "input_image", "image_url": utf8(part.url), **detail}


def _view_image(answer: Answered) -> JSONObject:
    output = answer.output
    image = next((part.url for part in _parts(output) if isinstance(part, Image)), None)
    metadata: JSONObject = plain_json(output.metadata)
    if output.failed:
        image, metadata = None, {**metadata, "error": utf8(output.text)}
    elif output.text:
        metadata = {**metadata, "text": utf8(output.text)}
    return {
        "type": "view_image_call_output",
        "call_id": _call_id(answer),
        "image_data": image and utf8(image),
        "metadata": metadata,
    }


def _web_search(answer: Answered) -> JSONObject:
    output = answer.output
    found = plain_json(output.structured)
    if isinstance(found, dict):
        found = found.get("results")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    item: JSONObject = {
        "type": "web_search_call_output",
        "call_id": _call_id(answer),
        "results": [_search_row(row) for row in rows],
    }
    if output.failed:
        item |= {"results": [], "error": utf8(output.text)}
    elif not rows and output.text:
        item["results"] = [_search_row({"snippet": utf8(output.text)})]
    return item


def _search_row(row: JSONObject) -> JSONObject:
    texts = {key: row.get(key) for key in ("title", "url", "snippet")}
    return {key: text if isinstance(text, str) else "" for key, text in texts.items()}


# Chat Completions


def _tool_message(answer: Answered, shown: list[JSONObject] | None) -> JSONObject:
    parts = _parts(answer.output)
    images = [part for part in parts if isinstance(part, Image)]
    text = utf8(answer.output.text)
    content: str | list[JSONObject] = text
    if images and shown is None:
        content = [_chat_part(part) for part in parts]
    elif images and shown is not None:
        # OpenAI takes images from users only; the label names the call.
        label = f"Image from the tool {utf8(answer.item.name)} (call {_call_id(answer)}):"
        shown.append({"type": "text", "text": label})
        shown.extend(_chat_part(image) for image in images)
        content = text or "The image follows in the next message."
    return {"role": "tool", "tool_call_id": _call_id(answer), "content": content}


def _chat_part(part: Content) -> JSONObject:
    if isinstance(part, Text):
        return {"type": "text", "text": utf8(part.text)}
    detail = {"detail": part.detail} if part.detail in _CHAT_DETAILS else {}
    return {"type": "image_url", "image_url": {"url": utf8(part.url), **detail}}


# Anthropic Messages


def _tool_result(answer: Answered) -> JSONObject:
    # A blank text block makes the API refuse the whole request.
    blocks = [
        anthropic_block(part)
        for part in _parts(answer.output)
        if isinstance(part, Image) or part.text.strip()
    ]
    content: str | list[JSONObject] = blocks or NOTHING
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        content = blocks[0]["text"]
    result: JSONObject = {
        "type": "tool_result",
        "tool_use_id": _call_id(answer),
        "content": content,
    }
    if answer.output.failed:
        result["is_error"] = True
    return result


def anthropic_block(part: Content) -> JSONObject:
    """A part of an output or message as this API takes it; a text for images it cannot take."""
    if isinstance(part, Text):
        return {"type": "text", "text": utf8(part.text)}
    if part.url.startswith(("https://", "http://")):
        return {"type": "image", "source": {"type": "url", "url": utf8(part.url)}}
    data = _image_data(part)
    if data is None or data[0] not in _ANTHROPIC_IMAGES:
        kind = "unreadable" if data is None else data[0]
        return {"type": "text", "text": f"[image left out: {kind}]"}
    source = {"type": "base64", "media_type": data[0], "data": data[1]}
    return {"type": "image", "source": source}


# MCP


def _mcp_result(output: ToolOutput) -> JSONObject:
    result: JSONObject = {
        "content": [_mcp_block(part) for part in _parts(output)],
        "isError": output.failed,
    }
    if output.structured is not None:
        structured = plain_json(output.structured)
        is_object = isinstance(structured, dict)
        result["structuredContent"] = structured if is_object else {"result": structured}
    return result


def _mcp_block(part: Content) -> JSONObject:
    if isinstance(part, Text):
        return {"type": "text", "text": utf8(part.text)}
    data = _image_data(part)
    if data is None:
        return {"type": "text", "text": f"[image: {utf8(part.url[:2000])}]"}
    return {"type": "image", "data": data[1], "mimeType": data[0]}


def _image_data(image: Image) -> tuple[str, str] | None:
    """Media type and base64 of a `data:` URL; None for any other."""
    match = _DATA_URL.fullmatch(image.url)
    if match is None:
        return None
    media_type, options, data = (match[1] or "text/plain").lower(), match[2], match[3]
    try:
        if "base64" in options.lower().split(";"):
            base64.b64decode(data, validate=True)
            return media_type, data
        return media_type, base64.b64encode(unquote_to_bytes(data)).decode()
    except ValueError:
        return None

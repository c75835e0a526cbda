"""MCP's CallToolResult, read in one place: text as text, images as images, nothing dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from toolrest.errors import Failure
from toolrest.items import Content, Image, JSONObject, Text, ToolOutput

View: TypeAlias = Literal["auto", "content", "structured", "both"]


class CallResult(NamedTuple):
    """The three fields of a CallToolResult."""

    content: list[Any]
    structured: Any
    failed: bool


def read(result: Mapping[str, Any]) -> CallResult:
    """A CallToolResult as it came over the wire."""
    content = result.get("content")
    return CallResult(
        content if isinstance(content, list) else [],
        result.get("structuredContent"),
        result.get("isError") is True,
    )


def output_of(result: Mapping[str, Any], view: View = "auto") -> ToolOutput:
    """One output from a CallToolResult as it came over the wire.

    `auto` shows the content, and the structured content only when it has more than the text.
    """
    blocks, structured, failed = read(result)
    parts = [_part(block) for block in blocks]
    if structured is not None and _shows(structured, parts, view):
        if view == "structured":
            parts = [part for part in parts if isinstance(part, Image)]
        parts.append(Text(_compact(structured)))
    output = ToolOutput(
        _content(parts),
        success=not failed,
        structured=structured,
        provenance="external",
    )
    if failed:
        output.failure = Failure("execution_failed", output.text)
    return output


def _content(parts: list[Content]) -> str | list[Content]:
    if not parts:
        return "(no output)"
    if any(isinstance(part, Image) for part in parts):
        return parts
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _shows(structured: Any, parts: list[Content], view: View) -> bool:
    if view in ("structured", "both"):
        return True
    if view == "content":
        return not parts
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    return not _in_text(structured, text)


def _in_text(structured: Any, text: str) -> bool:
    """Whether the text already has every key (or value, without keys) of the structure."""
    if isinstance(structured, Mapping):
        # Servers wrap a value that is no object in a lone `result`.
        if set(structured) == {"result"}:
            return _in_text(structured["result"], text) and bool(text)
        return bool(text) and all(str(key) in text for key in structured)
    if isinstance(structured, list):
        return bool(text) and all(_in_text(item, text) for item in structured)
    return bool(text) and (str(structured) in text or _compact(structured) in text)


def _part(block: Any) -> Content:
    if not isinstance(block, dict):
        return Text(_compact(block))
    reader = _READERS.get(block.get("type"))
    made = reader(block) if reader is not None else None
    return made if made is not None else Text(_compact(block))


def _text(block: JSONObject) -> Content | None:
    text = block.get("text")
    return Text(text) if isinstance(text, str) else None


def _image(block: JSONObject) -> Content | None:
    return _picture(block.get("data"), block.get("mimeType") or "image/png")


def _picture(data: Any, mime: Any) -> Content | None:
    if not isinstance(data, str) or not isinstance(mime, str) or not mime.startswith("image/"):
        return None
    return Image(data if data.startswith("data:") else f"data:{mime};base64,{data}")


def _audio(block: JSONObject) -> Content | None:
    return Text(f"[audio {block.get('mimeType', '')}, {_size(block.get('data'))} bytes, not shown]")


def _resource(block: JSONObject) -> Content | None:
    resource = block.get("resource")
    if not isinstance(resource, dict):
        return None
    text, blob, mime = resource.get("text"), resource.get("blob"), resource.get("mimeType")
    if isinstance(text, str):
        return Text(f"[resource {resource.get('uri', '')}]\n{text}")
    picture = _picture(blob, mime)
    if picture is not None:
        return picture
    return Text(f"[resource {resource.get('uri', '')}, {mime}, {_size(blob)} bytes, not shown]")


def _link(block: JSONObject) -> Content | None:
    about = f": {block['description']}" if block.get("description") else ""
    return Text(f"[resource link {block.get('name', '')} <{block.get('uri', '')}>{about}]")


_READERS: Mapping[Any, Any] = {
    "text": _text,
    "image": _image,
    "audio": _audio,
    "resource": _resource,
    "resource_link": _link,
}


def _size(data: Any) -> int:
    return len(data) * 3 // 4 if isinstance(data, str) else 0


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

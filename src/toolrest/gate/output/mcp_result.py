"""MCP's CallToolResult, read in one place: text as text, images as images, nothing dropped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from toolrest.errors import Failure
from toolrest.items import Content, Image, JSONObject, Text, ToolOutput

_BLOB = re.compile(r"(?:data:[\w/+.;=-]*base64,)?([A-Za-z0-9+/_-]{400,}={0,2})")
"""Base64 that is too long for a hash, a key or a token."""

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

    `auto` shows the content, and the structured content only when it has more than that.
    """
    blocks, structured, failed = read(result)
    parts = [_part(block) for block in blocks]
    if structured is not None and _shows(structured, blocks, parts, view):
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


def _shows(structured: Any, blocks: list[Any], parts: list[Content], view: View) -> bool:
    if view in ("structured", "both"):
        return True
    if view == "content" or not parts:
        return not parts
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    if isinstance(structured, Mapping) and len(structured) == 1:
        (name, value), *_ = structured.items()
        if name == "result" or value == text or _are_blocks(value, blocks):
            structured = value  # so servers wrap what is no object
    return not _repeats(structured, blocks, text)


def _repeats(structured: Any, blocks: list[Any], text: str) -> bool:
    """Whether a structure only repeats blocks, or keys and values that stand in the text."""
    if isinstance(structured, Mapping):
        if any(_is_block(structured, block) for block in blocks):
            return True
        return all(
            _stands_in(str(key), text) and _repeats(value, blocks, text)
            for key, value in structured.items()
        )
    if isinstance(structured, list):
        return all(_repeats(item, blocks, text) for item in structured)
    if structured is None or structured == "":
        return True
    return _stands_in(str(structured), text) or _stands_in(_compact(structured), text)


def _stands_in(word: str, text: str) -> bool:
    """Whether a text has this as a word of its own: "15" does not say 5."""
    at = text.find(word)
    while at >= 0:
        before, after = text[at - 1 : at] if at else "", text[at + len(word) : at + len(word) + 1]
        if not (_joins(before, word[:1]) or _joins(word[-1:], after)):
            return True
        at = text.find(word, at + 1)
    return False


def _joins(left: str, right: str) -> bool:
    return left.isalnum() and right.isalnum()


def _are_blocks(value: Any, blocks: list[Any]) -> bool:
    """Whether a value is the content once more."""
    if not isinstance(value, list) or not value:
        return False
    return all(
        isinstance(part, Mapping) and any(_is_block(part, block) for block in blocks)
        for part in value
    )


def _is_block(structured: Mapping[str, Any], block: Any) -> bool:
    """Whether a structure is a content block once more, perhaps with its empty fields."""
    if not isinstance(block, Mapping) or "type" not in structured:
        return False
    return all(block.get(key) == value for key, value in structured.items() if value is not None)


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
    return json.dumps(_without_blobs(value), ensure_ascii=False, separators=(",", ":"))


def _without_blobs(value: Any) -> Any:
    """The value with its base64 replaced by how much that is: no model can read it."""
    if isinstance(value, str):
        blob = _BLOB.fullmatch(value)
        return value if blob is None else f"[{_size(blob[1])} bytes, not shown]"
    if isinstance(value, Mapping):
        return {key: _without_blobs(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_blobs(item) for item in value]
    return value

"""From whatever a tool returned to one ToolOutput."""

from __future__ import annotations

import json
from typing import Any

from toolrest.errors import Failure, RespondToModel
from toolrest.items import Content, Image, Text, ToolOutput

NOTHING = "(no output)"


def to_output(value: Any, tool: str) -> ToolOutput:
    """Text stays text, JSON values are written compactly, MCP results keep their parts."""
    if isinstance(value, ToolOutput):
        return value
    if isinstance(value, str):
        return ToolOutput(value)
    if value is None:
        return ToolOutput(NOTHING)
    if isinstance(value, Text | Image):
        return ToolOutput([value])
    if isinstance(value, list) and value and all(isinstance(v, Text | Image) for v in value):
        return ToolOutput(value)
    if type(value).__name__ == "CallToolResult" and hasattr(value, "content"):
        return _from_mcp(value)
    return ToolOutput(_as_json(value, tool))


def _as_json(value: Any, tool: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise RespondToModel(
            f"{tool} ran, but what it returned cannot be sent: {error}", kind="execution_failed"
        ) from None


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if isinstance(value, set | frozenset):
        return sorted(value)
    from dataclasses import asdict, is_dataclass

    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _from_mcp(result: Any) -> ToolOutput:
    """Text as text, images as images; other parts as the JSON they came in."""
    parts: list[Content] = []
    for block in result.content:
        kind = getattr(block, "type", "")
        if kind == "text":
            parts.append(Text(block.text))
        elif kind == "image":
            mime = getattr(block, "mimeType", None) or getattr(block, "mime_type", "image/png")
            parts.append(Image(f"data:{mime};base64,{block.data}"))
        else:
            parts.append(Text(_as_json(block, "the MCP tool")))
    structured = getattr(result, "structuredContent", None)
    if structured is None:
        structured = getattr(result, "structured_content", None)
    failed = bool(getattr(result, "isError", None) or getattr(result, "is_error", None))
    content: str | list[Content] = parts
    if all(isinstance(part, Text) for part in parts):
        content = "\n".join(part.text for part in parts if isinstance(part, Text))
        if not parts and structured is not None:
            content = _as_json(structured, "the MCP tool")
    output = ToolOutput(content, success=not failed, structured=structured, provenance="external")
    if failed:
        output.failure = Failure("execution_failed", output.text)
    return output

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
        return checked(value, tool)
    if isinstance(value, str):
        return ToolOutput(value)
    if value is None:
        return ToolOutput(NOTHING)
    if isinstance(value, Text | Image):
        return checked(ToolOutput([value]), tool)
    if isinstance(value, list) and value and all(isinstance(v, Text | Image) for v in value):
        return checked(ToolOutput(value), tool)
    if type(value).__name__ == "CallToolResult" and hasattr(value, "content"):
        return _from_mcp(value)
    return ToolOutput(_as_json(value, tool))


def checked(output: ToolOutput, tool: str) -> ToolOutput:
    """The output, if every wire can send it; RespondToModel names the part that is wrong."""
    problem = _wrong_content(output.content) or _wrong_rest(output)
    if problem:
        raise _unsendable(tool, problem)
    return output


def _wrong_content(content: object) -> str | None:
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        kind = type(content).__name__
        return f"`content` must be text or a list of Text and Image parts, not {kind}"
    for number, part in enumerate(content):
        words = part.text if isinstance(part, Text) else part.url if isinstance(part, Image) else 0
        if not isinstance(words, str):
            kind = type(part).__name__
            return f"`content[{number}]` must be a Text or an Image of a string, not {kind}"
    return None


def _wrong_rest(output: Any) -> str | None:
    if not isinstance(output.metadata, dict):
        return f"`metadata` must be a dict, not {type(output.metadata).__name__}"
    if not isinstance(output.notes, list) or not all(isinstance(n, str) for n in output.notes):
        return "`notes` must be a list of strings"
    if output.failure is not None and not isinstance(output.failure, Failure):
        return f"`failure` must be a Failure, not {type(output.failure).__name__}"
    return None


def _as_json(value: Any, tool: str) -> str:
    try:
        try:
            return _dumps(value, allow_nan=False)
        except ValueError:
            # JSON has no NaN and no Infinity; what is circular raises again.
            text = _dumps(value, allow_nan=True)
            return _dumps(json.loads(text, parse_constant=lambda _: None), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise _unsendable(tool, str(error)) from None


def _dumps(value: Any, *, allow_nan: bool) -> str:
    return json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=allow_nan
    )


def _unsendable(tool: str, problem: str) -> RespondToModel:
    return RespondToModel(
        f"{tool} ran, but what it returned cannot be sent: {problem}", kind="execution_failed"
    )


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

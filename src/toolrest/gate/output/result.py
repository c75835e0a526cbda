"""Turn a tool's return value into one ToolOutput."""

from __future__ import annotations

import json
from dataclasses import asdict, is_dataclass
from typing import Any

from msgspec import Struct, structs

from toolrest.errors import Failure, RespondToModel
from toolrest.items import Image, Text, ToolOutput

NOTHING = "(no output)"


def to_output(value: Any, tool: str) -> ToolOutput:
    """The output of a value: text as it is, compact JSON, MCP results with their parts."""
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
    if type(value).__name__ == "CallToolResult" and hasattr(value, "model_dump"):
        # Loaded for the few tools that return one; the class is the MCP library's.
        from toolrest.gate.output.mcp_result import output_of

        wired = value.model_dump(mode="json", by_alias=True, exclude_none=True)
        return output_of(wired, "content")
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
        text = part.text if isinstance(part, Text) else part.url if isinstance(part, Image) else 0
        if not isinstance(text, str):
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
    if isinstance(value, Struct):
        return structs.asdict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")

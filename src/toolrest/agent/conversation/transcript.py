"""The transcript of a session in Markdown: messages, calls and outputs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from toolrest.agent.conversation.model_request import reasoning_text
from toolrest.agent.history.history import is_user_turn, message_text
from toolrest.items import JSONObject

_FENCE = "```"


def markdown(items: Iterable[JSONObject]) -> Iterator[str]:
    """One block of Markdown for each item worth showing."""
    for item in items:
        block = _block(item)
        if block:
            yield block


def _block(item: JSONObject) -> str:
    kind = item.get("type")
    if kind == "message":
        if item.get("role") == "assistant":
            return message_text(item)
        return f"## User\n\n{message_text(item)}" if is_user_turn(item) else ""
    if kind == "reasoning":
        text = reasoning_text(item)
        return "\n".join(f"> {line}".rstrip() for line in text.splitlines())
    if kind == "local_shell_call":
        return _fenced("local_shell", json.dumps(item.get("action"), ensure_ascii=False))
    if kind in ("function_call", "custom_tool_call"):
        asked = item.get("arguments", item.get("input", ""))
        return _fenced(str(item.get("name", "")), str(asked))
    if isinstance(kind, str) and kind.endswith("_output"):
        return _fenced("", output_text(item))
    return ""


def output_text(item: JSONObject) -> str:
    """An output's text; images are named, not shown."""
    output = item.get("output", "")
    if isinstance(output, str):
        return output
    parts = output if isinstance(output, list) else []
    return "\n".join(str(part.get("text", "[image]")) for part in parts if isinstance(part, dict))


def _fenced(title: str, text: str) -> str:
    fence = _FENCE
    while fence in text:
        fence += "`"
    head = f"**{title}**\n\n" if title else ""
    return f"{head}{fence}\n{text.rstrip()}\n{fence}"

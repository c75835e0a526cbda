"""Token estimates: four bytes are one, near enough without any model's tokenizer."""

from __future__ import annotations

from typing import Any

from toolrest.items import JSONObject
from toolrest.wire.model import Usage

AGENT_TOKENS = "agent_token_count"
"""The type of a journal's line about a reply to a sub-agent."""
_IMAGE_BYTES = 7373
_HIDDEN_OVERHEAD = 650


def text_tokens(text: str) -> int:
    """The tokens of a text."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // 4)


def item_tokens(item: JSONObject, size: int) -> int:
    """The tokens of an item whose JSON has `size` bytes.

    Encrypted text is longer than what it stands for; an image costs the same however many bytes
    its data has.
    """
    if item.get("type") in ("reasoning", "compaction", "compaction_summary"):
        hidden = item.get("encrypted_content")
        if isinstance(hidden, str):
            return -(-max(0, len(hidden) * 3 // 4 - _HIDDEN_OVERHEAD) // 4)
    for part in _parts(item):
        url = part.get("image_url")
        if part.get("type") == "input_image" and isinstance(url, str) and url.startswith("data:"):
            size += _IMAGE_BYTES - len(url)
    return -(-max(0, size) // 4)


def _parts(item: JSONObject) -> list[JSONObject]:
    parts: Any = item.get("content") if item.get("type") == "message" else item.get("output")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def usage_json(usage: Usage) -> JSONObject:
    """The usage with the names that rollouts and events use."""
    long = {} if usage.long is None else {"long_requests": usage_json(usage.long)}
    return {
        **long,
        "input_tokens": usage.input,
        "cached_input_tokens": usage.cached_input,
        "cache_write_input_tokens": usage.cache_write_input,
        "output_tokens": usage.output,
        "reasoning_output_tokens": usage.reasoning_output,
        "total_tokens": usage.total,
    }


def usage_from(value: Any) -> Usage:
    """The usage that `usage_json` wrote; anything that is no count is 0."""
    found = value if isinstance(value, dict) else {}
    names = ("input", "cached_input", "output", "reasoning_output", "total", "cache_write_input")
    counts = [found.get(f"{name}_tokens") for name in names]
    good = [count if type(count) is int and count >= 0 else 0 for count in counts]
    usage = Usage(good[0], good[1], good[2], good[3], good[4], good[5])
    if isinstance(long := found.get("long_requests"), dict):
        usage.long = usage_from({**long, "long_requests": None})
    return usage

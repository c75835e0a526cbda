"""An editor's prompt as a message of the user."""

from __future__ import annotations

from typing import Any

from toolrest.agent.history.history import message
from toolrest.items import JSONObject


def user_message(blocks: list[Any]) -> JSONObject:
    """The message that a prompt's blocks make."""
    return message("user", *(part for part in map(_part, blocks) if part))


def _part(block: Any) -> str | JSONObject:
    """One block of a prompt; the text of a file is marked as such."""
    kind = getattr(block, "type", "")
    if kind == "text":
        return str(block.text)
    if kind == "image":
        return {"type": "input_image", "image_url": f"data:{block.mime_type};base64,{block.data}"}
    if kind == "resource_link":
        return f"[{block.name}]({block.uri})"
    if kind == "resource":
        text = getattr(block.resource, "text", None)
        body = text if text is not None else "(not text)"
        return f'<file uri="{block.resource.uri}">\n{body}\n</file>'
    return f"({kind or 'something'} that this agent cannot take)"


def first_text(blocks: list[Any]) -> str:
    """The text that a prompt begins with, which may be a command."""
    return str(blocks[0].text) if blocks and getattr(blocks[0], "type", "") == "text" else ""

"""The events of a page: the lines of a session's journal, each with the offset of its end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Iterator
from datetime import datetime
from typing import Any

from toolrest.agent.history.tokens import usage_from
from toolrest.items import JSONObject
from toolrest.timeline.cells import CallCell, Cell, MessageCell, ReasoningCell, UserCell
from toolrest.timeline.stored import output_text, stored_cells
from toolrest.web_ui.watch import FileWatch
from toolrest.wire.items.pairing import call_id_of, is_output

_PIECE = 1 << 20
_LONGEST_TEXT = 200_000


def read_events(path: str, offset: int) -> tuple[list[JSONObject], int]:
    """The events behind an offset, up to some megabytes, and the offset after them.

    A line that is still being written is left for the next look.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        data = os.pread(fd, _PIECE, offset)
        while data and b"\n" not in data:  # one long line
            more = os.pread(fd, _PIECE, offset + len(data))
            if not more:
                break
            data += more
    finally:
        os.close(fd)
    end = data.rfind(b"\n") + 1
    events: list[JSONObject] = []
    for line in data[:end].splitlines(keepends=True):
        offset += len(line)
        events += ({**event, "at": offset} for event in line_events(line))
    return events, offset


async def follow(path: str, offset: int) -> AsyncGenerator[list[JSONObject], None]:
    """The events behind an offset, then those to come; an empty list when all is read so far."""
    async with FileWatch([path]) as watch:
        while True:
            events, end = await asyncio.to_thread(read_events, path, offset)
            if end > offset:
                offset = end
                if events:
                    yield events
                continue
            yield []
            await watch.wait()


def line_events(line: bytes) -> Iterator[JSONObject]:
    """What a page is shown of one line of a journal."""
    try:
        value: Any = json.loads(line)
        time = datetime.fromisoformat(value["timestamp"]).timestamp()
        kind, payload = value["type"], value["payload"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # cut by a crash
    if not isinstance(payload, dict):
        return
    if kind == "response_item":
        yield from ({**event, "time": time} for event in _item_events(payload))
    elif kind == "event_msg" and payload.get("type") == "token_count":
        yield {**_tokens(payload), "time": time}
    elif kind == "compacted":
        yield {"kind": "notice", "text": "The conversation was summarised.", "time": time}
    elif kind == "turn_context":
        yield {"kind": "turn", "model": str(payload.get("model") or ""), "time": time}


def _item_events(item: JSONObject) -> Iterator[JSONObject]:
    if is_output(item):
        yield {"kind": "output", "id": call_id_of(item), "text": _cut(output_text(item))}
        return
    for cell in stored_cells([item]):
        yield cell_json(cell)


def cell_json(cell: Cell) -> JSONObject:
    """A cell as a page gets it."""
    match cell:
        case UserCell():
            return {"kind": "user", "text": _cut(cell.text)}
        case MessageCell():
            return {"kind": "message", "text": _cut(cell.text)}
        case ReasoningCell():
            return {"kind": "reasoning", "text": _cut(cell.text)}
        case CallCell():
            return {
                "kind": "call",
                "id": cell.call_id,
                "tool": cell.tool,
                "command": None if cell.command is None else _cut(cell.command),
                "arguments": _cut(cell.arguments),
            }
    return {"kind": "notice", "text": ""}


def _tokens(payload: JSONObject) -> JSONObject:
    info = payload.get("info")
    info = info if isinstance(info, dict) else {}
    total = usage_from(info.get("total_token_usage"))
    last = info.get("last_token_usage")
    last = last if isinstance(last, dict) else {}
    window = info.get("model_context_window")
    return {
        "kind": "tokens",
        "input": total.input,
        "output": total.output,
        "context": last.get("total_tokens") if isinstance(last.get("total_tokens"), int) else None,
        "window": window if isinstance(window, int) else None,
    }


def _cut(text: str) -> str:
    """The text, or its two ends with a sentence that says how much is missing."""
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are not shown …\n{text[-half:]}"

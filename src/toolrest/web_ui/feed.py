"""The events of a page: the lines of a session's journal, each with the offset of its end."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec import structs

from toolrest.agent.history.rollout import line_json
from toolrest.agent.history.tokens import AGENT_TOKENS, usage_from
from toolrest.events import WeakSandbox
from toolrest.items import JSONObject
from toolrest.process.output.layout import printed
from toolrest.timeline.calls import call_title
from toolrest.timeline.cells import (
    CallCell,
    Cell,
    MessageCell,
    NoticeCell,
    QuestionCell,
    ReasoningCell,
    UserCell,
)
from toolrest.timeline.questions import given_answers
from toolrest.timeline.stored import output_text, stored_cells
from toolrest.web_ui.markup import message_blocks
from toolrest.wire.items.pairing import call_id_of, is_output
from toolrest.wire.model import Usage

_PIECE = 1 << 20
_LONGEST_LINE = 64 << 20
_LONGEST_TEXT = 200_000
_LONGEST_TITLE = 300
_WALL_TIME = re.compile(r"^Wall time: (\d{1,9}(?:\.\d{1,9})?) seconds$", re.MULTILINE)
_EXIT_CODE = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d{1,9})$", re.MULTILINE)
_LARGEST_COUNT = 2**53
_LARGEST_IMAGE = 8 << 20
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")


def read_events(path: str, offset: int) -> tuple[list[JSONObject], int]:
    """The events behind an offset, up to some megabytes, and the offset after them.

    A line that is still being written is left for the next look. One that no session writes, so
    long is it, is passed over in pieces, none of which is JSON.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = bytearray(os.pread(fd, _PIECE, offset))
        more: bytes | bytearray = data
        while more and b"\n" not in more:  # one long line
            if len(data) >= _LONGEST_LINE:
                return [], offset + len(data)
            more = os.pread(fd, _PIECE, offset + len(data))
            data += more
    finally:
        os.close(fd)
    end = data.rfind(b"\n") + 1
    events: list[JSONObject] = []
    for line in bytes(data[:end]).split(b"\n")[:-1]:
        offset += len(line) + 1
        events += ({**event, "at": offset} for event in line_events(line, drawn=True))
    return events, offset


def line_events(line: bytes, *, drawn: bool = False) -> Iterator[JSONObject]:
    """What a page is shown of one line of a journal; `drawn`, with the blocks of its texts."""
    try:
        value = line_json(line)
        time = datetime.fromisoformat(value["timestamp"]).timestamp()
        kind, payload = value["type"], value["payload"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return  # cut by a crash
    if not isinstance(payload, dict):
        return
    if kind == "response_item":
        yield from ({**event, "time": time} for event in _item_events(payload, drawn))
    elif kind == "event_msg" and payload.get("type") == "token_count":
        yield {**_tokens(payload), "time": time}
    elif kind == "event_msg" and payload.get("type") == AGENT_TOKENS:
        model = str(payload.get("model") or "")
        yield {**_tokens(payload), "context": None, "model": model, "time": time}
    elif kind == "event_msg" and payload.get("type") == WeakSandbox.type:
        yield {"kind": "notice", "text": _cut(str(payload.get("message") or "")), "time": time}
    elif kind == "compacted":
        yield {"kind": "notice", "text": "The conversation was summarised.", "time": time}
    elif kind == "turn_context":
        yield {"kind": "turn", "model": str(payload.get("model") or ""), "time": time}


def _item_events(item: JSONObject, drawn: bool) -> Iterator[JSONObject]:
    if is_output(item):
        text = output_text(item)
        answers = {"answers": found} if (found := given_answers(text)) else {}
        said = printed(text)
        event = {"kind": "output", "id": call_id_of(item), "text": _cut(said)}
        code = _EXIT_CODE.search(text, 0, len(text) - len(said))
        exited = {"code": int(code[1])} if code else {}
        took = _WALL_TIME.search(text, 0, len(text) - len(said))
        ran = {"seconds": float(took[1])} if took else {}
        failed = {"failed": True} if item.get("failed") else {}
        yield {**event, **answers, **exited, **ran, **failed, **_images(item)}
        return
    for cell in stored_cells([item]):
        yield {**cell_json(cell, drawn), **_images(item)}


def _images(item: JSONObject) -> JSONObject:
    """The pictures of a message or an output, those that browsers show and that have their data."""
    parts = item.get("output" if is_output(item) else "content")
    urls = [part.get("image_url") for part in _objects(parts)]
    found = [url for url in urls if isinstance(url, str) and len(url) <= _LARGEST_IMAGE]
    shown = [url for url in found if _IMAGE.fullmatch(url)]
    return {"images": shown} if shown else {}


def _objects(parts: Any) -> list[JSONObject]:
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def cell_json(cell: Cell, drawn: bool) -> JSONObject:
    """A cell as a page gets it."""
    match cell:
        case UserCell():
            return {"kind": "user", "text": _cut(cell.text)}
        case MessageCell():
            return {"kind": "message", **_words(cell.text, drawn)}
        case ReasoningCell():
            return {"kind": "reasoning", **_words(cell.text, drawn)}
        case CallCell():
            return {
                "kind": "call",
                "id": cell.call_id,
                "tool": cell.tool,
                "command": None if cell.command is None else _cut(cell.command),
                "arguments": _cut(cell.arguments),
                "title": call_title("", cell.arguments)[:_LONGEST_TITLE].strip(),
                **_questions(cell),
            }
        case NoticeCell():
            return {"kind": "notice", "text": _cut(cell.text)}
    return {"kind": "notice", "text": ""}


def _words(text: str, drawn: bool) -> JSONObject:
    """A text of the model, with its blocks where it is read as Markdown."""
    blocks = message_blocks(text) if drawn else None
    return {"text": _cut(text), **({} if blocks is None else {"blocks": blocks})}


def _questions(cell: CallCell) -> JSONObject:
    if not isinstance(cell, QuestionCell):
        return {}
    return {"questions": [structs.asdict(question) for question in cell.questions]}


def _tokens(payload: JSONObject) -> JSONObject:
    info = payload.get("info")
    info = info if isinstance(info, dict) else {}
    total, last = usage_from(info.get("total_token_usage")), info.get("last_token_usage")
    used = usage_from(last)
    context = last.get("total_tokens") if isinstance(last, dict) else None
    return {
        "kind": "tokens",
        **_counts(total),
        "used": _counts(used),
        "context": _count(context),
        "window": _count(info.get("model_context_window")),
    }


def _count(value: Any) -> int | None:
    """A number of tokens, no larger than a page can count."""
    return min(value, _LARGEST_COUNT) if type(value) is int and value >= 0 else None


def _counts(usage: Usage) -> JSONObject:
    return {
        "input": _count(usage.input),
        "cached": _count(usage.cached_input),
        "written": _count(usage.cache_write_input),
        "output": _count(usage.output),
    }


def _cut(text: str) -> str:
    """The text, or its two ends with a sentence that says how much is missing."""
    if len(text) <= _LONGEST_TEXT:
        return text
    half = _LONGEST_TEXT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters are not shown …\n{text[-half:]}"

"""Cells of a stored session: its items, folded like the events of a living one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from toolrest.agent.conversation.model_request import reasoning_text
from toolrest.agent.history.history import is_user_turn, message_text
from toolrest.items import JSONObject
from toolrest.process.output.layout import printed
from toolrest.timeline.calls import command_of
from toolrest.timeline.cells import CallCell, Cell, MessageCell, ReasoningCell, UserCell
from toolrest.wire.items.pairing import call_id_of, is_call, is_output


def stored_cells(items: Iterable[JSONObject]) -> list[Cell]:
    """The cells of a conversation's items; an output goes to the cell of its call."""
    cells: list[Cell] = []
    calls: dict[str, CallCell] = {}
    for item in items:
        if is_call(item):
            cell = _call(item)
            calls[cell.call_id] = cell
            cells.append(cell)
        elif is_output(item):
            _answer(calls.pop(call_id_of(item), None), item)
        else:
            cells += _said(item)
    return cells


def _said(item: JSONObject) -> list[Cell]:
    kind, role = item.get("type"), item.get("role")
    if kind == "message" and role == "assistant":
        return [MessageCell(text=message_text(item))]
    if kind == "message" and is_user_turn(item):
        return [UserCell(text=message_text(item))]
    if kind == "reasoning" and (text := reasoning_text(item)):
        return [ReasoningCell(text=text)]
    return []


def _call(item: JSONObject) -> CallCell:
    kind = str(item.get("type", ""))
    asked: Any = item.get("arguments", item.get("input", item.get("action", "")))
    text = asked if isinstance(asked, str) else json.dumps(asked, ensure_ascii=False)
    name = str(item.get("name") or kind.removesuffix("_call"))
    return CallCell(call_id=call_id_of(item), tool=name, arguments=text, command=command_of(text))


def _answer(cell: CallCell | None, item: JSONObject) -> None:
    if cell is not None:
        text = output_text(item)
        cell.done, cell.state = True, "failed" if item.get("failed") else "done"
        cell.result = text if cell.command is None else printed(text)


def output_text(item: JSONObject) -> str:
    """An output's text; images are named, not shown."""
    output = item.get("output", "")
    if isinstance(output, str):
        return output
    parts = output if isinstance(output, list) else []
    return "\n".join(str(part.get("text", "[image]")) for part in parts if isinstance(part, dict))


def markdown(cells: Iterable[Cell]) -> list[str]:
    """The cells as blocks of Markdown, whole."""
    return [block for block in map(_block, cells) if block]


def _block(cell: Cell) -> str:
    match cell:
        case UserCell():
            return f"## User\n\n{cell.text}"
        case MessageCell():
            return cell.text
        case ReasoningCell():
            return "\n".join(f"> {line}".rstrip() for line in cell.text.splitlines())
        case CallCell():
            title = f"output of {cell.tool}"
            output = _titled(title, cell.result or cell.output.text) if cell.done else ""
            return f"{_titled(cell.tool, cell.command or cell.arguments)}\n\n{output}".rstrip()
    return ""


def fenced(text: str) -> str:
    """A text in a fence that nothing in it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _titled(title: str, text: str) -> str:
    return f"**{title}**\n\n{fenced(text)}"

"""Cells of a stored session: its items, folded like the events of a living one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from toolrest.agent.conversation.model_request import reasoning_text
from toolrest.agent.history.compaction import PREFIX, is_summary
from toolrest.agent.history.history import is_user_turn, message_text, own_text
from toolrest.items import JSONObject
from toolrest.process.output.layout import printed
from toolrest.timeline.agents import StoredAgents
from toolrest.timeline.calls import arguments_of, command_of, plan_steps
from toolrest.timeline.cells import (
    AgentCell,
    CallCell,
    Cell,
    MessageCell,
    NoticeCell,
    PlanCell,
    QuestionCell,
    ReasoningCell,
    UserCell,
)
from toolrest.timeline.questions import (
    answered,
    asked_questions,
    question_cell,
    shown_answers,
)
from toolrest.wire.items.pairing import call_id_of, is_call, is_output


def stored_cells(items: Iterable[JSONObject], agents: StoredAgents | None = None) -> list[Cell]:
    """The cells of a conversation's items; an output goes to the cell of its call.

    `agents` are the sub-agents of the items before these, where they come in pieces.
    """
    agents = StoredAgents() if agents is None else agents
    cells: list[Cell] = []
    calls: dict[str, CallCell] = {}
    for item in items:
        if is_call(item):
            cell = _call(item)
            calls[cell.call_id] = cell
            cells.append(cell)
        elif is_output(item):
            called = calls.pop(call_id_of(item), None)
            if called is not None:
                _answer(called, item)
                cells += agents.take(called)
                cells += _plan(called)
        else:
            cells += _said(item)
    return cells


def _said(item: JSONObject) -> list[Cell]:
    kind, role = item.get("type"), item.get("role")
    if kind == "message" and role == "assistant":
        return [MessageCell(text=message_text(item))]
    if kind == "message" and is_summary(item):
        text = message_text(item).removeprefix(PREFIX).strip()
        return [NoticeCell(level="note", text="what was said before is summarised:", detail=text)]
    if kind == "message" and is_user_turn(item):
        return [UserCell(text=own_text(item))]
    if kind == "reasoning" and (text := reasoning_text(item)):
        return [ReasoningCell(text=text)]
    return []


def _call(item: JSONObject) -> CallCell:
    kind = str(item.get("type", ""))
    asked: Any = item.get("arguments", item.get("input", item.get("action", "")))
    text = asked if isinstance(asked, str) else json.dumps(asked, ensure_ascii=False)
    name = str(item.get("name") or kind.removesuffix("_call"))
    cell = CallCell(call_id=call_id_of(item), tool=name, arguments=text, command=command_of(text))
    questions = asked_questions(arguments_of(text).get("questions"))
    return question_cell(cell, questions) if questions else cell


def _plan(call: CallCell) -> list[PlanCell]:
    """The plan that a call has set; it shows instead of the call."""
    steps = plan_steps(arguments_of(call.arguments).get("plan"))
    if not steps or call.state == "failed":
        return []
    call.hidden = True
    return [PlanCell(steps=steps)]


def _answer(cell: CallCell, item: JSONObject) -> None:
    text = output_text(item)
    cell.done, cell.state = True, "failed" if item.get("failed") else "done"
    cell.result = text if cell.command is None else printed(text)
    answered(cell)


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
        case NoticeCell():
            return f"*{cell.text}*\n\n{cell.detail}".rstrip()
        case ReasoningCell():
            return "\n".join(f"> {line}".rstrip() for line in cell.text.splitlines())
        case AgentCell():
            state = f"sub-agent {cell.name}, {cell.state}"
            return f"**{state}**\n\n{cell.task}\n\n{cell.last}".rstrip()
        case PlanCell():
            marks = {"completed": "x", "in_progress": "~"}
            rows = (f"- [{marks.get(step.status, ' ')}] {step.text}" for step in cell.steps)
            return "\n".join(rows)
        case QuestionCell():
            return "\n\n".join(_answered_question(cell))
        case CallCell(hidden=True):
            return ""
        case CallCell():
            title = f"output of {cell.tool}"
            output = _titled(title, cell.result or cell.output.text) if cell.done else ""
            return f"{_titled(cell.tool, cell.command or cell.arguments)}\n\n{output}".rstrip()
    return ""


def _answered_question(cell: QuestionCell) -> Iterable[str]:
    for question in cell.questions:
        text = "; ".join(shown_answers(cell, question)) or "(no answer)"
        yield f"**{question.header}**\n\n{question.text}\n\n> {text}"


def fenced(text: str) -> str:
    """A text in a fence that nothing in it can close."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _titled(title: str, text: str) -> str:
    return f"**{title}**\n\n{fenced(text)}"

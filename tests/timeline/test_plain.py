"""The plain drawing: what `exec`, the demo and `sessions show` print."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.timeline.test_fold import begin, complete, end

from toolrest.agent.conversation.events import AgentMessage, AgentReasoning
from toolrest.events import Event, ExecCommandBegin, PatchApplyEnd, PlanUpdate, ToolCallDelta
from toolrest.timeline.cells import CallCell, FileDiff, MessageCell, UserCell
from toolrest.timeline.draw import Drawing, diff_lines, duration, safe_lines
from toolrest.timeline.plain import PlainPrinter, has_colour, styled
from toolrest.timeline.stored import markdown, stored_cells


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise OSError


def printed(*events: Event, **options: Any) -> str:
    out = io.StringIO()
    printer = PlainPrinter(out, workspace="/ws", **options)
    for event in events:
        printer(event)
    return out.getvalue()


def command(call_id: str, line: str) -> tuple[Event, Event]:
    started = ExecCommandBegin(call_id=call_id, command=("/bin/bash", "-lc", line), cwd="/ws")
    return begin(call_id, arguments=json.dumps({"cmd": line})), started


def test_a_command_shows_when_it_starts_and_its_end_is_a_tail() -> None:
    out = io.StringIO()
    printer = PlainPrinter(out)
    for event in command("c", "make"):
        printer(event)
    assert out.getvalue() == "$ make\n", "before it ends"
    printer(ToolCallDelta(call_id="c", text="".join(f"line {n}\n" for n in range(50_000))))
    printer(end("c", exit_code=1))
    lines = out.getvalue().splitlines()
    assert lines[1] == "  … 49,995 more lines above"
    assert lines[2:7] == [f"  line {n}" for n in range(49_995, 50_000)]
    assert lines[7] == "  ✗ exit code 1 0.5 s"


def test_two_commands_at_once_do_not_mix() -> None:
    text = printed(
        *command("a", "one"),
        *command("b", "two"),
        ToolCallDelta(call_id="a", text="from one\n"),
        ToolCallDelta(call_id="b", text="from two\n"),
        end("b"),
        end("a"),
    )
    assert text == "$ one\n$ two\n  from two\n  ✔ 0.5 s\n$ one\n  from one\n  ✔ 0.5 s\n"


def test_the_answer_is_left_to_the_caller_unless_the_turn_fails() -> None:
    said = (AgentMessage(message="first"), AgentMessage(message="x" * 5000))
    assert printed(*said, complete()).startswith("first\n0.0 s, 7 tokens in")
    text = printed(*said, complete(status="failed", error="no server"))
    assert "x" * 5000 in text, "nothing is cut"
    assert "✗ failed: no server" in text
    assert "x" * 5000 in printed(*said, complete(), keeps_answer=False)


def test_tabs_are_spaces_and_paths_are_short() -> None:
    text = printed(
        begin("c", "read_file", '{"file_path": "/ws/src/a.py"}'),
        ToolCallDelta(call_id="c", text="a\tb\n"),
        end("c", duration=0.0),
    )
    assert text == "read_file src/a.py\n  a       b\n"


def test_a_failed_write_says_why_and_a_good_one_shows_its_diff() -> None:
    changes = {"/ws/a": {"type": "update", "unified_diff": "@@ -3,2 +3,2 @@\n x\n-old\n+new\n"}}
    fields: dict[str, Any] = {"call_id": "c", "stdout": "", "changes": changes}
    start = begin("c", "apply_patch", "*** Begin Patch")
    good = printed(start, PatchApplyEnd(stderr="", success=True, **fields), end("c", duration=0.0))
    assert good.splitlines() == ["M a +1 -1", "      3  x", "      4 -old", "      4 +new"]
    failed = end("c", failure="execution_failed", success=False)
    bad = printed(start, PatchApplyEnd(stderr="a: read-only\n", success=False, **fields), failed)
    assert "  ✗ a: read-only" in bad


def test_a_plan_replaces_its_call() -> None:
    plan = PlanUpdate(explanation=None, plan=[{"step": "look", "status": "completed"}])
    start = begin("c", "update_plan")
    start.exec_item = "todo_list"  # type: ignore[attr-defined]
    assert printed(start, plan, end("c")) == "  ✔ look\n"


def test_colour_is_for_terminals_and_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.get_terminal_size", lambda fd: __import__("os").terminal_size((80, 24)))
    monkeypatch.setattr(Tty, "fileno", lambda self: 1)
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert has_colour(Tty())
    assert not has_colour(io.StringIO())
    out = Tty()
    PlainPrinter(out)(AgentReasoning(text="hm"))
    assert out.getvalue() == "\x1b[2;3mhm\x1b[0m\n"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as set_:
            set_.setenv(name, value)
            out = Tty()
            PlainPrinter(out)(AgentReasoning(text="hm"))
            assert out.getvalue() == "hm\n"


def test_nothing_is_printed_while_a_question_stands_there() -> None:
    out = io.StringIO()
    printer = PlainPrinter(out)
    with printer.paused():
        printer(AgentReasoning(text="hm"))
        assert out.getvalue() == ""
    assert out.getvalue() == "hm\n"


@given(st.text(), st.text(), st.integers(20, 100) | st.none())
def test_nothing_drawn_acts_on_the_terminal(one: str, other: str, width: int | None) -> None:
    drawing = Drawing(width)
    cell = CallCell(
        call_id="c", tool=one, arguments=other, command=other, done=True, state="denied"
    )
    cell.reason, cell.notes = one, (other,)
    cell.files = (FileDiff(one, "update", other), FileDiff(other, "add", one))
    cell.output.feed(other)
    for shown in (cell, MessageCell(text=one), UserCell(text=other)):
        for line in drawing.lines(shown):
            assert styled(line, colour=False).isprintable()


@given(st.text())
def test_a_message_is_drawn_whole(text: str) -> None:
    drawn = "\n".join(styled(line, False) for line in Drawing(20).lines(MessageCell(text=text)))
    expected = "\n".join(safe_lines(text.strip("\n")))
    assert drawn == "\n".join(line.rstrip() for line in expected.split("\n"))


def test_the_numbers_of_a_diff_are_those_of_the_file() -> None:
    diff = "--- a\n+++ b\n@@ -10 +12,2 @@ def f\n-a\n+b\n+c\n@@ -20 +23 @@\n-x\n"
    drawn = [styled(line, False) for line in diff_lines(FileDiff("f", "update", diff))]
    assert drawn == ["     10 -a", "     12 +b", "     13 +c", "      ⋮", "     20 -x"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (12.3, "12 s"), (59.9, "1 min 0 s"), (200, "3 min 20 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# Stored sessions


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


ITEMS: list[dict[str, Any]] = [
    said("user", "<environment_context>not a user's"),
    said("user", "look"),
    {"type": "function_call", "call_id": "c", "name": "exec_command", "arguments": '{"cmd": "ls"}'},
    {"type": "custom_tool_call", "call_id": "d", "name": "apply_patch", "input": "*** Begin"},
    {"type": "function_call_output", "call_id": "c", "output": "a\nb"},
    said("assistant", "two ```files```"),
]


def test_items_become_the_same_cells() -> None:
    cells = stored_cells(ITEMS)
    assert [type(cell).__name__ for cell in cells] == [
        "UserCell",
        "CallCell",
        "CallCell",
        "MessageCell",
    ]
    listing, patch = cells[1:3]
    assert isinstance(listing, CallCell)
    assert isinstance(patch, CallCell)
    assert (listing.command, listing.result, listing.done) == ("ls", "a\nb", True)
    assert (patch.arguments, patch.done) == ("*** Begin", False)
    drawn = [styled(line, False) for line in Drawing().lines(listing)]
    assert drawn == ["$ ls", "  a", "  b"]


def test_markdown_is_whole_and_fenced() -> None:
    assert markdown(stored_cells(ITEMS)) == [
        "## User\n\nlook",
        "**exec_command**\n\n```\nls\n```\n\n**output of exec_command**\n\n```\na\nb\n```",
        "**apply_patch**\n\n```\n*** Begin\n```",
        "two ```files```",
    ]
    (block,) = markdown([CallCell(call_id="c", tool="t", arguments="```")])
    assert block == "**t**\n\n````\n```\n````"

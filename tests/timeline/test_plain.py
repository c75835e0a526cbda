"""The plain drawing: what `exec`, the demo and `sessions show` print."""

from __future__ import annotations

import io
import json
from time import thread_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.timeline.test_fold import (
    QUESTION,
    agent_calls,
    agent_is,
    asked,
    begin,
    complete,
    end,
    spawned,
)

from toolrest.agent.conversation.events import AgentMessage, AgentReasoning
from toolrest.agent.history.compaction import PREFIX
from toolrest.answer import Answer
from toolrest.events import (
    Event,
    ExecCommandBegin,
    ExecCommandEnd,
    PatchApplyEnd,
    PlanUpdate,
    ToolCallDecision,
    ToolCallDelta,
)
from toolrest.gate.approval.request import ApprovalRequest
from toolrest.policy.effects import Risk
from toolrest.timeline import plain
from toolrest.timeline.approval import describe
from toolrest.timeline.calls import call_title, failure_reason
from toolrest.timeline.cells import CallCell, FileDiff, MessageCell, UserCell
from toolrest.timeline.draw import Drawing, duration, safe_lines
from toolrest.timeline.draw_diff import diff_lines
from toolrest.timeline.plain import PlainPrinter, has_colour, styled
from toolrest.timeline.stored import markdown, stored_cells
from toolrest.timeline.wrap import plain_text


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


def command(call_id: str, line: str) -> tuple[Event, ExecCommandBegin]:
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
    assert lines[7] == "  ✗ exit code 1, 0.5 s"


def allowed(call_id: str, sandbox: str) -> Event:
    return ToolCallDecision(
        call_id=call_id,
        tool="exec_command",
        arguments="",
        verdict=Answer.ALLOW,
        rule="",
        risk="execute",
        sandbox=sandbox,
    )


@pytest.mark.parametrize(
    ("sandbox", "code", "line"),
    [
        ("none", 0, "  ✔ 0.5 s, outside the sandbox\n"),
        ("none", 3, "  ✗ exit code 3, 0.5 s, outside the sandbox\n"),
        ("confined", 0, "  ✔ 0.5 s\n"),
    ],
)
def test_a_command_that_left_the_sandbox_says_so(sandbox: str, code: int, line: str) -> None:
    begun, started = command("c", "make")
    text = printed(begun, allowed("c", sandbox), started, end("c", exit_code=code))
    assert text.endswith(line)


def test_a_command_that_was_tried_again_outside_says_so() -> None:
    begun, started = command("c", "make")
    ended = ExecCommandEnd(
        call_id="c",
        command=started.command,
        cwd="/ws",
        stdout="",
        stderr="",
        aggregated_output="",
        exit_code=0,
        duration=0.5,
        formatted_output="",
    )
    text = printed(begun, allowed("c", "confined"), started, ended, end("c", exit_code=0))
    assert text.endswith("  ✔ 0.5 s, outside the sandbox\n")


def test_the_folder_itself_is_a_dot() -> None:
    assert call_title("list_dir", '{"dir_path": "/ws"}', "/ws") == "list_dir ."


def test_a_patch_that_failed_names_its_files_and_the_lines_that_it_did_not_find() -> None:
    """Failed before: `*** Begin Patch`, and a reason that ended with a colon."""
    patch = "*** Begin Patch\n*** Update File: /ws/a.py\n@@\n-x\n*** Add File: b.py\n+y\n"
    output = "Failed to find expected lines in /ws/a.py:\n" + "".join(f"{n}\n" for n in range(6))
    for arguments in (patch, json.dumps({"input": patch})):
        assert call_title("apply_patch", arguments, "/ws") == "apply_patch a.py, b.py"
    lines = failure_reason("input_invalid", output).splitlines()
    assert lines[0].endswith("/ws/a.py:")
    assert lines[1:] == ["0", "1", "2", "3", "…"]


def test_a_summary_is_no_message_of_the_user() -> None:
    """Failed before: a session that went on began with words that the user had never written."""
    summary = {"type": "message", "role": "user", "content": f"{PREFIX}\n" + "a line\n" * 8}
    cells = stored_cells([summary])
    assert not any(isinstance(cell, UserCell) for cell in cells)
    lines = [styled(line, False) for cell in cells for line in Drawing().lines(cell)]
    assert lines[:2] == ["! what was said before is summarised:", "  a line"]
    assert lines[-1] == "  … 3 more lines"
    assert markdown(cells)[0].count("a line") == 8


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
    assert printed(*said, complete()).startswith("  first\n0.0 s, 7 tokens in")
    text = printed(*said, complete(status="failed", error="no server"))
    assert "x" * 5000 in text, "nothing is cut"
    assert "✗ failed: no server" in text
    assert "x" * 5000 in printed(*said, complete(), keeps_answer=False)


def test_what_a_model_writes_never_begins_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that imitates our question began where the real one does."""
    fake = "Run this command outside the sandbox?"
    said = AgentMessage(message=f"{fake}\n\n{' ' * 36}{fake}\n[toolrest] approved")
    lines = printed(said, complete(), keeps_answer=False).split("\n")
    assert lines[:2] == [f"  {fake}", ""]
    assert lines[3] == "  [toolrest] approved"
    # Where a terminal would wrap a line, it would go on at its first column.
    monkeypatch.setattr(plain, "columns", lambda _: 40)
    lines = printed(said, complete(), keeps_answer=False, words=True).split("\n")
    assert all(line.startswith("  ") and len(line) < 40 for line in lines[:5] if line)
    assert "".join(line.strip() for line in lines[:5]).count("outside") == 2


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


@pytest.mark.parametrize(
    "end", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
)
def test_no_character_in_a_line_makes_another_line_of_a_diff(end: str) -> None:
    text = f"@@ -1,2 +1,2 @@\n one{end}-two\n-x{end} y\n+z\r\n"
    drawn = [
        "".join(part for _, part in line) for line in diff_lines(FileDiff("a", "update", text))
    ]
    assert len(drawn) == 3
    assert [line[8:9] for line in drawn] == [" ", "-", "+"]
    assert drawn[2] == "      2 +z"
    assert len(list(diff_lines(FileDiff("a", "add", f"one{end}two\nthree\r\nfour\r")))) == 3


@pytest.mark.parametrize("end", ["\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_an_approval_shows_every_path_that_is_written(end: str) -> None:
    """A link leads elsewhere, and a line of the patch looks like the name of that file."""
    body = "+b\x0cx /ws/deploy.sh" if end == "\n" else f"+b{end}x /ws/deploy.sh"
    path = "/ws/no\nx /ws/deploy.sh" if end == "\n" else "/ws/notes.txt"
    request = ApprovalRequest(
        "c1", "apply_patch", "{}", "it writes", Risk.WRITE,
        keys=(f"write:{path}", "write:/ws/deploy.sh"),
        diff=f"update {path}\n@@ -1 +1,2 @@\n a\n{body}\n",
        changes={path: {"type": "update", "unified_diff": body, "move_path": None}},
    )  # fmt: skip
    written = [line for line in describe(request) if line.startswith("  Writes ")]
    assert written == ["  Writes /ws/deploy.sh."]


def test_a_question_is_drawn_with_its_answer_once_it_has_one() -> None:
    answer = '{"answers":{"drop":{"answers":["Yes"]},"key":{"answers":["hunter22"]}}}'
    secret = {"id": "key", "header": "Key", "question": "The key?", "isSecret": True}
    text = printed(begin(tool="asks"), asked(QUESTION, secret), end(output=answer))
    assert text.splitlines() == [
        "The model asked: Drop",
        "  Drop it?",
        "  ✔ Yes",
        "The model asked: Key",
        "  The key?",
        "  ✔ (not shown)",
    ]


def test_sub_agents_are_drawn_when_they_start_and_when_they_end() -> None:
    events = [
        *spawned(),
        agent_calls("read_file"),
        agent_is({"completed": "two callers\nboth fine"}),
        *spawned("a2", "measure", "root/default-2"),
        agent_is("running", "b", "root/default-2/explorer-1"),
        agent_is({"errored": "Interrupted"}, "b", "root/default-2/explorer-1"),
    ]
    assert printed(*events).splitlines() == [
        "▸ agent explorer-1: look",
        "✔ agent explorer-1 (1 call): look",
        "  two callers",
        "  both fine",
        "▸ agent default-2: measure",
        "  ▸ agent explorer-1",
        "  ✗ agent explorer-1",
        "    Interrupted",
    ]
    words = printed(*events, words=True)
    assert "now: agent explorer-1: look" in words
    assert "done: agent explorer-1 (1 call): look" in words


def stored(tool: str, arguments: Any, output: Any, call_id: str) -> list[dict[str, Any]]:
    compact = json.dumps(output, separators=(",", ":"))
    return [
        {
            "type": "function_call",
            "name": tool,
            "arguments": json.dumps(arguments),
            "call_id": call_id,
        },
        {"type": "function_call_output", "call_id": call_id, "output": compact},
    ]


def test_stored_sessions_have_the_same_cells() -> None:
    items = [
        *stored("asks", {"questions": [QUESTION]}, {"answers": {"drop": {"answers": ["No"]}}}, "q"),
        *stored("spawns", {"message": "look", "agent_type": "explorer"}, {"agent_id": "a1"}, "s"),
        *stored("waits", {"ids": ["a1"]}, {"status": {"a1": {"completed": "two"}}}, "w"),
        *stored(
            "plans", {"plan": [{"step": "a", "status": "completed"}, {"step": "b"}]}, "ok", "p"
        ),
        *stored("closes", {"id": "a1"}, {"status": {"completed": "two"}}, "x"),
    ]
    cells = stored_cells(items)
    lines = [styled(line, False) for cell in cells for line in Drawing().lines(cell)]
    assert lines[:8] == [
        "The model asked: Drop",
        "  Drop it?",
        "  ✔ No",
        "▸ agent explorer-1: look",
        "✔ agent explorer-1: look",
        "  two",
        "  ✔ a",
        "  · b",
    ]
    text = "\n\n".join(markdown(cells))
    assert "**Drop**\n\nDrop it?\n\n> No" in text
    assert "**sub-agent explorer-1, completed**\n\nlook\n\ntwo" in text
    assert "- [x] a\n- [ ] b" in text
    assert '"agent_id"' not in text


def test_a_removed_line_that_begins_like_a_head_is_shown() -> None:
    """Failed before where a change empties the file: a question did not show that line."""
    text = "--- a.sql\n+++ a.sql\n@@ -1,2 +0,0 @@\n--- the users\n-select 1\n"
    drawn = [plain_text(line) for line in diff_lines(FileDiff("a.sql", "update", text))]
    assert drawn == ["      1 --- the users", "      2 -select 1"]


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [150, 3000])
def test_changed_words_are_looked_for_as_long_as_it_is_quick(pairs: int) -> None:
    """Failed before: a question with such a change stopped the chat for half a minute."""
    line = "a," * 199
    text = f"@@ -1,{pairs} +1,{pairs} @@\n" + f"-{line}q\n" * pairs + f"+z{line}\n" * pairs
    began = thread_time()
    assert len(diff_lines(FileDiff("a", "update", text))) == 2 * pairs
    assert thread_time() - began < 0.6

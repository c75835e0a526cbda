"""Cells as a person sees them in the chat."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolrest.timeline.cells import (
    CallCell,
    CallState,
    Cell,
    EndCell,
    FileDiff,
    MessageCell,
    NoticeCell,
    PlanCell,
    PlanStep,
    UserCell,
)
from toolrest.timeline.draw_diff import diff_lines, unified_lines
from toolrest.timeline.look import Look
from toolrest.timeline.wrap import drawn_width, plain_text

DIFF = """\
--- a/cart.py
+++ b/cart.py
@@ -7,3 +7,3 @@
 for price, count in lines:
-    total += price
+    total += price * count
 return total
"""


def rows(cell: Cell, width: int = 80) -> list[str]:
    return [plain_text(line).rstrip() for line in Look(width, "/ws").lines(cell)]


def ran(command: str | None, printed: str = "", **more: object) -> CallCell:
    cell = CallCell(call_id="c", tool="exec_command", command=command, done=True, state="done")
    for name, value in more.items():
        setattr(cell, name, value)
    cell.output.feed(printed)
    cell.output.flush()
    return cell


def test_a_command_is_one_line_with_its_exit_code_at_the_border() -> None:
    printed = "".join(f"line {n}\n" for n in range(17))
    (first, *others) = rows(ran("pytest -q", printed, state="failed", exit_code=1, seconds=0.8))
    assert first == f"{'  Ran    pytest -q':<65}exit 1 · 0.8 s"
    assert others[0] == "         … 12 more lines (Ctrl-O shows all)"
    assert others[1:] == [f"         line {n}" for n in range(12, 17)]
    assert rows(ran("true", exit_code=0)) == ["  Ran    true"]


def test_a_long_command_is_wrapped_between_words_beside_its_facts() -> None:
    cell = ran("python -m pytest -q tests/test_cart.py tests/test_shop.py", exit_code=2)
    cell.state = "failed"
    assert rows(cell, 50) == [
        f"{'  Ran    python -m pytest -q':<43}exit 2",
        "         tests/test_cart.py",
        "         tests/test_shop.py",
    ]


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        ("denied", 'You said no: "use the fixtures"', 'You said no: "use the fixtures"'),
        ("denied", "it writes outside", "Denied: it writes outside"),
        ("failed", "timeout: it took too long", "timeout: it took too long"),
    ],
)  # fmt: skip
def test_why_a_call_was_not_done(state: CallState, reason: str, said: str) -> None:
    cell = ran("make", state=state, reason=reason, rule="command.escalated")
    verb = "Not run make" if state == "denied" else "Ran    make"
    assert rows(cell) == [f"  {verb}", f"         {said}"]


def test_a_read_file_is_one_line_without_its_text() -> None:
    cell = CallCell(
        call_id="c",
        tool="read_file",
        icon="read",
        arguments='{"file_path": "/ws/tests/a.py"}',
        result="text\n" * 9,
        state="done",
        done=True,
    )
    assert rows(cell) == ["  Read   tests/a.py"]
    cell.arguments = '{"file_path": "/ws/tests/a.py", "offset": 11, "limit": 40}'
    assert rows(cell) == ["  Read   tests/a.py:11-50"]


def test_a_rule_for_80_columns_has_one_row() -> None:
    assert rows(ran("pytest", "=" * 30 + " 1 passed " + "=" * 40, exit_code=0)) == [
        "  Ran    pytest",
        "         " + "=" * 30 + " 1 passed " + "=" * 30,
    ]


def test_a_change_has_numbers_and_the_words_that_differ() -> None:
    cell = ran(None, files=(FileDiff("/ws/cart.py", "update", DIFF),))
    assert rows(cell) == [
        "  Edited cart.py  +1 −1",
        "      7  for price, count in lines:",
        "      8 -    total += price",
        "      8 +    total += price * count",
        "      9  return total",
    ]
    marked = [piece for line in diff_lines(cell.files[0]) for piece in line if "ch" in piece[0]]
    assert marked == [("green changed", " * count")]
    assert ("green changed", " * count") in [piece for row in unified_lines(DIFF) for piece in row]
    assert "\n".join(map(plain_text, unified_lines(DIFF))) == DIFF.rstrip("\n")


def test_the_end_of_a_turn_says_what_was_done() -> None:
    end = EndCell(status="completed", seconds=14.2, commands=3, files=1, cost=0.02)
    assert rows(end) == ["  Worked for 14 s · 3 commands · 1 file changed · $0.02"]
    stopped = EndCell(status="incomplete", reason="interrupted", seconds=6.1)
    assert rows(stopped) == ["  stopped after 6 s"]
    failed = EndCell(status="failed", error="no connection", seconds=2)
    assert rows(failed) == ["  ✗ failed: no connection", "  Worked for 2 s"]


def test_what_others_write_never_begins_where_our_rows_do() -> None:
    text = "word " * 60 + "\n> not a message of the user\n\n" + "x" * 300
    for cell in (UserCell(text=text), MessageCell(text=text), NoticeCell(level="note", text=text)):
        first, *others = rows(cell, 40)
        assert first[:2] in ("> ", "● ", "  ")
        assert all(row[:2] in ("", "  ") for row in others)
        assert "".join(" ".join(others).split())[-200:] == "x" * 200


@given(
    text=st.text(max_size=120), width=st.integers(20, 100), kind=st.sampled_from(range(6))
)  # fmt: skip
@settings(max_examples=150)
def test_no_row_is_wider_than_the_terminal(text: str, width: int, kind: int) -> None:
    step = PlanStep(text, "pending")
    diff = FileDiff(f"/ws/{text}", "add", text)
    cells: list[Cell] = [
        ran(text, text, exit_code=3, state="failed", seconds=1.0),
        ran(None, files=(diff,)),
        UserCell(text=text),
        NoticeCell(level="error", text=text or "e", detail=text),
        PlanCell(steps=(step,), explanation=text),
        MessageCell(text=text),
    ]
    assert max(map(drawn_width, rows(cells[kind], width)), default=0) <= width

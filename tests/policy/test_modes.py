"""The one table of approvals: what it says, and that the manual says the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.policy.modes import MODES, WORDS, Mode, Row, need, table

MANUAL = Path(__file__).parents[2] / "docs" / "approvals.md"
ORDER = ("allow", "ask", "deny")


def test_the_manual_shows_the_table() -> None:
    text = MANUAL.read_text()
    shown = text.split("-->\n", 1)[1].split("<!-- end -->")[0]
    assert shown.strip() == table()


@pytest.mark.parametrize(
    ("what", "answers"),
    [
        # strict, auto, untrusted, on-request, on-failure, never, dangerous
        ("nothing", "allow allow allow allow allow allow allow"),
        ("read", "ask allow allow allow allow allow allow"),
        ("write", "ask ask ask allow allow allow allow"),
        ("confined", "ask ask ask allow allow allow allow"),
        ("execute", "ask ask ask ask ask allow allow"),
        ("leave", "ask ask ask ask ask deny deny"),
        ("critical", "ask ask ask ask ask deny allow"),
        ("refused", "deny deny deny deny deny deny deny"),
    ],
)
def test_rows(what: Row, answers: str) -> None:
    assert [need(what, mode) for mode in MODES] == answers.split()


@given(st.sampled_from(sorted(WORDS)), st.booleans(), st.booleans())
def test_a_stricter_mode_never_allows_what_a_looser_one_asks(
    what: Row, sandboxed: bool, command: bool
) -> None:
    asking: tuple[Mode, ...] = ("strict", "untrusted", "on-request", "on-failure")
    answers = [need(what, mode, sandboxed=sandboxed, command=command) for mode in asking]
    places = [ORDER.index(answer) for answer in answers]
    assert places == sorted(places, reverse=True)


@given(st.sampled_from(sorted(WORDS)), st.booleans(), st.booleans())
def test_where_nobody_is_asked_nothing_asks(what: Row, sandboxed: bool, command: bool) -> None:
    for mode in ("never", "dangerous"):
        assert need(what, mode, sandboxed=sandboxed, command=command) != "ask"

"""The one table of approvals: what it says, and that the manual says the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolrest.policy.modes import MODES, WORDS, Mode, What, need, table

MANUAL = Path(__file__).parents[2] / "docs" / "approvals.md"
ORDER = ("skip", "ask", "forbid")


def test_the_manual_shows_the_table() -> None:
    text = MANUAL.read_text()
    shown = text.split("-->\n", 1)[1].split("<!-- end -->")[0]
    assert shown.strip() == table()


@pytest.mark.parametrize(
    ("what", "answers"),
    [
        # strict, auto, untrusted, on-request, on-failure, never, dangerous
        ("nothing", "skip skip skip skip skip skip skip"),
        ("read", "ask skip skip skip skip skip skip"),
        ("write", "ask ask ask skip skip skip skip"),
        ("confined", "ask ask ask skip skip skip skip"),
        ("execute", "ask ask ask ask ask skip skip"),
        ("leave", "ask ask ask ask ask forbid forbid"),
        ("critical", "ask ask ask ask ask forbid skip"),
        ("refused", "forbid forbid forbid forbid forbid forbid forbid"),
    ],
)
def test_rows(what: What, answers: str) -> None:
    assert [need(what, mode) for mode in MODES] == answers.split()


@given(st.sampled_from(sorted(WORDS)), st.booleans(), st.booleans())
def test_a_stricter_mode_never_skips_what_a_looser_one_asks(
    what: What, sandboxed: bool, command: bool
) -> None:
    asking: tuple[Mode, ...] = ("strict", "untrusted", "on-request", "on-failure")
    answers = [need(what, mode, sandboxed=sandboxed, command=command) for mode in asking]
    places = [ORDER.index(answer) for answer in answers]
    assert places == sorted(places, reverse=True)


@given(st.sampled_from(sorted(WORDS)), st.booleans(), st.booleans())
def test_where_nobody_is_asked_nothing_asks(what: What, sandboxed: bool, command: bool) -> None:
    for mode in ("never", "dangerous"):
        assert need(what, mode, sandboxed=sandboxed, command=command) != "ask"

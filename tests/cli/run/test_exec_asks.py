"""`toolrest exec` at a terminal asks what needs approval, and nothing but a typed answer counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.forked import TOOLREST
from tests.patience import hurry, patient
from tests.screen import Screen

from toolrest.testing import Call

pytestmark = pytest.mark.needs("sandbox")

OUTSIDE = {
    "cmd": "echo was here > ../outside",
    "login": False,
    "sandbox_permissions": "require_escalated",
    "justification": "May I?",
}


@pytest.fixture
def asks(desk: Any, serve: Any) -> Any:
    serve([Call("exec_command", OUTSIDE), "that was it"])

    def start(*options: str, program: Sequence[str] = (TOOLREST,), **more: Any) -> Screen:
        return Screen([*program, "exec", *options, "go"], cwd=desk.workspace, **more)

    return start


def outside(desk: Any) -> bool:
    return bool((desk.workspace.parent / "outside").exists())


@pytest.mark.slow
def test_a_person_approves(desk: Any, asks: Any) -> None:
    with asks() as screen:
        screen.sees(
            "Run this command outside the sandbox?", "| echo was here > ../outside", "Answer:"
        )
        screen.types("y\n")
        assert screen.ends() == 0
        assert "that was it" in screen.text
    assert outside(desk)


@pytest.mark.slow
def test_a_person_denies_and_says_why(desk: Any, asks: Any) -> None:
    with asks() as screen:
        screen.sees("Answer:")
        screen.types("n not now\n")
        assert screen.ends() == 0
        assert 'You said no: "not now"' in screen.text
    assert not outside(desk)


@pytest.mark.slow
def test_what_is_typed_ahead_is_no_answer(desk: Any, asks: Any) -> None:
    with asks(program=patient("QUIET")) as screen:
        screen.sees("Run this command")
        for _ in range(20):  # the user types on and on
            screen.types("y\n")
            screen.read(0.05)
        assert "Answer:" not in screen.text
        hurry(screen)
        screen.types("y\n")
        screen.sees("Answer:")
        screen.types("n\n")
        assert screen.ends() == 0
        assert "You said no" in screen.text
    assert not outside(desk)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pasted", "pasted unmarked"])
def test_what_was_not_typed_as_an_answer_is_none(desk: Any, asks: Any, how: str) -> None:
    with asks() as screen:
        screen.sees("Answer:")
        screen.types("\x1b[200~y\n\x1b[201~\n" if how == "pasted" else "y\ny\ny\n")
        screen.sees("A paste does not answer")
        screen.until(lambda: screen.rows[screen.cursor[0]].endswith("Answer:"))
        assert not outside(desk)
        screen.types("n\n")
        assert screen.ends() == 0
    assert not outside(desk)


@pytest.mark.parametrize("options", [("--no-ask",), ("--json",), ("-c", "on_ask=deny")])
def test_scripts_are_not_asked(desk: Any, asks: Any, options: tuple[str, ...]) -> None:
    with asks(*options) as screen:
        assert screen.ends() == 0
        assert "Answer:" not in screen.text
    assert not outside(desk)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(24, 80), (60, 80)])
def test_what_does_not_fit_the_screen_is_seen_first(
    desk: Any, serve: Any, size: tuple[int, int]
) -> None:
    """Failed before: its beginning had scrolled away, and `y` approved it all the same."""
    command = "\n".join([str(OUTSIDE["cmd"]), *(f"true {n}" for n in range(20))])
    serve([Call("exec_command", OUTSIDE | {"cmd": command}), "that was it"])
    with Screen([TOOLREST, "exec", "go"], cwd=desk.workspace, size=size) as screen:
        screen.sees("Answer:")
        assert "echo was here" in screen.now, "its beginning is on the screen"
        if size[0] < 30:
            assert "more below: e shows all" in screen.now
            assert "1. Yes" not in screen.now
            screen.types("e\n")
            screen.sees("true 19", "1. Yes")
            screen.until(lambda: screen.text.count("Answer:") == 2)
        screen.types("y\n")
        assert screen.ends() == 0
    assert outside(desk)

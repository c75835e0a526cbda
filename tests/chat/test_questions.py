"""Questions of the model: what is written for a message is never the answer, and the reverse.

And its sub-agents: each is seen while it works, and what became of it stays.
"""

from __future__ import annotations

import json
import os
import re
from itertools import repeat
from typing import Any

import pytest
from tests.chat.test_approvals import quiet
from tests.chat.test_chat import ENTER, ESC
from tests.forked import TOOLREST
from tests.machine import require
from tests.patience import hurry, patient
from tests.screen import Screen

from toolrest.config.trust import distrust
from toolrest.testing import Call, Say

TOOL = "request_user_input"
OPTIONS = [{"label": "Yes", "description": "It goes"}, {"label": "No", "description": "It stays"}]
DROP = {"id": "drop", "header": "Drop", "question": "Drop the table?", "options": OPTIONS}


def asks(*questions: dict[str, Any]) -> Call:
    return Call(TOOL, {"questions": list(questions or (DROP,))})


def held(desk: Any, *questions: dict[str, Any]) -> list[Any]:
    """A command that waits for `gate`, and the questions after it."""
    require("sandbox")
    os.mkfifo(desk.workspace / "gate")
    return [Call("exec_command", {"cmd": "echo held; cat gate", "login": False}), asks(*questions)]


def let_go(desk: Any) -> None:
    with open(desk.workspace / "gate", "w") as gate:
        gate.write("on\n")


def answers_of(serve: Any) -> list[str]:
    """What the model got for its questions."""
    bodies = [request.body["input"] for request in serve.servers[-1].requests]
    outputs = (item for body in bodies[-1:] for item in body if "output" in item)
    return [text for item in outputs if "answers" in (text := json.dumps(item["output"]))]


def drafted(chat: Any, desk: Any, *script: Any) -> Screen:
    """A chat in which the model asks while a message is half written."""
    screen: Screen = chat([*held(desk), *script])
    screen.types("go" + ENTER)
    screen.shows("  held")
    screen.types("also add a test")
    screen.shows("› also add a test")
    let_go(desk)
    screen.shows("Drop the table?")
    return screen


OTHER = "Another answer"


def words(screen: Screen, text: str, number: int = 3) -> None:
    """Give an answer of one's own."""
    quiet(screen)
    screen.types(str(number))
    screen.shows("Enter sends your answer")
    screen.types(text)


@pytest.mark.slow
def test_a_message_that_is_being_written_is_no_answer(chat: Any, desk: Any, serve: Any) -> None:
    """And it is there again once the question is answered."""
    screen = drafted(chat, desk, "as you like", "and that")
    screen.types(ENTER)
    screen.shows("› also add a test", "one moment")
    quiet(screen)
    assert not answers_of(serve)
    screen.types("2")
    screen.sees("as you like")
    screen.shows("› also add a test")
    (answer,) = answers_of(serve)
    assert "No" in answer
    assert "also" not in answer
    screen.types(ENTER)
    screen.sees("> also add a test", "and that")


@pytest.mark.slow
def test_declining_leaves_the_message(chat: Any, desk: Any) -> None:
    """Failed before: Esc took the draft along."""
    screen = drafted(chat, desk, "as you like")
    quiet(screen)
    screen.types(ESC)
    screen.sees("as you like")
    screen.shows("› also add a test")


@pytest.mark.slow
def test_keys_that_come_with_the_question_answer_nothing(chat: Any, desk: Any, serve: Any) -> None:
    screen = chat([*held(desk), "as you like"], program=patient("QUIET"))
    screen.types("go" + ENTER)
    screen.shows("  held")
    let_go(desk)
    screen.shows("Drop the table?")
    for keys in ("2", ENTER, "not an answer" + ENTER):
        screen.types(keys)
        screen.shows("one moment")
    hurry(screen)
    screen.types("2")
    quiet(screen)
    assert not answers_of(serve)
    screen.types("1")
    screen.sees("as you like")
    (answer,) = answers_of(serve)
    assert "Yes" in answer
    assert "not an" not in answer + screen.text


@pytest.mark.slow
@pytest.mark.parametrize("keys", ["\x1b[B\r", "2"])
def test_an_answer_is_chosen(chat: Any, serve: Any, keys: str) -> None:
    screen = chat([asks(), "as you like"])
    screen.types("go" + ENTER)
    screen.shows("The model asks: Drop", "› 1. Yes: It goes", "2. No: It stays", f"3. {OTHER}")
    for key in re.findall(r"\x1b..|.", keys, re.DOTALL):
        quiet(screen)
        screen.types(key)
    screen.sees("as you like")
    (answer,) = answers_of(serve)
    assert json.loads(json.loads(answer)) == {"answers": {"drop": {"answers": ["No"]}}}


@pytest.mark.slow
def test_an_answer_of_ones_own_gives_the_line_back(chat: Any, desk: Any, serve: Any) -> None:
    screen = drafted(chat, desk, "as you like")
    words(screen, "rather rename it")
    screen.shows("› rather rename it")
    screen.types(ESC)
    screen.shows("› also add a test", OTHER)
    words(screen, "rather rename it" + ENTER)
    screen.sees("as you like")
    screen.shows("› also add a test")
    (answer,) = answers_of(serve)
    assert "rather rename it" in answer


@pytest.mark.slow
def test_a_question_for_words_takes_the_line_once_it_is_quiet(
    chat: Any, desk: Any, serve: Any
) -> None:
    screen = chat([*held(desk, SECRET), "as you like"])
    screen.types("go" + ENTER)
    screen.shows("  held")
    screen.types("also add a test")
    let_go(desk)
    screen.shows("The key?")
    screen.types("dropped")
    screen.shows("Enter sends your answer", "›")
    screen.types("hunter22")
    screen.shows("› ********")
    screen.types(ENTER)
    screen.sees("as you like")
    screen.shows("› also add a test")
    (answer,) = answers_of(serve)
    assert json.loads(json.loads(answer)) == {"answers": {"key": {"answers": ["hunter22"]}}}


SECRET = {"id": "key", "header": "Key", "question": "The key?", "options": [], "isSecret": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("/n", "/n"),
        ("C:\\folder\\", "C:\\folder\\"),
        pytest.param("\x1b[200~" + "a line\r" * 22 + "\x1b[201~", "a line\n" * 22, id="paste"),
    ],
)
def test_an_answer_is_what_was_typed(chat: Any, serve: Any, typed: str, answer: str) -> None:
    """Failed before: completed to /new, without its last character, and the mark of the paste."""
    screen = chat([asks(), "thank you"])
    screen.types("go" + ENTER)
    screen.shows("Drop the table?")
    words(screen, typed)
    screen.shows(f" {answer[:6]}")
    quiet(screen)
    screen.types(ENTER)
    screen.sees("thank you")
    (found,) = answers_of(serve)
    assert json.loads(json.loads(found)) == {"answers": {"drop": {"answers": [answer.strip()]}}}


@pytest.mark.slow
def test_a_secret_is_what_was_typed_and_not_shown(chat: Any, serve: Any) -> None:
    """Failed before: a backslash at its end made a new line."""
    screen = chat([asks(SECRET), "thank you"])
    screen.types("go" + ENTER)
    screen.shows("The key?", "Enter sends your answer")
    screen.types("hunter22-\\")
    screen.shows("› **********")
    screen.types(ENTER)
    screen.sees("thank you")
    (found,) = answers_of(serve)
    assert json.loads(json.loads(found)) == {"answers": {"key": {"answers": ["hunter22-\\"]}}}
    assert "hunter22" not in screen.text


@pytest.mark.slow
def test_a_question_stays_above_with_its_answer(chat: Any) -> None:
    screen = chat([asks(), "as you like"])
    screen.types("go" + ENTER)
    screen.shows("The model asks: Drop")
    quiet(screen)
    assert screen.text.count("Drop the table?") == 1, "once, while it waits"
    screen.types("2")
    screen.sees("The model asked: Drop", "  Drop the table?", "  ✔ No", "as you like")
    assert TOOL not in screen.text


@pytest.mark.slow
def test_a_declined_question_says_so(chat: Any) -> None:
    screen = chat([asks(), "then not"])
    screen.types("go" + ENTER)
    screen.shows("The model asks: Drop")
    quiet(screen)
    screen.types(ESC)
    screen.sees("The model asked: Drop", "✗", "then not")


HOLDS = Call("exec_command", {"cmd": "echo held; cat gate", "login": False})
TASK = "look for callers"


def delegates(request: Any) -> Any:
    """The parent starts an agent and waits for it; the agent runs a command and reports."""
    said = json.dumps(request["input"])
    outputs = [item["output"] for item in request["input"] if "output" in item]
    if '"go"' not in said:
        return Say("two callers\n\nboth fine") if outputs else HOLDS
    if not outputs:
        return Call("spawn_agent", {"message": TASK, "agent_type": "explorer"})
    (agent,) = re.findall(r'"agent_id":"([^"]+)"', outputs[0])
    return Say("that was it") if outputs[1:] else Call("wait", {"ids": [agent]})


@pytest.mark.needs("sandbox")
def test_a_sub_agent_shows_what_it_does_and_what_came_of_it(chat: Any, desk: Any) -> None:
    os.mkfifo(desk.workspace / "gate")
    screen = chat(repeat(delegates))
    screen.types("go" + ENTER)
    screen.shows(f"▸ agent explorer-1: {TASK}", "  $ echo held; cat gate")
    with open(desk.workspace / "gate", "w") as gate:
        gate.write("on\n")
    screen.sees("that was it")
    screen.lacks("▸ agent")
    rows = screen.text.splitlines()
    (at,) = (n for n, row in enumerate(rows) if row.startswith("  ✔ agent explorer-1 ("))
    done = rf"  ✔ agent explorer-1 \(([\d.]+ s, )?1 call\): {TASK}"
    assert re.fullmatch(done, rows[at].rstrip())
    assert rows[at + 1] == "    two callers"
    assert "agent_id" not in screen.text
    assert "wait" not in screen.text


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_a_sub_agent_that_ends_prints_nothing_into_the_line(desk: Any, serve: Any) -> None:
    """Failed before: the plain chat printed its end behind the prompt."""

    def goes_on(request: Any) -> Any:
        step = delegates(request)
        return Say("that was it") if isinstance(step, Call) and step.name == "wait" else step

    os.mkfifo(desk.workspace / "gate")
    server = serve(repeat(goes_on))
    distrust(desk.workspace)
    with Screen([TOOLREST, "--plain"], cwd=desk.workspace) as plain:
        plain.sees("you:")
        plain.types("go" + ENTER)
        plain.sees("now: agent explorer-1", "that was it", "tokens in")
        plain.until(lambda: plain.rows[plain.cursor[0]] == "you:", "the prompt")
        let_go(desk)
        plain.types("and")
        plain.shows("you: and")
        plain.until(lambda: len(server.requests) == 4, "two of each agent")
        quiet(plain)
        assert plain.rows[plain.cursor[0]] == "you: and"
        plain.types(ENTER)
        plain.sees("done: agent explorer-1")

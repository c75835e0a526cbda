"""A folder that the chat does not know: one question, once, and the way out of a read-only session.

Each screen is that of a terminal of 80 columns.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.chat.test_approvals import answers, denies, quiet
from tests.forked import TOOLREST
from tests.patience import hurry, patient
from tests.screen import Screen

from toolrest.config.trust import revoke, trust, trust_of
from toolrest.control.client import ask_session
from toolrest.testing import Call, Say

PLAIN = ("chat", "--plain")
BOTH = pytest.mark.parametrize("words", [(), PLAIN], ids=["chat", "plain"])
READY = {(): "{} · gpt-5.5", PLAIN: "gpt-5.5, {}"}


def writes(name: str = "cart.py", **more: str) -> Call:
    return Call("write_file", {"file_path": name, "content": "total = 1\n", **more})


@pytest.fixture
def asks(desk: Any, serve: Any) -> Any:
    """Starts a chat in a folder that is not known; `~` is the folder around it."""

    def start(*words: str, script: Any = ("done",), **more: Any) -> Screen:
        if not serve.servers:  # the home is written once
            serve(script)
        program = more.pop("program", (TOOLREST,))
        env = {"HOME": str(desk.workspace.parent)}
        return Screen([*program, *words], cwd=more.pop("cwd", desk.workspace), env=env, **more)

    return start


def rollouts(desk: Any) -> list[Path]:
    return sorted(desk.home.rglob("rollout-*.jsonl"))


def asked(screen: Screen, words: Any) -> None:
    """The question is there: answered by a key in the chat, by a line in the plain one."""
    screen.sees("Answer [1]:" if words else "› 1. Yes")


def picks(screen: Screen, words: Any, key: str) -> None:
    asked(screen, words)
    if words:
        screen.types(f"{key}\n")
    else:
        answers(screen, key)


# The question


@pytest.mark.slow
@pytest.mark.parametrize("early", ["fix the test\r", "fix"])
def test_what_was_typed_before_the_question_is_kept(asks: Any, early: str) -> None:
    """Failed before: it was dropped."""
    with asks() as screen:
        screen.until(lambda: "›" in screen.now)
        screen.types(early)
        picks(screen, (), "1")
        screen.sees("> fix the test" if early.endswith("\r") else "› fix")


@pytest.mark.slow
@BOTH
def test_a_new_folder_is_asked_about_once(desk: Any, asks: Any, words: Any) -> None:
    """Also one that brings nothing."""
    with asks(*words) as screen:
        asked(screen, words)
        start = screen.rows.index("  Work in ~/project?")
        lines = ["  1. Yes   2. Read only   3. Quit", "  Answer [1]:"]
        if not words:
            lines = ["  › 1. Yes", "    2. Read only", "    3. Quit", "  Enter or 1-3 · Esc quits"]
        assert screen.rows[start : start + 3 + len(lines)] == [
            "  Work in ~/project?",
            "  The agent may edit files here; commands run in the sandbox.",
            "",
            *lines,
        ]
        picks(screen, words, "1")
        screen.sees(READY[words].format("workspace-write"))
    assert trust_of(desk.workspace) == "trusted"
    with asks(*words) as screen:
        screen.sees(READY[words].format("workspace-write"))
        assert "Work in" not in screen.text


@pytest.mark.slow
@BOTH
def test_read_only_is_remembered(desk: Any, asks: Any, words: Any) -> None:
    with asks(*words) as screen:
        asked(screen, words)
        if words:
            screen.types("maybe\n")
            screen.sees("Type 1, 2 or 3.")
            screen.until(lambda: screen.text.count("Answer [1]:") == 2)
        picks(screen, words, "2")
        screen.sees(READY[words].format("read-only"))
    assert trust_of(desk.workspace) == "untrusted"
    with asks(*words) as screen:
        screen.sees(READY[words].format("read-only"))
        assert "Work in" not in screen.text


@pytest.mark.slow
@pytest.mark.parametrize("typed", ["3", "\x04"])
@BOTH
def test_quit_starts_nothing(desk: Any, serve: Any, asks: Any, words: Any, typed: str) -> None:
    with asks(*words) as screen:
        asked(screen, words)
        if typed == "3":
            picks(screen, words, typed)
        else:
            screen.types(typed)
        assert screen.ends() == 0
        assert READY[words].format("read-only") not in screen.text
    assert trust_of(desk.workspace) is None
    assert rollouts(desk) == []
    assert serve.servers[0].requests == []


@pytest.mark.slow
@BOTH
def test_what_is_typed_ahead_is_no_answer(desk: Any, asks: Any, words: Any) -> None:
    with asks(*words, program=patient("QUIET")) as screen:
        screen.sees("3. Quit")
        for _ in range(10):  # the person types on and on
            screen.types("1\n" if words else "1\r")
            screen.read(0.02)
        assert "Answer [1]:" not in screen.text
        assert trust_of(desk.workspace) is None
        hurry(screen)
        screen.types("1\n" if words else "1\r")
        picks(screen, words, "2")
        screen.sees(READY[words].format("read-only"))
    assert trust_of(desk.workspace) == "untrusted"


@pytest.mark.slow
@pytest.mark.parametrize("pasted", ["\x1b[200~1\n\x1b[201~\n", "1\n1\n"], ids=["marked", "not"])
@BOTH
def test_a_paste_is_no_answer(desk: Any, asks: Any, words: Any, pasted: str) -> None:
    with asks(*words) as screen:
        asked(screen, words)
        if words:
            screen.types(pasted)
            screen.sees("A paste does not answer this; type it.")
            screen.until(lambda: screen.text.count("Answer [1]:") == 2)
        else:
            quiet(screen)
            screen.types(pasted.replace("\n", "\r"))
            screen.shows("one moment")
            quiet(screen)
        assert trust_of(desk.workspace) is None
        picks(screen, words, "3")
        assert screen.ends() == 0


@pytest.mark.slow
def test_what_a_folder_brings_is_named(desk: Any, asks: Any) -> None:
    (desk.workspace / ".git").mkdir()
    (desk.workspace / "AGENTS.md").write_text("Be brief.\n")
    (desk.workspace / ".toolrest").mkdir()
    (desk.workspace / ".toolrest" / "config.toml").write_text('approval_policy = "untrusted"\n')
    server = {"mcpServers": {"tea": {"command": "tea"}}}
    (desk.workspace / ".mcp.json").write_text(json.dumps(server))
    inner = desk.workspace / "src"
    inner.mkdir()
    with asks(cwd=inner) as screen:
        asked(screen, ())
        start = screen.rows.index("  Work in ~/project?")
        assert screen.rows[start + 2 : start + 5] == [
            "  AGENTS.md, .toolrest/config.toml and 1 MCP server here will count.",
            "",
            "  › 1. Yes",
        ]
        answers(screen, "\r")
        screen.sees("workspace-write · untrusted · gpt-5.5")
    assert trust_of(desk.workspace) == "trusted", "the repository, not the folder in it"


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["-s", "settings"])
def test_who_chose_the_sandbox_is_asked_only_about_what_counts(
    desk: Any, asks: Any, setting: str
) -> None:
    words = ("chat", *(("-s", "read-only") if setting == "-s" else ()))
    if setting == "settings":
        words += ("-c", 'sandbox_mode="read-only"')
    with asks(*words) as screen:
        screen.sees("read-only · gpt-5.5")
        assert "Answer" not in screen.text, "nothing is to be decided"
    assert trust_of(desk.workspace) is None
    (desk.workspace / "AGENTS.md").write_text("Be brief.\n")
    with asks(*words) as screen:
        asked(screen, ())
        start = screen.rows.index("  Trust ~/project?")
        assert screen.rows[start + 1 : start + 8] == [
            "  AGENTS.md here will count.",
            "  The sandbox stays as you chose it: read-only.",
            "  In later sessions the agent may edit files here.",
            "",
            "  › 1. Yes",
            "    2. No",
            "    3. Quit",
        ]
        picks(screen, (), "1")
        screen.sees("read-only · gpt-5.5")
    assert trust_of(desk.workspace) == "trusted"


@pytest.mark.slow
@BOTH
def test_a_home_is_read_only_and_says_why(desk: Any, asks: Any, words: Any) -> None:
    """And a folder that holds one which the person decided about on its own."""
    home = desk.workspace.parent
    with asks(*words, cwd=home) as screen:
        screen.sees(READY[words].format("read-only"), "~ is read-only: it is a home folder.")
        screen.sees("To work in it: toolrest trust")
        assert "1. Yes" not in screen.text
    above = home / "src"
    (above / "tea").mkdir(parents=True)
    trust(above / "tea")
    with asks(*words, cwd=above) as screen:
        screen.sees(READY[words].format("read-only"), "~/src is read-only: you decided about")
    (above / ".git").mkdir()
    with asks(*words, cwd=above) as screen:
        screen.sees("Work in ~/src?")
        asked(screen, words)


# The way out of a read-only session


ASKED = "Change cart.py?"
READ_ONLY = "This session is read-only."
OFFER = "Yes, and let me work here from now on"


def continued(desk: Any) -> str:
    (path,) = rollouts(desk)
    return path.read_text()


@pytest.mark.slow
def test_work_here_from_now_on(desk: Any, chat: Any) -> None:
    (desk.workspace / "AGENTS.md").write_text("Be brief.\n")
    script = [[Say("I repair it."), writes()], [writes("more.py")], "both are done"]
    screen = chat(script)
    screen.types("repair cart.py\r")
    screen.shows(ASKED, READ_ONLY, f". {OFFER} (AGENTS.md here will", "+total = 1")
    assert "outside the sandbox" not in screen.text
    answers(screen, "f")
    screen.sees("workspace-write · gpt-5.5", "both are done")
    assert (desk.workspace / "cart.py").read_text() == "total = 1\n"
    assert (desk.workspace / "more.py").exists(), "without another question"
    assert trust_of(desk.workspace) == "trusted"
    text = continued(desk)  # one session, whose calls all have their output
    assert text.count('"type":"function_call_output"') == 2
    assert "Be brief." in text, "what the folder brings counts from now on"


@pytest.mark.slow
def test_once_approves_this_patch_alone(desk: Any, chat: Any) -> None:
    screen = chat([[writes()], [writes("more.py")], "one of two"])
    screen.types("repair\r")
    screen.shows(ASKED, "1. Yes", OFFER)
    answers(screen, "y")
    screen.shows("Change more.py?", OFFER)
    denies(screen)
    screen.sees("one of two")
    assert (desk.workspace / "cart.py").exists()
    assert not (desk.workspace / "more.py").exists()
    assert trust_of(desk.workspace) == "untrusted"


@pytest.mark.slow
@BOTH
def test_a_folder_whose_settings_do_not_load_stays_read_only(
    desk: Any, asks: Any, words: Any
) -> None:
    with asks(*words, script=[[writes()], "done"]) as screen:
        picks(screen, words, "2")
        screen.sees(READY[words].format("read-only"))
        (desk.workspace / ".toolrest").mkdir()
        (desk.workspace / ".toolrest" / "config.toml").write_text('sandbox_mode = "no such"\n')
        screen.types("repair\r")
        screen.shows(ASKED, OFFER)
        if words:
            screen.shows("Answer:")
            screen.types("f\n")
        else:
            answers(screen, "f")
        screen.sees("the session stays read-only:", "done")
    assert (desk.workspace / "cart.py").exists()


@pytest.mark.slow
def test_the_plain_chat_goes_on_too(desk: Any, asks: Any) -> None:
    with asks(*PLAIN, script=[[writes()], [writes("more.py")], "both are done"]) as screen:
        screen.sees("Answer [1]:")
        screen.types("2\n")
        screen.sees("gpt-5.5, read-only", "you:")
        screen.types("repair cart.py\n")
        screen.sees(ASKED, f"f. {OFFER}", "Answer:")
        screen.types("f\n")
        screen.sees("gpt-5.5, workspace-write", "both are done")
    assert (desk.workspace / "more.py").exists()
    assert trust_of(desk.workspace) == "trusted"
    assert continued(desk).count('"type":"function_call_output"') == 2


@pytest.mark.slow
@pytest.mark.parametrize("why", ["-s", "/sandbox", "refused", "outside"])
def test_where_it_is_not_offered(desk: Any, chat: Any, why: str) -> None:
    words = ("chat", "-s", "read-only") if why == "-s" else ()
    env = {"HOME": str(desk.workspace)} if why == "refused" else {}
    name = "../cart.py" if why == "outside" else "cart.py"
    screen = chat([[writes(name)], "done"], *words, **env)
    if why == "/sandbox":
        screen.types("/sandbox read-only\r")
        screen.sees("Sandbox: read-only")
    if why == "refused":
        revoke(desk.workspace)
    screen.types("repair\r")
    screen.shows(f"Change {name}?", "1. Yes")
    assert "let me work here" not in screen.text
    answers(screen, "f")
    screen.shows("1. Yes")
    assert not (desk.workspace / name).exists()


@pytest.mark.slow
def test_front_ends_that_only_narrow_do_not_offer_it(desk: Any, chat: Any) -> None:
    screen = chat([[writes()], "done"])
    screen.types("repair\r")
    screen.shows(ASKED, OFFER)
    (path,) = rollouts(desk)
    thread = json.loads(path.read_text().splitlines()[0])["payload"]["id"]
    found = asyncio.run(ask_session(str(desk.home), thread, "waiting"))["waiting"][0]
    assert found["lines"][0] == ASKED
    assert {choice["scope"] for choice in found["choices"]} <= {
        "once",
        "session",
        "project",
        "user",
    }
    assert "work here" not in json.dumps(found)

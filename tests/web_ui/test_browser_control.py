"""Control in a real browser: a session is started, watched, answered, steered and ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import desk, serve  # noqa: F401 - fixtures
from tests.control.conftest import QUESTION, WRITE, adding
from tests.web_ui.conftest import Recorded, Served
from tests.web_ui.test_browser import EVIL

from toolrest.testing import Call, Say

pytestmark = pytest.mark.system

Begin = Callable[..., Any]


@pytest.fixture
def begin(browser: Any, desk: Any, serve: Any) -> Iterator[Begin]:  # noqa: F811
    """Starts a session from a page; a page's error fails the test."""
    served: list[Served] = []
    contexts: list[Any] = []
    errors: list[str] = []

    def start(script: Any, text: str = "go", settings: str = "") -> Any:
        serve(script)
        config = desk.home / "config.toml"
        config.write_text(settings + config.read_text())
        known = Recorded(desk.home)
        known.write("session_meta", {"id": known.id, "cwd": str(desk.workspace)})
        known.path.write_text(known.path.read_text().replace("/work", str(desk.workspace)))
        known.say("user", "an earlier session")
        served.append(Served(desk.home))
        contexts.append(browser.new_context(viewport={"width": 1100, "height": 900}))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(served[-1].link)
        page.click("#new summary")
        page.select_option("#folder", str(desk.workspace))
        page.fill("#first", text)
        page.click("#begin")
        page.wait_for_selector("#control", state="visible")
        return page

    yield start
    for context in contexts:
        context.close()
    for one in served:
        one.stop()
    assert errors == []


UNTRUSTED = 'approval_policy = "untrusted"\n'


def test_a_session_is_watched_from_the_first_token(begin: Begin) -> None:
    text = "alpha " + "gamma " * 98 + "delta."
    said = Say(text, chunks=100, seconds=100)
    tab = begin([said])
    tab.wait_for_selector("#live >> text=alpha")
    assert "delta" not in tab.inner_text("#live")
    said.seconds = 0  # the rest comes at once
    tab.wait_for_selector("#timeline >> text=delta")
    tab.wait_for_selector("#live li", state="detached")
    assert tab.locator(f"main >> text={text}").count() == 1


def test_an_approval_is_clicked_and_the_session_goes_on(begin: Begin, desk: Any) -> None:  # noqa: F811
    tab = begin([WRITE, "that was it"], settings=UNTRUSTED)
    tab.wait_for_selector(".card >> text=made.txt")
    tab.click(".card button.approve:not(:disabled)")
    tab.wait_for_selector(".card", state="detached")
    tab.wait_for_selector("#timeline >> text=that was it")
    assert (desk.workspace / "made.txt").exists()
    tab.click("#undo:not(:disabled)")
    tab.wait_for_selector("#message:has-text('made.txt')")
    assert not (desk.workspace / "made.txt").exists()
    tab.click("#end")
    tab.wait_for_selector("#control", state="hidden")


def test_a_question_is_answered_and_a_message_sent(begin: Begin) -> None:
    def chosen(body: Any) -> str:
        return "blue it is" if "blue" in str(body["input"][-1]) else "?"

    tab = begin([Call("request_user_input", {"questions": [QUESTION]}), chosen, "and a second"])
    tab.check(".card input[value=blue]")
    tab.click(".card button.approve:not(:disabled)")
    tab.wait_for_selector("#timeline >> text=blue it is")
    tab.fill("#say", "go on")
    tab.keyboard.press("Control+Enter")
    tab.wait_for_selector("#timeline >> text=and a second")
    assert tab.input_value("#say") == ""


def test_an_interrupt_ends_the_turn_and_its_question(begin: Begin, desk: Any) -> None:  # noqa: F811
    tab = begin([WRITE, "that was it"], settings=UNTRUSTED)
    tab.wait_for_selector(".card")
    tab.click("#interrupt:not(:disabled)")
    tab.wait_for_selector(".card", state="detached")
    tab.wait_for_selector("#interrupt:disabled")
    assert tab.locator("#undo").is_disabled()  # nothing was changed
    assert not Path(desk.workspace, "made.txt").exists()


def test_two_clicks_take_back_one_turn(begin: Begin, desk: Any) -> None:  # noqa: F811
    script = [adding("a.txt"), "first", adding("b.txt"), "second"]
    tab = begin(script, settings='approval_policy = "never"\nsandbox_mode = "workspace-write"\n')
    tab.wait_for_selector("#timeline >> text=first")
    tab.wait_for_selector("#undo:not(:disabled)")
    tab.fill("#say", "go on")
    tab.click("#send")
    tab.wait_for_selector("#timeline >> text=second")
    tab.wait_for_selector("#undo:not(:disabled)")
    tab.evaluate("() => { for (const _ of [1, 2]) document.getElementById('undo').click(); }")
    tab.wait_for_selector("#message:has-text('b.txt')")
    tab.wait_for_selector("#undo:not(:disabled)")
    assert sorted(path.name for path in desk.workspace.glob("*.txt")) == ["a.txt"]
    tab.click("#undo")
    tab.wait_for_selector("#message:has-text('a.txt')")
    tab.wait_for_selector("#undo:disabled")


def test_a_draft_stays_with_its_session(begin: Begin) -> None:
    tab = begin(["first answer", "second answer"])
    tab.wait_for_selector("#timeline >> text=first answer")
    own = tab.url
    tab.fill("#say", "half a message")
    tab.click("#new summary")
    tab.fill("#first", "another one")
    tab.click("#begin")
    tab.wait_for_selector("#message:has-text('has started')")
    assert (tab.url, tab.input_value("#say")) == (own, "half a message")
    tab.click("#sessions a:has-text('another one')")
    tab.wait_for_selector("#timeline >> text=second answer")
    tab.wait_for_selector("#control", state="visible")
    assert tab.input_value("#say") == ""
    tab.click("#sessions a:has-text('go')")
    tab.wait_for_selector("#timeline >> text=first answer")
    assert (tab.url, tab.input_value("#say")) == (own, "half a message")


def test_what_a_running_model_writes_and_asks_stays_text(begin: Begin) -> None:
    options = [{"label": EVIL, "description": EVIL}, {"label": "b", "description": "\u202e"}]
    evil = {**QUESTION, "question": EVIL, "options": options}
    said = Say(EVIL.ljust(100 * len(EVIL), "."), chunks=100, seconds=100)
    tab = begin([[said, Call("request_user_input", {"questions": [evil]})]])
    tab.wait_for_selector("#live >> text=onerror")
    said.seconds = 0  # the rest comes at once
    tab.wait_for_selector(".card >> text=onerror")
    assert "owned" not in tab.title()
    assert tab.locator(".card img, .card script, #live img, #live script").count() == 0
    assert "⟨U+202E⟩" in tab.inner_text(".card")


def test_axe_finds_nothing_serious_in_control(begin: Begin) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the group `system`")
    tab = begin([Call("request_user_input", {"questions": [QUESTION]}), "done"])
    tab.wait_for_selector(".card button.approve:not(:disabled)")
    tab.click("#new summary")
    found = axe.Axe().run(tab).response["violations"]
    assert [row["id"] for row in found if row["impact"] in ("serious", "critical")] == []

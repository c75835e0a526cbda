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

    def start(script: Any, text: str = "go", settings: str = "", more: str = "") -> Any:
        serve(script)
        config = desk.home / "config.toml"
        config.write_text(settings + config.read_text() + more)
        known = Recorded(desk.home)
        known.write("session_meta", {"id": known.id, "cwd": str(desk.workspace)})
        known.path.write_text(known.path.read_text().replace("/work", str(desk.workspace)))
        known.say("user", "an earlier session")
        served.append(Served(desk.home))
        contexts.append(browser.new_context(viewport={"width": 1100, "height": 900}))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(served[-1].link)
        page.select_option("#folder", str(desk.workspace))
        page.fill("#say", text)
        page.keyboard.press("Enter")
        page.wait_for_selector("#model option", state="attached")
        return page

    yield start
    for context in contexts:
        context.close()
    for one in served:
        one.stop()
    assert errors == []


GET = "document.getElementById"
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
    tab.wait_for_selector(".card h3:has-text('Change made.txt')")
    tab.wait_for_selector("#status:has-text('waiting for you')")
    tab.wait_for_selector("#sessions a.waiting >> text=made.txt")
    assert tab.title() == "(1) Waiting for you · Toolrest"
    tab.click(".card button.approve:not(:disabled)")
    tab.wait_for_selector(".card", state="detached")
    tab.wait_for_selector("#timeline >> text=that was it")
    assert (desk.workspace / "made.txt").exists()
    tab.wait_for_selector("#sessions a.idle")
    tab.click("#actions summary")
    tab.click("#undo:not(:disabled)")
    tab.wait_for_selector("#sure .files >> text=made.txt")
    assert (desk.workspace / "made.txt").exists(), "nothing is taken back before it was shown"
    tab.click("#sure-yes")
    tab.wait_for_selector("#message:has-text('made.txt')")
    assert not (desk.workspace / "made.txt").exists()
    tab.click("#actions summary")
    tab.click("#end")
    tab.wait_for_selector("#status:has-text('ended')")
    tab.wait_for_selector("#sessions a.ended[aria-current]")


def test_a_question_is_answered_and_a_message_sent(begin: Begin) -> None:
    def chosen(body: Any) -> str:
        return "blue it is" if "blue" in str(body["input"][-1]) else "?"

    tab = begin([Call("request_user_input", {"questions": [QUESTION]}), chosen, "and a second"])
    tab.check(".card input[value=blue]")
    tab.click(".card button.approve:not(:disabled)")
    tab.wait_for_selector("#timeline >> text=blue it is")
    tab.fill("#say", "go on")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#timeline >> text=and a second")
    assert tab.input_value("#say") == ""


def test_an_interrupt_ends_the_turn_and_its_question(begin: Begin, desk: Any) -> None:  # noqa: F811
    tab = begin([WRITE, "that was it"], settings=UNTRUSTED)
    tab.wait_for_selector(".card")
    assert tab.locator("#send").is_hidden(), "stop stands in its place"
    tab.click("#interrupt:not(:disabled)")
    tab.wait_for_selector(".card", state="detached")
    tab.wait_for_selector("#interrupt", state="hidden")
    assert tab.locator("#undo").is_disabled()  # nothing was changed
    assert not Path(desk.workspace, "made.txt").exists()


def test_two_clicks_take_back_one_turn(begin: Begin, desk: Any) -> None:  # noqa: F811
    script = [adding("a.txt"), "first", adding("b.txt"), "second"]
    tab = begin(script, settings='approval_policy = "never"\nsandbox_mode = "workspace-write"\n')
    tab.wait_for_selector("#timeline >> text=first")
    tab.wait_for_selector("#undo:not(:disabled)", state="attached")
    tab.fill("#say", "go on")
    tab.click("#send")
    tab.wait_for_selector("#timeline >> text=second")
    for name, left in (("b.txt", ["a.txt"]), ("a.txt", [])):
        tab.wait_for_selector("#undo:not(:disabled)", state="attached")
        tab.evaluate("() => { for (const _ of [1, 2]) document.getElementById('undo').click(); }")
        tab.wait_for_selector(f"#sure .files >> text={name}")
        tab.evaluate("() => { for (const _ of [1, 2]) $('sure-yes').click(); }".replace("$", GET))
        tab.wait_for_selector(f"#message:has-text('{name}')")
        assert sorted(path.name for path in desk.workspace.glob("*.txt")) == left
    tab.wait_for_selector("#undo:disabled", state="attached")


def test_a_draft_stays_with_its_session(begin: Begin) -> None:
    tab = begin(["first answer", "second answer"])
    tab.wait_for_selector("#timeline >> text=first answer")
    own = tab.url
    tab.fill("#say", "half a message")
    tab.click("#begin")
    assert tab.input_value("#say") == ""
    tab.fill("#say", "another one")
    tab.click("#send")
    tab.wait_for_selector("#timeline >> text=second answer")
    assert tab.input_value("#say") == ""
    tab.click("#sessions a:has-text('first answer')")
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
    found = axe.Axe().run(tab).response["violations"]
    assert [row["id"] for row in found if row["impact"] in ("serious", "critical")] == []


def test_a_message_is_queued_removed_and_steers(begin: Begin) -> None:
    said = Say("alpha " + "beta " * 99, chunks=100, seconds=100)
    heard: list[str] = []

    def again(body: Any) -> str:
        heard.append(str(body["input"]))
        return "that was all"

    tab = begin([said, again, again])
    tab.wait_for_selector("#live >> text=alpha")
    for text in ("first of the queue", "second of the queue"):
        tab.fill("#say", text)
        tab.click("#queue")
        tab.wait_for_selector(f"#queued li:has-text('{text}')")
    tab.click("#queued li:has-text('first') button")
    tab.wait_for_selector("#queued li:has-text('first')", state="detached")
    tab.fill("#say", "into this turn")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#queued li:has-text('not read yet')")
    said.seconds = 0
    tab.wait_for_selector("#timeline li.user:has-text('second of the queue')")
    tab.wait_for_selector("#queued", state="hidden")
    assert "into this turn" in heard[0]
    assert "first of the queue" not in "".join(heard)


def test_shift_enter_breaks_and_a_word_of_an_input_method_is_not_sent(begin: Begin) -> None:
    tab = begin(["first", "second"])
    tab.wait_for_selector("#timeline >> text=first")
    tab.fill("#say", "one")
    tab.keyboard.press("Shift+Enter")
    tab.keyboard.type("two")
    tab.evaluate(
        """() => document.getElementById("say").dispatchEvent(
            new KeyboardEvent("keydown", { key: "Enter", isComposing: true, bubbles: true }))"""
    )
    assert tab.input_value("#say") == "one\ntwo"
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#timeline >> text=second")
    assert tab.inner_text("#timeline li.user >> nth=1").endswith("one\ntwo")


def test_file_names_are_completed_and_hidden_ones_are_not_listed(begin: Begin, desk: Any) -> None:  # noqa: F811
    (desk.workspace / "src").mkdir()
    for name in ("src/cart.py", "src/card.py", ".env", "src/.env.local"):
        (desk.workspace / name).write_text("x")
    (desk.workspace / "car-link").symlink_to(desk.home / "config.toml")
    tab = begin(["first", "second"])
    tab.wait_for_selector("#timeline >> text=first")
    tab.type("#say", "look at @car")
    tab.wait_for_selector("#names li")
    assert tab.locator("#names li").all_inner_texts() == ["src/card.py", "src/cart.py"]
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("Enter")
    assert tab.input_value("#say") == "look at @src/cart.py "
    tab.keyboard.type("and @env")
    tab.wait_for_function("() => document.getElementById('names').hidden")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#timeline >> text=second")


def test_a_session_is_renamed_and_found_by_its_name(begin: Begin) -> None:
    tab = begin(["first"], text="請用中文解釋這個函式")
    tab.wait_for_selector("#title:has-text('請用中文解釋這個函式')")
    tab.wait_for_selector("#sessions a >> text=請用中文解釋這個函式")
    tab.click("#actions summary")
    tab.click("#rename")
    tab.fill("#sure input", f"購物車 {EVIL}")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#title:has-text('購物車')")
    assert "owned" not in tab.title()
    tab.fill("#search", "購物車")
    tab.wait_for_function("() => document.querySelectorAll('#sessions a').length === 1")


def test_an_ended_session_is_resumed_by_a_message(begin: Begin, desk: Any) -> None:  # noqa: F811
    def again(body: Any) -> str:
        return "I know" if "the word is teapot" in str(body["input"]) else "no idea"

    script = ["noted", again]
    tab = begin(script, text="the word is teapot", settings='sandbox_mode = "workspace-write"\n')
    tab.wait_for_selector("#timeline >> text=noted")
    tab.click("#actions summary")
    tab.click("#end")
    tab.wait_for_selector("#limits")
    tab.select_option("#limits", "read-only")
    tab.fill("#say", "what was the word?")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#timeline >> text=I know")
    assert tab.locator("#timeline li.user").count() == 2
    tab.wait_for_selector("#sessions a.idle[aria-current]")
    journal = next(desk.home.rglob("rollout-*.jsonl")).parent.glob("*.jsonl")
    lines = [line for path in journal for line in path.read_text().splitlines()]
    modes = [line.partition('"sandbox_policy":{"type":"')[2].partition('"')[0] for line in lines]
    assert list(filter(None, modes)) == ["workspace-write", "read-only"]


def test_the_model_is_changed_to_one_of_the_settings(begin: Begin) -> None:
    def named(body: Any) -> str:
        return f"I am {body['model']}"

    tab = begin([named, named], more="[model_providers.scripted.models.small]\nstream = true\n")
    tab.wait_for_selector("#timeline >> text=I am gpt-5.5")
    assert tab.locator("#model option").all_inner_texts() == ["gpt-5.5", "scripted:small"]
    tab.wait_for_selector("#model:not(:disabled)")
    tab.select_option("#model", "scripted:small")
    tab.wait_for_selector("#model option:checked:has-text('small')", state="attached")
    tab.fill("#say", "and now?")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#timeline >> text=I am small")

"""What a model writes must not deceive, move a button under the pointer, or take the page away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.web_ui.conftest import Recorded, Served, open_first, waiting

from toolrest.gate.approval.request import Choice

pytestmark = pytest.mark.system

EMOJI = "whole \u26a0\ufe0f \U0001f469\u200d\U0001f469"
HIDDEN = {
    "a tag\U000e0041": "a tag⟨U+E0041⟩",
    "a soft\u00adhyphen": "a soft⟨U+00AD⟩hyphen",
    "a filler\u3164": "a filler⟨U+3164⟩",
    "a line\u2028separator": "a line⟨U+2028⟩separator",
    "private \ue000": "private ⟨U+E000⟩",
    "zero\u200dwidth": "zero⟨U+200D⟩width",
    "a selector\ufe0f": "a selector⟨U+FE0F⟩",
    "a run " + "\u202e" * 90_000: "a run ⟨U+202E×90000⟩",
    EMOJI: EMOJI,
}


def test_nothing_hides_in_words(tab: Any, session: Recorded) -> None:
    for text in HIDDEN:
        session.say("assistant", text)
    session.say("assistant", "after them")
    open_first(tab)
    tab.wait_for_selector("#timeline >> text=after them")
    words = tab.locator("#timeline .message .md").all_inner_texts()
    for shown in HIDDEN.values():
        assert shown in words


def test_a_long_line_does_not_look_like_one_of_ours(tab: Any, home: Path) -> None:
    """The rows of a command go on further in than any word that is not the model's."""
    waiting(home, text="echo " + "because:   it is harmless " * 40)
    tab.wait_for_selector(".card .asked")
    rows = tab.evaluate(
        """() => [...document.querySelectorAll(".asked .lines span")].flatMap((line) => {
            const range = document.createRange();
            range.selectNodeContents(line);
            const lefts = new Map();
            for (const box of range.getClientRects())
                lefts.set(box.top, Math.min(box.left, lefts.get(box.top) ?? Infinity));
            return [...lefts.values()].map((left, at) => [at > 0, left]);
        })"""
    )
    own = [left for goes_on, left in rows if not goes_on]
    others = [left for goes_on, left in rows if goes_on]
    assert len(others) > 3
    assert min(others) > max(own) + 30


ONCE = "this call only; if the sandbox blocks it, it runs once more outside"
SESSION = "until this session ends: writes in " + "/a/long/folder" * 30


def test_what_an_approval_grants_is_said_in_full(tab: Any, home: Path) -> None:
    """Once, too, can be more than this call."""
    waiting(home, choices=(Choice("once", ONCE), Choice("session", SESSION)))
    tab.click(".card summary")
    tab.wait_for_selector(".card .grants")
    assert "it runs once more outside" in tab.inner_text(".card button[data-scope=once]")
    grants = tab.locator(".card .grants li").all_inner_texts()
    assert grants == [f"Yes: {ONCE}", f"Yes, for this session: {SESSION}"]
    for size in ({"width": 1100, "height": 800}, {"width": 390, "height": 800}):
        tab.set_viewport_size(size)
        card = tab.locator(".card").bounding_box()
        parts = tab.locator(".card :is(.asked, .grants li, button)")
        for number in range(parts.count()):
            if inside := parts.nth(number).bounding_box():
                assert inside["x"] + inside["width"] <= card["x"] + card["width"]


def test_nothing_that_comes_moves_the_buttons_of_an_approval(
    browser: Any, served: Served, session: Recorded, home: Path
) -> None:
    """Neither new entries of a session that is followed to its end, nor a notice."""
    context = browser.new_context(viewport={"width": 1100, "height": 1300})
    page = context.new_page()
    page.goto(served.link)
    page.wait_for_selector("#sessions a")
    open_first(page)
    waiting(home, session=session.id)
    page.wait_for_selector(".card button.approve:not(:disabled)")
    before = page.locator(".card button.approve").bounding_box()
    assert before["y"] > 0
    for number in range(30):
        session.say("assistant", f"step {number}")
    page.wait_for_selector("#timeline >> text=step 29")
    assert page.locator(".card button.approve").bounding_box() == before
    page.evaluate("() => { document.getElementById('message').textContent = 'it has happened'; }")
    assert page.locator("#dismiss").is_visible()
    assert page.locator(".card button.approve").bounding_box() == before
    page.keyboard.press("Escape")
    assert page.inner_text("#message") == ""
    context.close()


def test_a_page_that_is_logged_out_shows_nothing(
    tab: Any, served: Served, session: Recorded, home: Path
) -> None:
    waiting(home, session=session.id)
    open_first(tab)
    tab.wait_for_selector("#timeline >> text=It is repaired.")
    tab.wait_for_selector(".card")
    tab.click("#leave")
    tab.wait_for_selector("#message:has-text('not logged in')")
    for text in ("repair", "parser", "rm -r build", "ls"):
        assert text not in tab.inner_text("body")
    assert session.id not in tab.url


def strange(session: Recorded) -> None:
    """Entries of forms that no session writes."""
    values: tuple[Any, ...] = (5, True, None, [], {}, "x", 1.5, [None], {"a": {}}, 10**400)
    posed = {"id": "i", "header": "h", "question": "q", "options": []}
    for number, value in enumerate(values):
        for name in ("plan", "questions", "edits", "path", "input", "cmd", "message", "ids"):
            session.use(
                "any", {name: value, "path": "p"}, {"status": {"a": value}}, f"{number}{name}"
            )
        session.use("spawn", json.dumps(value), '{"agent_id":"a"}', f"s{number}")
        ended = json.dumps({"status": {"a": value}}, separators=(",", ":"))
        session.use("wait", {"ids": ["a"]}, ended, f"w{number}")
        session.use(
            "ask", {"questions": [posed]}, json.dumps({"answers": {"i": value}}), f"q{number}"
        )
        usage = {"total_tokens": value, "input_tokens": value}
        info = {
            "last_token_usage": usage,
            "total_token_usage": usage,
            "model_context_window": value,
        }
        session.write("event_msg", {"type": "token_count", "info": info})
        session.write("turn_context", {"model": value})


def test_no_entry_takes_the_others_away(tab: Any, session: Recorded) -> None:
    strange(session)
    session.say("assistant", "after them")
    asked: list[str] = []
    tab.on("request", lambda one: asked.append(one.url))
    open_first(tab)
    tab.wait_for_selector("#timeline >> text=after them")
    for key in ("v", "Home", "End"):
        tab.keyboard.press(key)
    assert tab.locator("#timeline >> text=after them").count() == 1
    assert sum("/events?" in url for url in asked) == 1, "the stream was not begun again"
    assert tab.locator("text=An entry that cannot be shown").count() == 0
    assert tab.inner_text("#message") == ""


def test_only_the_parts_scroll(tab: Any, session: Recorded) -> None:
    """The page as a whole stays where it is, however long a session is."""
    plan = {"plan": [{"step": f"step {number}", "status": "completed"} for number in range(50)]}
    for number in range(5):
        session.use("update_plan", plan, "Plan updated", f"p{number}")
    open_first(tab)
    tab.wait_for_selector("#plan li >> nth=49")
    for size in ({"width": 1100, "height": 800}, {"width": 390, "height": 800}):
        tab.set_viewport_size(size)
        assert tab.evaluate("() => document.documentElement.scrollHeight") == 800


def test_a_server_that_is_gone_is_said_and_an_answer_is_not_lost(
    tab: Any, served: Served, home: Path
) -> None:
    """Also where no session is looked at; what could not be answered can be answered later."""
    waiting(home)
    tab.wait_for_selector(".card button.approve:not(:disabled)")
    served.stop()
    tab.wait_for_selector("#message:has-text('lost')")
    tab.click(".card button.approve:not(:disabled)")
    tab.wait_for_selector("#message:has-text('does not answer')")
    tab.wait_for_selector(".card button.approve:not(:disabled)")

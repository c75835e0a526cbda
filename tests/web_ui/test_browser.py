"""The page in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.web_ui.conftest import Recorded, Served, open_first, waiting

from toolrest.gate.approval.pending_store import PendingStore
from toolrest.policy.effects import Risk

pytestmark = pytest.mark.system

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_a_session_is_watched_as_it_goes_on(tab: Any, session: Recorded) -> None:
    open_first(tab)
    assert "token" not in tab.url
    session.say("assistant", "written while you look")
    tab.wait_for_selector("#timeline >> text=written while you look")


def test_what_a_model_wrote_stays_text(tab: Any, session: Recorded) -> None:
    session.say("assistant", EVIL + " \u202egnitrever \x1b[2J")
    open_first(tab)
    tab.wait_for_selector("text=onerror")
    assert tab.title() == "Toolrest"
    assert tab.locator("#timeline img, #timeline script").count() == 0
    text = tab.inner_text("#timeline")
    assert "⟨U+202E⟩" in text
    assert "⟨U+001B⟩[2J" in text


def test_an_approval_is_clicked_but_not_at_once(tab: Any, home: Path) -> None:
    tab.evaluate(
        """() => new MutationObserver(() => {
            window.inert ??= document.querySelector(".card button.approve").disabled;
        }).observe(document.getElementById("approvals"), { childList: true })"""
    )
    pending = waiting(home)
    tab.click(".card button.approve:not(:disabled)")
    tab.wait_for_selector(".card", state="detached")
    assert tab.evaluate("window.inert") is True
    review = PendingStore(str(home)).answer_to(pending)
    assert review is not None
    assert review.approves


def test_the_browser_says_that_something_waits_while_one_looks_elsewhere(
    tab: Any, home: Path
) -> None:
    tab.evaluate(
        """() => {
            window.said = [];
            window.Notification = class {
                static permission = "granted";
                constructor(title, { body }) { window.said.push([title, body]); }
            };
            window.sight = "visible";
            Object.defineProperty(document, "visibilityState", { get: () => window.sight });
        }"""
    )
    waiting(home, text="echo seen")
    tab.wait_for_selector(".card >> text=echo seen")
    tab.evaluate("() => { window.sight = 'hidden'; }")
    waiting(home, text=EVIL)
    tab.wait_for_selector(".card >> text=onerror")
    assert tab.evaluate("window.said") == [["Toolrest waits for you", "Run this command?"]]
    assert tab.title() == "(2) Waiting for you \u00b7 Toolrest"


def test_denied_with_words_and_by_keys(tab: Any, home: Path) -> None:
    pending = waiting(home)
    tab.wait_for_selector(".card button.deny:not(:disabled)")
    tab.keyboard.press("d")
    tab.keyboard.type("use git clean")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".card", state="detached")
    review = PendingStore(str(home)).answer_to(pending)
    assert review is not None
    assert (review.approves, review.note) == (False, "use git clean")


def test_a_critical_call_needs_the_code(tab: Any, served: Served, home: Path) -> None:
    pending = waiting(home, risk=Risk.CRITICAL)
    tab.click(".card button.approve:not(:disabled)")
    tab.wait_for_selector("#message:has-text('code')")
    assert PendingStore(str(home)).answer_to(pending) is None
    tab.fill(".card input[inputmode=numeric]", served.code)
    tab.click(".card button.approve:not(:disabled)")
    tab.wait_for_selector(".card", state="detached")


def test_an_answer_from_the_terminal_takes_the_card_away(tab: Any, home: Path) -> None:
    pending = waiting(home)
    tab.wait_for_selector(".card button.approve:not(:disabled)")
    PendingStore(str(home)).answer(pending, "denied", "from the terminal")
    tab.wait_for_selector(".card", state="detached")


def test_of_two_tabs_that_answer_at_once_the_first_counts(tab: Any, home: Path) -> None:
    with tab.expect_popup() as opened:
        tab.evaluate("() => void window.open(location.href)")
    tabs = (tab, opened.value)
    pending = waiting(home)
    answers: list[tuple[int, bool]] = []
    for one in tabs:
        one.on("response", lambda got: _note(got, answers))
        one.wait_for_selector(".card button.approve:not(:disabled)")
    held: list[Any] = []
    for one, kind in zip(tabs, ("approve", "deny"), strict=True):
        one.route("**/api/approvals/*", lambda route: held.append(route))
        one.click(f".card button.{kind}")
        if kind == "deny":
            one.click(".card button.no")
    while len(held) < 2:
        tab.wait_for_timeout(10)
    for route in held:
        route.continue_()
    for one in tabs:
        one.wait_for_selector(".card", state="detached")
    assert sorted(status for status, _ in answers) == [200, 409]
    review = PendingStore(str(home)).answer_to(pending)
    assert review is not None
    assert review.approves is next(approve for status, approve in answers if status == 200)


def _note(response: Any, answers: list[tuple[int, bool]]) -> None:
    if response.request.method == "POST":
        answers.append((response.status, response.request.post_data_json["approve"]))


def test_an_approval_is_tapped_on_a_phone(browser: Any, served: Served, home: Path) -> None:
    size = {"width": 390, "height": 800}
    context = browser.new_context(viewport=size, has_touch=True, is_mobile=True)
    phone = context.new_page()
    phone.goto(served.link)
    pending = waiting(home, text="rm -r " + "a-long-name/" * 30)
    phone.tap(".card button.approve:not(:disabled)")
    phone.wait_for_selector(".card", state="detached")
    assert phone.evaluate("() => document.documentElement.scrollWidth") <= 390
    review = PendingStore(str(home)).answer_to(pending)
    assert review is not None
    assert review.approves
    context.close()


def test_replay_goes_step_by_step(tab: Any, session: Recorded) -> None:
    for number in range(5):
        session.say("assistant", f"step {number}")
    open_first(tab)
    tab.wait_for_selector("text=step 4")
    tab.click("#replay-button")
    tab.locator("#scrub").evaluate(
        "node => { node.value = 1; node.dispatchEvent(new Event('input')) }"
    )
    assert tab.locator("#timeline li").count() == 1
    tab.select_option("#speed", "16")
    tab.click("#play")
    tab.wait_for_selector("text=step 4")


def test_a_restarted_server_leaves_no_gap_and_no_double(
    tab: Any, served: Served, session: Recorded
) -> None:
    open_first(tab)
    session.say("assistant", "before the restart")
    tab.wait_for_selector("text=before the restart")
    served.stop()
    tab.wait_for_selector("#message:has-text('lost')")
    session.say("assistant", "while it was away")
    served.start("--port", served.port)
    tab.wait_for_selector("#message:has-text('not logged in')")
    tab.goto(served.link)  # in the same tab: it shows the session that it has shown
    tab.wait_for_selector("#timeline >> text=while it was away")
    for text in ("before the restart", "while it was away"):
        assert tab.locator(f"#timeline >> text={text}").count() == 1
    session.say("assistant", "after the restart")
    tab.wait_for_selector("#timeline >> text=after the restart")
    assert "token" not in tab.url


def test_five_thousand_cells_scroll(tab: Any, session: Recorded, record_property: Any) -> None:
    for number in range(5000):
        session.say("assistant", f"cell {number}\n" + "word " * 40)
    open_first(tab)
    tab.wait_for_function("() => document.querySelectorAll('#timeline li').length >= 5000")
    devtools = tab.context.new_cdp_session(tab)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = _main_thread(devtools)
    frame = tab.evaluate(
        """async () => {
            const main = document.getElementById("scroll"), times = [];
            let last = performance.now();
            for (let n = 0; n < 120; n += 1) {
                main.scrollTop = (main.scrollHeight * (n % 60)) / 60;
                await new Promise(requestAnimationFrame);
                const now = performance.now();
                times.push(now - last);
                last = now;
            }
            return times.sort((a, b) => a - b)[60];
        }"""
    )
    work = (_main_thread(devtools) - before) / 120 * 1000
    record_property("median frame in ms", frame)
    record_property("work of the main thread a frame in ms", work)
    shown = tab.evaluate(
        """() => [...document.querySelectorAll(".chunk > li:first-child")].filter(
            (cell) => cell.checkVisibility({ contentVisibilityAuto: true })).length"""
    )
    assert 0 < shown < 10, "what is out of sight is not laid out"


def _main_thread(devtools: Any) -> float:
    """The seconds of CPU that the page's main thread has used."""
    metrics = devtools.send("Performance.getMetrics")["metrics"]
    return next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


def test_a_phone_shows_the_list_behind_a_button(tab: Any) -> None:
    tab.set_viewport_size({"width": 390, "height": 800})
    assert not tab.locator("nav").is_visible()
    tab.click("#menu")
    tab.click("#sessions a")
    tab.wait_for_selector("#timeline li")
    wide = tab.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390


def test_a_saved_session_opens_without_a_server(
    tab: Any, browser: Any, session: Recorded, tmp_path: Path
) -> None:
    open_first(tab)
    with tab.expect_download() as saved:
        tab.click("#actions summary")
        tab.click("text=Save HTML")
    path = tmp_path / "saved.html"
    saved.value.save_as(path)
    offline = browser.new_context(offline=True).new_page()
    offline.goto(path.as_uri())
    offline.wait_for_selector("text=repair the parser")
    assert offline.locator("#timeline li").count() == 3

"""The page in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web_ui.conftest import Recorded, waiting

from toolrest.gate.approval.pending_store import PendingStore
from toolrest.policy.effects import Risk

pytestmark = pytest.mark.system

TOOLREST = Path(sys.executable).with_name("toolrest")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


class Served:
    """`toolrest web` as a process, and its one-time link."""

    def __init__(self, home: Path, *flags: str) -> None:
        self._argv = [str(TOOLREST), "web", *flags]
        self._env = {**os.environ, "TOOLREST_HOME": str(home)}
        self.start("--port", "0")

    def start(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [*self._argv, *flags],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.printed = [self.process.stdout.readline() for _ in range(3)]
        found = re.search(r"http://\S+", self.printed[0])
        assert found, self.printed
        self.link = found[0]
        port = re.search(r":(\d+)/", self.link)
        assert port
        self.port = port[1]
        self.code = self.printed[2].split()[-1]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def served(home: Path, session: Recorded) -> Iterator[Served]:
    made = Served(home)
    yield made
    made.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    program = shutil.which("chromium") or pytest.skip("no chromium here: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield made
        made.close()


@pytest.fixture
def tab(browser: Any, served: Served) -> Iterator[Any]:
    """A tab that opened the link; an error of the page's script fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 800})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(served.link)
    page.wait_for_selector("#sessions a")
    yield page
    context.close()
    assert errors == []


def open_first(tab: Any) -> None:
    tab.keyboard.press("j")
    tab.wait_for_selector("#timeline li")


def test_a_session_is_watched_as_it_goes_on(tab: Any, session: Recorded) -> None:
    open_first(tab)
    assert "token" not in tab.url
    session.say("assistant", "written while you look")
    tab.wait_for_selector("text=written while you look")


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


def test_denied_with_words_and_by_keys(tab: Any, home: Path) -> None:
    pending = waiting(home)
    tab.fill(".card input", "use git clean")
    tab.wait_for_selector(".card button.deny:not(:disabled)")
    tab.locator("#title").evaluate("node => document.activeElement.blur()")
    tab.keyboard.press("d")
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


def test_of_two_tabs_the_first_answer_counts(tab: Any, home: Path) -> None:
    pending = waiting(home)
    tab.wait_for_selector(".card button.approve:not(:disabled)")
    PendingStore(str(home)).answer(pending, "denied", "from the terminal")
    tab.wait_for_selector(".card", state="detached")


def test_replay_goes_step_by_step(tab: Any, session: Recorded) -> None:
    for number in range(5):
        session.say("assistant", f"step {number}")
    open_first(tab)
    tab.wait_for_selector("text=step 4")
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
    tab.wait_for_selector("#timeline >> text=while it was away")
    assert tab.locator("#timeline >> text=before the restart").count() == 1


def test_five_thousand_cells_scroll(tab: Any, session: Recorded, record_property: Any) -> None:
    for number in range(5000):
        session.say("assistant", f"cell {number}\n" + "word " * 40)
    open_first(tab)
    tab.wait_for_function("document.querySelectorAll('#timeline li').length >= 5000")
    frame = tab.evaluate(
        """async () => {
            const main = document.getElementById("main"), times = [];
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
    record_property("median frame in ms", frame)


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
        tab.click("text=Save html")
    path = tmp_path / "saved.html"
    saved.value.save_as(path)
    offline = browser.new_context(offline=True).new_page()
    offline.goto(path.as_uri())
    offline.wait_for_selector("text=repair the parser")
    assert offline.locator("#timeline li").count() == 3

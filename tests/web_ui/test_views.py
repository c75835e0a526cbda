"""Every view in a real browser: what it shows, its keys, its looks, and what axe-core finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.web_ui.conftest import Recorded, Served, take_picture, waiting
from tests.web_ui.scene import Scene, batch_store, everything

pytestmark = pytest.mark.system

WIDE, PHONE = {"width": 1180, "height": 820}, {"width": 390, "height": 800}


@pytest.fixture
def scene(home: Path, tmp_path: Path) -> Scene:
    for number, task in enumerate(("write the release notes", "why is the import slow?"), 1):
        other = Scene(home, number, str(tmp_path / "work"))
        other.say("user", task)
        other.say("assistant", "Done: see the last commit.")
    return everything(home, tmp_path / "work", 9)


@pytest.fixture
def served(home: Path, scene: Scene, tmp_path: Path) -> Iterator[Served]:
    made = Served(home, "--batch", batch_store(tmp_path / "store").url)
    yield made
    made.stop()


@pytest.fixture
def opened(tab: Any) -> Any:
    """The tab with the whole session in it."""
    tab.keyboard.press("j")
    tab.wait_for_selector("text=the four tests pass >> visible=true")
    tab.wait_for_selector("#timeline li.message")
    return tab


def open_view(tab: Any, view: str, home: Path) -> None:
    """Bring a view to the screen."""
    if view == "list":
        return
    if view == "batch":
        tab.click("#batch-link")
        tab.wait_for_selector("#batch table")
        return
    tab.evaluate("document.querySelector('#sessions a').click()")
    tab.wait_for_selector("#timeline li.message")
    if view == "side":
        tab.keyboard.press("v")
    elif view == "changes":
        tab.keyboard.press("c")
        tab.wait_for_selector("#changes .diff")
    elif view == "help":
        tab.keyboard.press("?")
        tab.wait_for_selector("dialog[open]")
    elif view == "more":
        tab.click("#actions summary")
        tab.click("#replay-button")
    elif view == "out":
        tab.evaluate("() => { sessionStorage.clear(); location.reload(); }")
        tab.wait_for_selector("#no-link")
    elif view == "approval":
        waiting(home, session=tab.url.rpartition("=")[2])
        tab.wait_for_selector(".card button.approve:not(:disabled)")


_LAID_OUT = """() => {
    for (const one of document.querySelectorAll(".chunk")) one.style.contentVisibility = "visible";
}"""
"""axe-core looks at what is out of sight, too."""
VIEWS = ("list", "session", "side", "changes", "batch", "help", "approval", "more", "out")


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious(tab: Any, home: Path, view: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="the group `system`")
    open_view(tab, view, home)
    tab.evaluate(_LAID_OUT)
    found: list[str] = []
    for scheme in ("light", "dark"):
        for size in (WIDE, PHONE):
            tab.emulate_media(color_scheme=scheme)
            tab.set_viewport_size(size)
            answer = axe.Axe().run(tab)
            looked_at = [*answer.response["passes"], *answer.response["incomplete"]]
            assert "color-contrast" in {rule["id"] for rule in looked_at}
            for violation in answer.response["violations"]:
                if violation["impact"] != "minor":
                    nodes = [node["html"][:200] for node in violation["nodes"][:3]]
                    found.append(f"{scheme} {size['width']}: {violation['id']}: {nodes}")
            wide = tab.evaluate("() => document.documentElement.scrollWidth")
            assert wide <= size["width"], f"{view} is wider than the screen"
    assert found == []


@pytest.mark.parametrize(
    ("name", "view", "scheme", "size"),
    [
        ("web-changes", "changes", "dark", WIDE),
        ("web-batch", "batch", "light", WIDE),
    ],
)
def test_pictures_of_the_docs(
    tab: Any, home: Path, tmp_path: Path, name: str, view: str, scheme: str, size: Any
) -> None:
    """Written by TOOLREST_WRITE_DOCS=1; the views come to the screen in any run."""
    tab.emulate_media(color_scheme=scheme)
    open_view(tab, view, home)
    if view == "changes":
        tab.keyboard.press("v")
    tab.set_viewport_size(size)
    tab.evaluate("() => { document.getElementById('scroll').scrollTop = 0; }")
    take_picture(tab, name, str(tmp_path))


def test_a_session_shows_plan_diffs_lanes_picture_and_cost(opened: Any) -> None:
    assert opened.inner_text("#plan-count") == "Plan, 3 of 3 done"
    lanes = opened.locator("#lanes li")
    assert lanes.count() == 2
    assert "completed after" in lanes.nth(0).inner_text()
    assert "Two callers; both catch ParseError." in lanes.nth(0).inner_text()
    assert "its end is not recorded" in lanes.nth(1).inner_text()
    agents = opened.locator("#timeline li:has(.agent)")
    assert agents.count() == 2, "in the entries of the calls that started them"
    states = agents.nth(0).locator(".agent").all_inner_texts()
    assert states == ["Agent 1 running", "Agent 1 completed: Two callers; both catch ParseError."]
    assert agents.nth(1).locator(".agent").all_inner_texts() == ["Agent 2 running"]
    question = opened.locator("#timeline li:has(.question)")
    assert "Asked" in question.inner_text()
    assert "What then?" in question.inner_text()
    assert question.locator(".answer").inner_text() == "Bad lines: Raise"
    opened.locator("#timeline img").scroll_into_view_if_needed()
    opened.wait_for_function("() => document.querySelector('#timeline img').naturalWidth === 160")
    assert "$" in opened.inner_text("#facts")
    assert "cost $" in opened.inner_text("#chart")
    assert opened.locator("#timeline .diff").count() == 2
    assert opened.locator("#timeline .diff table").count() == 0
    opened.keyboard.press("v")
    cells = opened.locator("#timeline .diff table tr", has_text="line.split")
    assert "line.partition" in cells.nth(0).locator("td").nth(1).inner_text()


def test_changes_of_the_whole_session(opened: Any) -> None:
    opened.click("#changes-button")
    opened.wait_for_selector("text=4 files changed since the session began.")
    assert "no more" in opened.inner_text("#changes")
    opened.click("#timeline-button")
    assert opened.locator("#timeline li").first.is_visible()


def test_a_saved_session_has_its_changes(opened: Any, browser: Any, tmp_path: Path) -> None:
    opened.click("#actions summary")
    with opened.expect_download() as saved:
        opened.click("text=Save HTML")
    saved.value.save_as(tmp_path / "saved.html")
    context = browser.new_context(offline=True)
    offline = context.new_page()
    offline.goto((tmp_path / "saved.html").as_uri())
    offline.click("#changes-button")
    offline.wait_for_selector("text=4 files changed since the session began.")
    context.close()


def test_replay_by_keys(opened: Any) -> None:
    whole = opened.locator(".chunk > li").count()
    opened.keyboard.press("Home")
    assert opened.locator(".chunk > li").count() == 0
    opened.keyboard.press("ArrowRight")
    opened.keyboard.press("ArrowRight")
    assert opened.inner_text("#plan-count") == "Plan, 0 of 3 done"
    assert opened.locator(".chunk > li").count() == 2
    opened.keyboard.press("ArrowLeft")
    assert opened.locator(".chunk > li").count() == 1
    assert opened.locator("#plan-panel").is_hidden()
    for _ in range(5):
        opened.keyboard.press(">")
    assert opened.input_value("#speed") == "64"
    opened.keyboard.press(" ")
    assert opened.inner_text("#play") == "Pause"
    opened.wait_for_selector("#play:has-text('Play')")
    assert opened.locator(".chunk > li").count() == whole
    opened.keyboard.press("<")
    assert opened.input_value("#speed") == "16"


def test_batch_by_class_of_failure(tab: Any) -> None:
    open_view(tab, "batch", Path())
    assert "40 of 45 have a result" in tab.inner_text("#batch")
    assert tab.locator("#batch figure").count() == 4
    tab.click("#batch button:has-text('timeout 2')")
    tab.wait_for_selector("#batch button[aria-pressed=true]:has-text('timeout')")
    assert tab.locator("#batch tbody tr").count() == 2
    tab.click("#sessions a")
    tab.wait_for_selector("#timeline li.message")
    assert tab.locator("#batch").is_hidden()


def test_search_and_filter(tab: Any, scene: Recorded) -> None:
    tab.keyboard.press("/")
    tab.keyboard.type("release notes")
    tab.wait_for_function("() => document.querySelectorAll('#sessions a').length === 1")
    tab.fill("#search", "")
    tab.select_option("#state", "running")
    tab.wait_for_selector("text=No session is like that.")
    tab.select_option("#state", "ended")
    tab.wait_for_function("() => document.querySelectorAll('#sessions a').length === 3")


def test_nothing_moves_by_itself(browser: Any, served: Served) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(served.link)
    page.click("#sessions a")
    page.wait_for_selector("#timeline li.message")
    moving = """() => [...document.querySelectorAll("*")].filter((node) => {
        const style = getComputedStyle(node);
        return style.transitionDuration !== "0s" || style.animationName !== "none"
            || style.scrollBehavior === "smooth";
    }).length + document.getAnimations().length"""
    assert page.evaluate(moving) == 0
    context.close()


EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
HOSTILE = f"{EVIL} \u202egnitrever \x1b[2J\x1b]8;;http://x\x07"


def test_whatever_a_model_writes_is_inert_in_every_view(
    tab: Any, scene: Scene, home: Path, tmp_path: Path
) -> None:
    hostile = Scene(home, 20, str(tmp_path / "work"))
    hostile.write("turn_context", {"model": HOSTILE})
    hostile.say("user", HOSTILE)
    steps = [{"step": HOSTILE, "status": HOSTILE}]
    hostile.use(HOSTILE, {"plan": steps}, HOSTILE, "h1")
    patch = f"*** Begin Patch\n*** Add File: {HOSTILE}\n+{HOSTILE}\n*** End Patch"
    hostile.use("apply_patch", {"input": patch}, HOSTILE, "h2")
    hostile.use("spawn", {"message": HOSTILE, "agent_type": HOSTILE}, '{"agent_id":"h"}', "h3")
    hostile.use("wait", {}, json.dumps({"status": {"h": {HOSTILE: HOSTILE}}}), "h4")
    ended = json.dumps({"status": {"h": {HOSTILE: HOSTILE}}}, separators=(",", ":"))
    hostile.use("wait", {}, ended, "h5")
    image = {"type": "input_image", "image_url": f"data:image/svg+xml,{EVIL}"}
    hostile.use("view_image", {}, [image], "h6")
    hostile.say("assistant", HOSTILE)
    waiting(home, text=HOSTILE, session=hostile.id)
    tab.wait_for_selector(".card >> text=onerror")
    tab.wait_for_selector("#sessions >> text=onerror")
    tab.evaluate("() => document.querySelector('#sessions a').click()")
    tab.wait_for_selector("#timeline li.message")
    for key in ("v", "v"):
        tab.keyboard.press(key)
        assert tab.locator(".diff >> text=onerror").count() > 0
    assert tab.locator("#plan >> text=onerror").count() == 1
    assert tab.locator("#lanes >> text=onerror").count() > 0
    assert tab.locator("body img, body script:not([type]), body iframe").count() == 0
    shown = tab.inner_text("body")
    assert "⟨U+202E⟩" in shown
    for char in ("\u202e", "\x1b", "\x07"):
        assert char not in shown
    assert "owned" not in tab.title()

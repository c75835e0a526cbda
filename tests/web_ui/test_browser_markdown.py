"""Markdown in a real browser: what it shows, and that nothing in it acts, loads or holds up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.conversations import MARKDOWN
from tests.web_ui.conftest import Recorded, open_first
from tests.web_ui.test_markup import HARD, HUGE_TABLE, LINKS

pytestmark = pytest.mark.system

ACTING = (
    "<script>document.title='owned'</script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "<iframe srcdoc='<script>parent.document.title=1</script>'></iframe>",
    "<style>body { background: url(http://evil.test/y) }</style>",
    "<a href='javascript:alert(1)'>x</a> <svg onload=alert(1)>",
    "```html\n<script>document.title='owned'</script>\n```",
    "| <script>document.title='owned'</script> |\n|---|\n| ![x](http://evil.test/z.png) |",
    "> <img src=http://evil.test/q.png>",
    "- [ ] <b onclick=alert(1)>x</b>",
    "# <u onmouseover=alert(1)>x</u> [x](data:text/html,y)",
)
WATCH = """() => {
    window.longest = 0;
    new PerformanceObserver((list) => {
        const all = list.getEntries().map((task) => task.duration);
        window.longest = Math.max(window.longest, ...all);
    }).observe({ type: "longtask" });
}"""


def test_every_kind_of_markdown_is_drawn(tab: Any, session: Recorded) -> None:
    session.say("assistant", MARKDOWN)
    open_first(tab)
    tab.wait_for_selector("#timeline .code")
    count = {
        "[role=heading]": 1,
        "strong": 1,
        "em": 1,
        "s": 1,
        "ol > li": 3,
        "ul ul > li, ol ul > li": 2,
        ".box-mark": 2,
        "blockquote": 1,
        "thead th": 4,
        "tbody tr": 3,
        "td.right": 3,
        "hr": 1,
        ".code span": 5,
    }
    for selector, least in count.items():
        assert tab.locator(f"#timeline .md {selector}").count() >= least, selector
    links = tab.locator("#timeline .md a")
    assert links.first.get_attribute("href") == "https://tea.example/guide"
    assert links.first.get_attribute("rel") == "noopener noreferrer"
    font = tab.locator("#timeline .code pre").evaluate("node => getComputedStyle(node).fontFamily")
    assert "mono" in font.lower()


def test_code_is_copied_by_a_click(tab: Any, session: Recorded) -> None:
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    session.say("assistant", "```python\nx = 1\n\ny = '\u4e2d'\n```")
    open_first(tab)
    tab.click("#timeline .copy")
    tab.wait_for_selector("#timeline .copy:has-text('Copied')")
    assert tab.evaluate("() => navigator.clipboard.readText()") == "x = 1\n\ny = '\u4e2d'"


def test_nothing_in_markdown_acts_or_loads(tab: Any, session: Recorded) -> None:
    asked: list[str] = []
    tab.on("request", lambda one: asked.append(one.url))
    own = tab.url.partition("#")[0]
    for text in (*ACTING, *LINKS):
        session.say("assistant", text)
    session.say("assistant", "after them")
    open_first(tab)
    tab.wait_for_selector("#timeline >> text=after them")
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    assert tab.title() == "Toolrest"
    inside = ":is(script, img, iframe, style, svg, object, embed, form, input, [onclick], [onload])"
    assert tab.locator(f"#timeline .md {inside}").count() == 0
    hrefs = tab.eval_on_selector_all("#timeline .md a", "all => all.map(one => one.href)")
    assert hrefs
    assert all(href.startswith(("http://", "https://")) for href in hrefs)
    assert [url for url in asked if not url.startswith(own)] == []


def test_large_markdown_is_folded_and_holds_nothing_up(tab: Any, session: Recorded) -> None:
    """No task of the page is longer than 200 ms, in the best of three looks."""
    for text in (HUGE_TABLE, *HARD.values(), "word " * 40_000):
        session.say("assistant", text)
    session.say("assistant", "after them")
    tab.evaluate(WATCH)
    longest = []
    for _ in range(3):
        tab.evaluate("() => { location.hash = ''; window.longest = 0; }")
        tab.wait_for_selector("#empty", state="visible")
        open_first(tab)
        tab.wait_for_selector("#timeline >> text=after them")
        tab.evaluate(
            """async () => {
                for (const at of [0, 0.25, 0.5, 0.75, 1]) {
                    const box = document.getElementById("scroll");
                    box.scrollTop = box.scrollHeight * at;
                    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)));
                }
            }"""
        )
        longest.append(tab.evaluate("() => window.longest"))
    assert tab.locator("#timeline tbody tr").count() >= 200
    assert tab.locator("#timeline .table >> text=more rows").count() == 1
    assert min(longest) <= 200, longest


def test_a_second_tab_says_how_it_gets_a_link(tab: Any, session: Recorded, home: Path) -> None:
    """It has the cookie, and no key of its own; nothing of the sessions is in it."""
    other = tab.context.new_page()
    other.goto(tab.url.partition("#")[0])
    other.wait_for_selector("#no-link >> text=press Enter")
    assert "repair" not in other.inner_text("body")
    assert not other.locator("#sidebar").is_visible()

"""The six conversations of the chat on the page, with their questions, wide and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import desk, serve  # noqa: F401 - fixtures
from tests.conversations import SCENES
from tests.web_ui.conftest import Served, take_picture

pytestmark = [pytest.mark.system, pytest.mark.slow]

WIDE, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 800}
LOOKS = {"markdown": "light", "code": "light", "denied": "dark", "plan": "dark"}
DOCS = {
    "code-done": "web-session",
    "denied-outside": "web-approval",
    "phone-code-question": "web-phone",
}
SETTINGS = {"code": 'approval_policy = "untrusted"\n'}
MORE = {"failure": ["say go on"]}
"""What was queued goes on after the next message."""
ENDS = {
    "markdown": "spoons each",
    "code": "callers that pass an amount",
    "denied": "I left the tools out",
    "plan": "7.8",
    "failure": "Done with what was queued",
    "resume": "As I said: two faults.",
}
AT = {"code": "It has eleven steps.", "stopped": "stopped after", "resumed": "two faults"}


class Person:
    """Someone who does the steps of a scene in a browser."""

    def __init__(self, page: Any, folder: Path, prefix: str) -> None:
        self._page, self._folder, self._prefix = page, folder, prefix
        self._said: list[str] = []

    def do(self, step: str, scene: str) -> None:
        word, _, rest = step.partition(" ")
        getattr(self, f"_{word}")(rest, scene)

    def _say(self, text: str, _: str) -> None:
        if self._page.locator("#interrupt").is_visible():
            self._page.fill("#say", text)
            self._page.click("#queue")
            self._page.wait_for_selector("#queued li")
            return
        self._page.fill("#say", text)
        self._page.keyboard.press("Enter")
        self._page.wait_for_selector(f"#timeline li.user:has-text('{text}')")

    def _wait(self, _: str, __: str) -> None:
        self._page.wait_for_selector("#timeline >> text=sleep 60")

    def _key(self, key: str, _: str) -> None:
        card = self._page.locator(".card").first
        which = f".card[data-id='{card.get_attribute('data-id')}']" if card.count() else ".card"
        if key == "y":
            self._page.click(".card button.approve:not(:disabled) >> nth=0")
            self._page.wait_for_selector(which, state="detached")
        elif key == "n":
            self._page.click(".card button.deny:not(:disabled)")
            self._page.fill(".card .why", "not from the network")
            self._page.keyboard.press("Enter")
            self._page.wait_for_selector(which, state="detached")
        elif key == "Escape":
            self._page.click("#interrupt:not(:disabled)")
        elif key == "C-d":
            self._page.wait_for_selector("#sessions a.idle[aria-current]", state="attached")
            self._page.click("#actions summary")
            self._page.click("#end")
            self._page.wait_for_selector("#limits")

    def _resume(self, _: str, __: str) -> None:
        assert self._page.get_attribute("#say", "placeholder").startswith("A message resumes")

    def _shot(self, name: str, scene: str) -> None:
        if name in ("question", "outside", "second"):
            self._page.wait_for_selector(".card button.approve:not(:disabled)")
            button = self._page.locator(".card button.approve >> nth=0").bounding_box()
            size = self._page.viewport_size
            assert button["y"] + button["height"] <= size["height"], "the question is in sight"
        elif name not in ("start", "working"):
            self._page.wait_for_selector("#interrupt", state="hidden")
            self._page.wait_for_selector("#live:empty", state="attached")
            self._page.wait_for_selector(f"#timeline >> text={AT.get(name, ENDS[scene])}")
        whole = f"{self._prefix}{scene}-{name}"
        take_picture(self._page, DOCS.get(whole, whole), str(self._folder.parent))


@pytest.fixture
def played(browser: Any, desk: Any, serve: Any) -> Iterator[Any]:  # noqa: F811
    contexts: list[Any] = []
    served: list[Served] = []
    errors: list[str] = []

    def play(name: str, size: Any) -> Any:
        scene = SCENES[name]
        serve(scene.replies)
        config = desk.home / "config.toml"
        given = f'sandbox_mode = "workspace-write"\n{SETTINGS.get(name, "")}{scene.settings}'
        config.write_text(given + config.read_text())
        for path, text in scene.files.items():
            (desk.workspace / path).parent.mkdir(exist_ok=True)
            (desk.workspace / path).write_text(text)
        served.append(Served(desk.home, cwd=desk.workspace))
        contexts.append(browser.new_context(viewport=size, color_scheme=LOOKS.get(name, "light")))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(served[-1].link)
        page.wait_for_selector("#composer")
        return page

    yield play
    for context in contexts:
        context.close()
    for one in served:
        one.stop()
    assert errors == []


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("name", SCENES)
def test_a_conversation_is_had_on_the_page(played: Any, desk: Any, name: str, size: Any) -> None:  # noqa: F811
    page = played(name, size)
    person = Person(page, desk.workspace, "" if size is WIDE else "phone-")
    for step in [*SCENES[name].steps, *MORE.get(name, [])]:
        person.do(step, name)
    page.wait_for_selector(f"#timeline >> text={ENDS[name]}")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= size["width"]
    assert page.locator("text=cannot be shown").count() == 0

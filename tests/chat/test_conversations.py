"""The six conversations in tmux, on two sizes of a screen: nothing raw, nothing broken, all said.

`TOOLREST_WRITE_DOCS=1` writes their pictures to docs/screens.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.chat.svg import svg
from tests.chat.test_tmux import Tmux
from tests.conversations import SCENES
from tests.forked import TOOLREST

from toolrest.testing.server import ScriptedServer
from toolrest.timeline.wrap import drawn_width

pytestmark = [
    pytest.mark.needs("tmux"),
    pytest.mark.needs("sandbox"),
    pytest.mark.slow,
]
WRITE = os.environ.get("TOOLREST_WRITE_DOCS") == "1"
DOCS = Path(__file__).parents[2] / "docs" / "screens"


class Play(NamedTuple):
    """How a scene is played: each key or line, and what the screen shows then."""

    steps: tuple[tuple[str, str], ...]
    said: tuple[str, ...]
    """What must stand above in the end."""
    picture: str = ""


PLAYS = {
    "markdown": Play(
        (("how do I brew tea?", "Worked for"),),
        ("☑ bought the leaves", "│ The first cup", "Sencha 煎茶", "    def brew("),
        "Markdown: lists, quotes, a table, code",
    ),
    "code": Play(
        (
            ("show me the module", "It has eleven steps."),
            ("repair the cart", "3 files changed"),
        ),
        ("def step_11", "Edited cart.py", "+2 −2", "Added  docs/discounts.md"),
        "A patch of three files",
    ),
    "denied": Play(
        (
            ("back up and install the tools", "outside the sandbox?"),
            ("y", "Install the tea tools?"),
            ("n", "What should it do instead?"),
            ("use the ones that are here", "Worked for"),
        ),
        ("outside the sandbox", 'You said no: "use the ones that', "I left the tools out"),
        "A command outside the sandbox, and one that was denied",
    ),
    "plan": Play(
        (("plan the repair", "Worked for"),),
        ("✔ Read the cart", "▸ Repair total()"),
    ),
    "failure": Play(
        (
            ("run the tests", "Running sleep 60"),
            ("and then the docs", "next: and then the docs"),
            ("Escape", "stopped after"),
        ),
        ("Rate limited; trying again in 1 s (1 of 5)", "exit 1", "That took a second try."),
    ),
    "resume": Play(
        (
            ("where is the cart?", "Worked for"),
            ("C-d", "toolrest resume"),
            ("toolrest resume --last", "its last messages"),
            ("how many faults?", "As I said: two faults."),
        ),
        ("goes on",),
    ),
}
RAW = ("```", "](", "**", "~~")
KEYS = ("Escape", "C-d")


class Desk(NamedTuple):
    home: Path
    work: Path


@pytest.fixture
def desk() -> Iterator[Desk]:
    home = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
    work = home / "tea-shop"
    (home / "backup").mkdir()
    yield Desk(home, work)
    shutil.rmtree(home, ignore_errors=True)


def furnish(desk: Desk, name: str, url: str) -> None:
    """The scene's files, and a home with its settings."""
    for path, text in SCENES[name].files.items():
        (desk.work / path).parent.mkdir(parents=True, exist_ok=True)
        (desk.work / path).write_text(text)
    (desk.home / ".toolrest").mkdir(mode=0o700)
    (desk.home / ".toolrest" / "config.toml").write_text(
        'model = "gpt-5.5"\nmodel_provider = "scripted"\n'
        f"{SCENES[name].settings}"
        f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{url}"\n'
        'wire_api = "responses"\n'
        f'[projects."{desk.work}"]\ntrust_level = "trusted"\n'
    )


def play(window: Tmux, steps: tuple[tuple[str, str], ...]) -> None:
    for typed, shown in steps:
        if typed in KEYS:
            window.types(typed)
        elif len(typed) == 1:  # an answer: taken once the keyboard was quiet
            window.until(lambda key=typed, text=shown: pressed(window, key, text), shown)  # type: ignore[misc]
        else:
            window.types("-l", typed)
            window.shows(typed[:20])
            window.types("Enter")
        window.shows(shown)


def pressed(window: Tmux, key: str, shown: str) -> bool:
    """Press a key until it has answered: one that came too early is dropped, and says so."""
    if shown in window.now:
        return True
    if "one moment" not in window.now:
        window.types(key)
        window.until(lambda: shown in window.now or "one moment" in window.now, key)
    return shown in window.now


@pytest.mark.parametrize("size", [(80, 24), (50, 15)], ids=["80x24", "50x15"])
@pytest.mark.parametrize("name", SCENES)
def test_a_conversation(desk: Desk, tmp_path: Path, name: str, size: tuple[int, int]) -> None:
    scene, plan = SCENES[name], PLAYS[name]
    with ScriptedServer(scene.replies, models=("gpt-5.5",)) as server:
        furnish(desk, name, server.url)
        variables = {
            "HOME": str(desk.home),
            "TOOLREST_HOME": f"{desk.home}/.toolrest",
            "PATH": f"{Path(TOOLREST).parent}:{os.environ['PATH']}",
            "PS1": "$ ",
            "HISTFILE": "",
        }
        words = " ".join(f"'{key}={value}'" for key, value in variables.items())
        shell = f"env {words} bash --norc --noprofile -c 'toolrest; exec bash --norc'"
        window = Tmux(tmp_path, shell, desk.work, size)
        try:
            window.shows("Ask anything")
            play(window, plan.steps)
            above = window.run("capture-pane", "-t", "t", "-p", "-S", "-")
            assert name != "markdown" or not [text for text in RAW if text in above]
            assert "Traceback" not in above
            assert max(map(drawn_width, above.splitlines())) <= size[0]
            told = " ".join(above.split())
            assert not [text for text in plan.said if " ".join(text.split()) not in told]
            if WRITE and plan.picture and size == (80, 24):
                DOCS.joinpath(f"chat-{name}.svg").write_text(picture(desk, window, plan.picture))
        finally:
            window.run("kill-server")


def picture(desk: Desk, window: Tmux, title: str) -> str:
    text = window.run("capture-pane", "-t", "t", "-p", "-e", "-N")
    rows = text.replace(str(desk.home), "/home/jessica").splitlines()
    return svg(rows, 80, None, title)

"""A first day with the chat, played in tmux: set-up, a question, a live command, an approval by
key, a diff, undo, resume. `TOOLREST_WRITE_DOCS=1` writes its screens to docs/screens."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chat.svg import svg
from tests.chat.test_tmux import Tmux, answers
from tests.forked import TOOLREST

from toolrest.testing import Call, Freeform, Say, Think
from toolrest.testing.server import ScriptedServer

pytestmark = [pytest.mark.needs("tmux"), pytest.mark.needs("sandbox"), pytest.mark.long]
WRITE = os.environ.get("TOOLREST_WRITE_DOCS") == "1"
DOCS = Path(__file__).parents[2] / "docs" / "screens"
COLUMNS, ROWS = 90, 26
KEY = "sk-scripted-0123456789"
CHECK = """\
#!/bin/sh
echo 'words are joined by dashes ... ok'
echo 'capitals become small ... ok'
echo 'a blank at the end is dropped ... FAILED'
read line < .gate
echo
echo "slug('Hello ') is 'hello-', not 'hello'"
exit 1
"""
SLUG = 'def slug(title: str) -> str:\n    return title.lower().replace(" ", "-")\n'
PATCH = """\
*** Begin Patch
*** Update File: slug.py
@@
 def slug(title: str) -> str:
-    return title.lower().replace(" ", "-")
+    words = title.lower().split()
+    return "-".join(words)
*** End Patch
"""
ANSWER = """\
`slug` kept the blank at the end as a dash. It now **splits into words** first:

- blanks at both ends are gone
- several blanks in a row are one dash"""
COPY = {
    "cmd": "cp slug.py ~/backup/",
    "login": False,
    "sandbox_permissions": "require_escalated",
    "justification": "May I keep a copy of the file outside the project before I change it?",
}
CHECKED = Call("exec_command", {"cmd": "./check", "login": False})
SCRIPT: list[Any] = [
    "ready",
    [
        Think("The check says what is wrong."),
        Call("exec_command", {"cmd": "./check", "login": False}),
    ],
    Call("exec_command", COPY),
    Freeform("apply_patch", PATCH),
    [Say(ANSWER)],
    "You undid it: `slug.py` is as it was. Shall I try another way?",
]


class Person:
    """A person at a terminal, who takes pictures of it."""

    def __init__(self, home: Path, window: Tmux) -> None:
        self.home, self.window = home, window
        self.pictures: dict[str, str] = {}

    def picture(self, name: str, title: str) -> None:
        text = self.window.run("capture-pane", "-t", "t", "-p", "-e", "-N")
        place = self.window.run("display", "-t", "t", "-p", "#{cursor_y} #{cursor_x}").split()
        # A name of the same length, so that nothing moves.
        rows = text.replace(str(self.home), "/home/jessica").splitlines()
        self.pictures[name] = svg(rows, COLUMNS, (int(place[0]), int(place[1])), title)

    def says(self, text: str) -> None:
        self.window.types("-l", text)
        self.window.types("Enter")


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    home = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))  # as long a name as /home/jessica
    for folder in ("slugs", "backup"):
        (home / folder).mkdir()
    work = home / "slugs"
    (work / "check").write_text(CHECK)
    (work / "check").chmod(0o755)
    (work / "slug.py").write_text(SLUG)
    os.mkfifo(work / ".gate")
    with ScriptedServer(SCRIPT, key=KEY, models=("gpt-5.5", "gpt-5.5-mini")) as server:
        variables = {
            "HOME": str(home),
            "TOOLREST_HOME": f"{home}/.toolrest",
            "OPENAI_BASE_URL": server.url,
            "PATH": f"{Path(TOOLREST).parent}:{os.environ['PATH']}",
            "PS1": r"\W $ ",
            "HISTFILE": "",
        }
        words = " ".join(f"'{name}={value}'" for name, value in variables.items())
        window = Tmux(tmp_path, f"env {words} bash --norc --noprofile", work, (COLUMNS, ROWS))
        yield Person(home, window)
        window.run("kill-server")
        assert not server.refused
    shutil.rmtree(home, ignore_errors=True)


def test_a_first_day(person: Person) -> None:
    window, home = person.window, person.home
    work = home / "slugs"
    window.shows("slugs $")
    _sets_up(person)
    person.says("the check fails: find out why and mend it")
    window.shows("a blank at the end is dropped ... FAILED")
    window.shows("Esc stops")
    person.picture("live", "A command runs, its output comes along")
    with (work / ".gate").open("w") as gate:
        gate.write("on\n")
    window.shows("outside the sandbox?")
    person.picture("approval", "A question: the command, the model's reason, the answers")
    answers(window, "y")
    window.sees("several blanks in a row are one dash")
    window.shows("Worked for")
    assert (home / "backup" / "slug.py").read_text() == SLUG
    assert "split()" in (work / "slug.py").read_text()
    person.picture("diff", "The change, and the answer")
    person.says("/undo")
    window.until(lambda: (work / "slug.py").read_text() == SLUG, "it is undone")
    window.shows("restore slug.py")
    person.picture("undo", "The turn's changes are taken back")
    person.says("/quit")
    window.shows("this session goes on with: toolrest resume")
    _resumes(person)
    for name, text in person.pictures.items():
        assert not [word for word in (str(home), "/tmp", "/root", KEY) if word in text], name
        if WRITE:
            DOCS.mkdir(exist_ok=True)
            (DOCS / f"{name}.svg").write_text(text)


def _sets_up(person: Person) -> None:
    """The first run: a provider, a key that is not shown, a model, one request, trust."""
    window = person.window
    person.says("toolrest")
    window.shows("Provider [1]:")
    person.says("")
    window.shows("Key (not shown):")
    person.says(KEY)
    window.shows("Model [gpt-5.5]:")
    person.says("")
    window.shows("Answer [1]:")
    person.says("y")
    window.shows("workspace-write · gpt-5.5")
    window.shows("context left")
    assert KEY not in window.text
    stored = person.home / ".toolrest" / "keys.json"
    assert stored.stat().st_mode & 0o777 == 0o600
    person.picture("first-run", "The first run: provider, key, model, trust")


def _resumes(person: Person) -> None:
    window = person.window
    window.run("clear-history", "-t", "t")
    person.says("clear; toolrest resume")
    window.shows("Session [1]:")
    window.shows("the check fails: find out why")
    person.says("")
    window.shows("goes on; its last messages:")
    person.says("what is the state?")
    window.sees("Shall I try another way?")
    window.shows("Worked for")
    person.picture("resume", "An earlier session goes on")
    person.says("/quit")
    window.until(lambda: window.now.rstrip().endswith("$"), "back in the shell")

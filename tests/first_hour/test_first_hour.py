"""The first hour by hand: what a new user meets on a machine that nobody prepared.

An ordinary user with a fresh home, a key in the environment and the wheel; a fresh repository with
a failing test; its environment active; everything is typed into a shell. On three machines:
with a full sandbox, with Landlock alone, and with nothing that confines. `make first-hour` runs
this; `make first-hour SCREENS=folder` keeps every screen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.first_hour.conftest import copy_environment
from tests.first_hour.person import CTRL_D, ENTER, Person, State, own
from tests.screen import Screen

from toolrest.testing import Call, Freeform, Say
from toolrest.testing.server import ScriptedServer
from toolrest.wire.model_data import newest_general

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KEY = "sk-first-hour-0123456789"
MODEL = newest_general("openai", "gpt-") or ""
CART = """\
def total(prices: list[int], discount: int = 0) -> int:
    return sum(prices) + discount
"""
MENDED = CART.replace("sum(prices) + discount", "max(0, sum(prices) - discount)")
TEST = """\
from cart import total


def test_discount() -> None:
    assert total([4, 6], discount=1) == 9
"""
IGNORED = ".venv/\n__pycache__/\n.pytest_cache/\n"
GITCONFIG = "[user]\n\tname = Tea\n\temail = tea@example.org\n[init]\n\tdefaultBranch = main\n"
PATCH = """\
*** Begin Patch
*** Update File: cart.py
@@
 def total(prices: list[int], discount: int = 0) -> int:
-    return sum(prices) + discount
+    return max(0, sum(prices) - discount)
*** End Patch
"""
MEND = "mend cart.py"
FIX = "fix the failing test"
TEST_IT = "run the test"
STEPS: dict[str, list[Any]] = {
    MEND: [Freeform("apply_patch", PATCH), "The discount is subtracted now."],
    TEST_IT: [Call("exec_command", {"cmd": "pytest -q"}), "That was the test."],
    FIX: [
        [Say("I run the test first."), Call("exec_command", {"cmd": "pytest -q"})],
        Freeform("apply_patch", PATCH),
        Call("exec_command", {"cmd": "python -m pytest -q"}),
        "The discount was added; it is subtracted now.",
    ],
}
"""What the model does for each message."""


def model(request: Any) -> Any:
    """The next step for the last message: one for each output since."""
    items = request["input"]
    said = [n for n, item in enumerate(items) if item.get("role") == "user"][-1]
    steps = STEPS[items[said]["content"][0]["text"]]
    return steps[sum(item["type"].endswith("_output") for item in items[said:])]


FULL, LANDLOCK = pytest.mark.needs("namespaces"), pytest.mark.needs("landlock")
WALKS = [
    pytest.param("full", "home", False, id="full", marks=FULL),
    pytest.param("full", "tmp", True, id="full-tmp-inside", marks=FULL),
    pytest.param("landlock", "home", True, id="landlock-inside", marks=LANDLOCK),
    pytest.param("landlock", "tmp", False, id="landlock-tmp", marks=LANDLOCK),
    pytest.param("none", "home", False, id="none"),
    pytest.param("none", "tmp", True, id="none-tmp-inside"),
]
"""Each machine elsewhere and below /tmp, and with Toolrest in the project's environment and not."""


class Hour(NamedTuple):
    """Who meets what where."""

    state: State
    inside: bool
    """Toolrest lies in the project's own environment."""
    project: Path
    person: Person
    server: ScriptedServer

    @property
    def can_run(self) -> bool:
        """Landlock cannot keep a folder of the project from its commands: D-23 then stops them."""
        return self.state == "full" or (self.state == "landlock" and not self.inside)

    @property
    def way(self) -> str:
        """The end of the sentence that the start of the chat says where the sandbox is not full."""
        if self.can_run:
            return "`toolrest doctor` says how to get the full one."
        if self.state == "landlock":
            return "with `pipx install toolrest` or `uv tool install toolrest`."
        return "`toolrest doctor` says what is missing."

    @property
    def cart(self) -> str:
        return (self.project / "cart.py").read_text()


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(repeat(model), key=KEY, models=(MODEL, "gpt-5.5-mini")) as server:
        yield server
    assert server.refused == []


@pytest.mark.parametrize(("state", "place", "inside"), WALKS)
def test_the_first_hour(
    state: State,
    place: str,
    inside: bool,
    environments: Path,
    home: Path,
    below_tmp: Path,
    server: ScriptedServer,
    request: pytest.FixtureRequest,
) -> None:
    project = (below_tmp if place == "tmp" else home / "src") / "tea-shop"
    prepare(project, home, environments, inside=inside)
    key = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.url}
    with Person(state, request.node.callspec.id, home, key) as person:
        hour = Hour(state, inside, project, person, server)
        arrives(hour)
        tries_exec_in_a_new_folder(hour)
        answers_about_the_folder(hour)
        works_in_the_chat(hour)
        commits(hour)
        undoes(hour)
        gives_a_task_to_exec(hour)
        asks_doctor(hour)
        assert "Traceback" not in person.transcript
        assert KEY not in person.transcript
        is_not_sent_into_danger(person.transcript)


def prepare(project: Path, home: Path, environments: Path, *, inside: bool) -> None:
    """A project with a failing test, and Toolrest in its environment or in one of its own."""
    project.mkdir(parents=True)
    for name, text in (("cart.py", CART), ("test_cart.py", TEST), (".gitignore", IGNORED)):
        (project / name).write_text(text)
    (home / ".gitconfig").write_text(GITCONFIG)
    if inside:
        copy_environment(environments / "toolrest" / ".venv", project / ".venv")
    else:
        copy_environment(environments / "plain" / ".venv", project / ".venv")
        programs = home / ".local" / "bin"  # as pipx and `uv tool` install it
        programs.mkdir(parents=True)
        (programs / "toolrest").symlink_to(environments / "toolrest/.venv/bin/toolrest")
    own(project.parent)
    own(home)


def arrives(hour: Hour) -> None:
    """A repository with a hook of the person's own, its environment, and a test that fails."""
    person = hour.person
    person.does(f"cd {hour.project}")
    person.does("git init -q && git add -A && git commit -qm 'A cart'")
    person.does("echo 'touch .git/checked' > .git/hooks/pre-commit")
    person.does("chmod +x .git/hooks/pre-commit")
    person.does(". .venv/bin/activate")
    assert person.does("which pytest") == f"{hour.project}/.venv/bin/pytest"
    code, printed = person.runs("pytest -q", "the-failing-test")
    assert (code, "1 failed" in printed) == (1, True), printed


def tries_exec_in_a_new_folder(hour: Hour) -> None:
    """Nothing changes; the first and the last line say why, and the way."""
    printed = hour.person.does(f'toolrest exec "{MEND}" < /dev/null', "exec-in-a-new-folder")
    words = " ".join(printed.split())
    said = "this folder is not trusted (`toolrest trust`, or -s workspace-write)"
    assert f"read-only: {said}" in words
    assert f"1 call was denied: {said}" in words
    assert hour.cart == CART
    assert hour.person.does("git status --short") == ""


def answers_about_the_folder(hour: Hour) -> None:
    """One question in a folder that is not known; then the chat says where it works, and how."""
    person, screen = hour.person, hour.person.screen
    person.starts("toolrest")
    screen.shows("Work in ", "tea-shop?", "1. Yes", "2. Read only", "3. Quit", "Enter or 1-3")
    person.looks("a-new-folder")
    screen.until(lambda: pressed(screen, "1"), "the answer")
    screen.shows(f"{MODEL} ·")
    if hour.state != "full":
        screen.until(
            lambda: "".join(hour.way.split()) in "".join(of_the_chat(screen.now).split()),
            f"the way out is not said: {hour.way}",
        )
    start = person.looks("the-start")
    words = " ".join(of_the_chat(start).split())
    assert "read-only" not in words
    if hour.state == "full":
        assert "sandbox" not in words, "nothing is wrong"
    elif hour.can_run:
        sentence = "git hooks and settings are watched, not locked; .env can be read."
        assert f"Weak sandbox here: {sentence} {hour.way}" in words
        assert "weak sandbox" in start.rstrip().splitlines()[-1]
    else:
        assert "commands do not run" in words


def of_the_chat(text: str) -> str:
    """What stands below the line that started the chat."""
    return text.rpartition("$ toolrest\n")[2]


def pressed(screen: Screen, key: str) -> bool:
    """Press a key until it has answered: one that came too early is dropped, and says so."""
    if "one moment" not in screen.now and "3. Quit" in screen.now:
        screen.types(key)
        screen.until(
            lambda: "one moment" in screen.now or "3. Quit" not in screen.now, "the key is heard"
        )
    return "3. Quit" not in screen.now


def works_in_the_chat(hour: Hour) -> None:
    """The test is run and the code mended without a question; where nothing runs, only mended."""
    person, screen = hour.person, hour.person.screen
    if hour.can_run:
        says(hour, FIX, "it is subtracted now.")
        tested, again = outputs(hour.server)
        assert "1 failed" in tested, "the person's own pytest"
        assert "1 passed" in again, "the person's own Python"
    else:
        says(hour, MEND, "The discount is subtracted now.")
        says(hour, TEST_IT, "No sandbox works here: not run.")
        person.looks("no-command")
    person.looks("the-work")
    assert hour.cart == MENDED
    assert "outside the sandbox?" not in screen.text
    assert screen.text.count("Weak sandbox") == (hour.state == "landlock" and hour.can_run)
    screen.types(CTRL_D)
    code, _ = person.ends()
    person.looks("after-the-chat")
    assert code == 0


def says(hour: Hour, text: str, answer: str) -> None:
    """Send a message; the turn has ended when its cost in tokens is there."""
    screen = hour.person.screen
    ended = screen.text.count("Worked for")
    screen.types(text)
    screen.shows(f"› {text}")
    screen.types(ENTER)
    screen.sees(answer)
    screen.until(lambda: screen.text.count("Worked for") > ended, "the turn's end")


def outputs(server: ScriptedServer) -> list[str]:
    """What the session's commands printed, as the model read it."""
    items = server.requests[-1].body["input"]
    return [str(item["output"]) for item in items if item["type"] == "function_call_output"]


def commits(hour: Hour) -> None:
    """By hand, with the person's own hook; nothing of ours lies about."""
    person = hour.person
    assert person.does("git status --short") == " M cart.py"
    person.does("git commit -qam 'Subtract the discount'")
    person.does("rm .git/checked")
    assert person.does("git status --short") == ""


def undoes(hour: Hour) -> None:
    """The turn's change, though it is committed; the commit stays."""
    hour.person.does("toolrest undo", "undo")
    assert hour.cart == CART
    assert hour.person.does("git status --short") == " M cart.py"


def gives_a_task_to_exec(hour: Hour) -> None:
    """In a folder that is known now, with a person at the terminal."""
    printed = hour.person.does(f'toolrest exec "{MEND}"', "exec")
    words = " ".join(printed.split())
    assert "The discount is subtracted now." in words
    assert "not trusted" not in words
    assert ("weak sandbox" in words.lower()) == (hour.state == "landlock" and hour.can_run)
    assert hour.cart == MENDED


def asks_doctor(hour: Hour) -> None:
    """The verdict in five lines: sandbox, model and key, folder, programs, what to do."""
    code, printed = hour.person.runs("toolrest doctor", "doctor")
    lines = printed.splitlines()
    first = "\n".join(lines[:5])
    assert (code == 0) == hour.can_run, printed
    for words in ("sandbox", MODEL, "OPENAI_API_KEY", "tea-shop"):
        assert words in first, printed
    if hour.state == "landlock" and hour.can_run:
        assert "weak" in lines[0].lower(), printed
    if hour.inside:  # where it is all there is to do, it is said first
        printed = first if hour.state == "landlock" else hour.person.runs("toolrest doctor -v")[1]
        assert "pipx" in printed
        assert "uv tool install" in printed


def is_not_sent_into_danger(transcript: str) -> None:
    """Wherever no sandbox at all is named as a way out, a better one is named before it."""
    text = "".join(transcript.split())  # a terminal breaks lines anywhere
    before, _, after = text.partition("danger-full-access")
    if after:
        assert re.search("`toolrestdoctor`|aptinstallbubblewrap|--security-opt", before)

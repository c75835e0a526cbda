"""A weak sandbox in `exec`, the plain chat, the journal and the settings.

Every session here really is confined by Landlock alone: it has the rights of a plain container.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import SCHEMA, Ran
from tests.forked import TOOLREST
from tests.machine import REPOSITORY
from tests.screen import Screen

from toolrest.testing import Call
from toolrest.web_ui.feed import read_events

CONTAINER = (sys.executable, str(REPOSITORY / "tests/plain_container.py"), "--", TOOLREST)
SENTENCE = (
    "Weak sandbox here: git hooks and settings are watched, not locked; .env can be read. "
    "`toolrest doctor` says how to get the full one."
)
ECHO = Call("exec_command", {"cmd": "echo ran", "login": False})
HOOK = Call("exec_command", {"cmd": "echo x > .git/hooks/pre-commit", "login": False})

pytestmark = [pytest.mark.needs("landlock"), pytest.mark.slow]


def contained(desk: Any, *arguments: str) -> Ran:
    """Run `toolrest` with the rights of a plain container."""
    done = subprocess.run(
        [*CONTAINER, *arguments],
        cwd=desk.workspace,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def exec_(desk: Any, *arguments: str, mode: str = "workspace-write") -> Ran:
    return contained(desk, "exec", "-s", mode, *arguments, "go")


def test_exec_says_it_in_its_header(desk: Any, serve: Any) -> None:
    """Failed before: nothing was said to the person."""
    serve([ECHO, "the end"])
    ran = exec_(desk)
    assert ran.code == 0, ran.err
    first, second, *rest = ran.err.splitlines()
    assert first.startswith("gpt-5.5, workspace-write, ")
    assert second == SENTENCE
    assert "eak sandbox" not in "\n".join(rest)


def test_a_run_without_a_command_says_it_too(desk: Any, serve: Any) -> None:
    serve(["the end"])
    ran = exec_(desk)
    assert ran.err.splitlines()[1] == SENTENCE
    assert ran.out == "the end\n"


def test_the_first_event_of_json_has_it(desk: Any, serve: Any) -> None:
    """Failed before: there was no such field."""
    serve([ECHO, "the end"])
    lines = exec_(desk, "--json").lines
    assert lines[0]["weak_sandbox"] is True
    assert "weak_sandbox" in json.loads(SCHEMA.read_text())["$defs"]["thread_started"]["properties"]
    serve([ECHO, "the end"])
    assert exec_(desk, "--json", mode="read-only").lines[0]["weak_sandbox"] is False


@pytest.mark.needs("namespaces")
def test_a_full_sandbox_is_not_weak(desk: Any, serve: Any) -> None:
    serve([ECHO, "the end"])
    ran = desk.run("exec", "-s", "workspace-write", "--json", "go")
    assert ran.lines[0]["weak_sandbox"] is False
    serve([ECHO, "the end"])
    assert "eak sandbox" not in desk.run("exec", "-s", "workspace-write", "go").err


def test_exec_denies_a_named_write_to_a_protected_name(desk: Any, serve: Any) -> None:
    """Failed before: the hook was written, with exit code 0."""
    hooks = desk.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    serve([HOOK, "the end"])
    ran = exec_(desk, "--json")
    (denial,) = ran.result["denials"]
    assert denial["rule"] == "path.protected"
    assert "not locked in this weak sandbox" in denial["reason"]
    assert '"allow"' not in denial["reason"], "which would not allow it"
    assert list(hooks.iterdir()) == []


def test_a_session_that_goes_on_says_two_words(desk: Any, serve: Any) -> None:
    serve(["first"])
    exec_(desk)
    serve(["second"])
    ran = exec_(desk, "--last")
    assert ran.code == 0, ran.err
    assert "\nweak sandbox\n" in ran.err
    assert SENTENCE not in ran.err


def test_the_page_shows_it_once(desk: Any, serve: Any) -> None:
    """Failed before: a session's page said nothing."""
    serve([ECHO, "first"])
    exec_(desk)
    serve(["second"])
    exec_(desk, "--last")
    (journal,) = (desk.home / "sessions").rglob("*.jsonl")
    events, _ = read_events(str(journal), 0)
    texts = [event.get("text") for event in events if event["kind"] == "notice"]
    assert texts == [SENTENCE]
    kinds = [event["kind"] for event in events]
    assert kinds.index("notice") < kinds.index("output")


def test_the_plain_chat_says_it_before_it_asks(desk: Any, serve: Any) -> None:
    serve([])
    argv = [*CONTAINER, "chat", "--plain", "-s", "workspace-write"]
    with Screen(argv, cwd=desk.workspace) as screen:
        screen.shows("you:")
        assert " ".join(screen.now.split()).count(SENTENCE) == 1
        assert screen.now.index("Weak sandbox") < screen.now.index("you:")
        screen.types("/status\r")
        screen.shows("approvals  on-request")
        assert " ".join(screen.now.split()).count(SENTENCE) == 2
        screen.types("/quit\r")
        assert screen.ends() == 0


def test_accepted_it_is_two_words(desk: Any, serve: Any) -> None:
    serve(["the end"])
    with open(desk.home / "config.toml", "a") as file:
        file.write("[sandbox]\naccept_weak = true\n")
    ran = exec_(desk)
    assert ran.err.splitlines()[1] == "weak sandbox"
    serve(["the end"])
    assert exec_(desk, "--json").lines[0]["weak_sandbox"] is True


def test_a_project_cannot_accept_it(desk: Any, serve: Any, tmp_path: Path) -> None:
    serve(["the end"])
    (desk.workspace / ".toolrest").mkdir()
    (desk.workspace / ".toolrest/config.toml").write_text("[sandbox]\naccept_weak = true\n")
    assert desk.run("trust", str(desk.workspace)).code == 0
    ran = exec_(desk)
    assert ran.code == 2
    assert "a project's file may not set sandbox.accept_weak" in ran.err

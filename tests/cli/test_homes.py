"""Homes of earlier releases open: `make_home.py` made each with the release that it is named by."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.make_home import PROJECT, STORE, TASKS, make_project

from toolrest import Toolrest, __version__
from toolrest.config.loader import load
from toolrest.testing import ScriptedServer

HOMES = sorted((Path(__file__).parents[1] / "data").glob("home-*"))
SEALED = ("approvals", "audit")
"""Hashed as they are; no test may change a path in them."""
FULL = ("-s", "danger-full-access")
NO_SERVER = ("-c", "mcp_servers.notes.enabled=false")


def case(home: Path) -> Any:
    """A home as a parameter; what this release itself writes is read by most other tests, too."""
    own = home.name == f"home-{__version__.rpartition('.')[0]}"
    return pytest.param(home, id=home.name, marks=[pytest.mark.long] if own else [])


@pytest.fixture(params=map(case, HOMES))
def old(request: pytest.FixtureRequest, desk: Any) -> Any:
    """A desk with such a home, and the project that it knows at another path."""
    shutil.copytree(request.param, desk.home, dirs_exist_ok=True)
    for path in desk.home.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)  # git keeps no modes
        if path.is_file() and path.relative_to(desk.home).parts[0] not in SEALED:
            path.write_text(path.read_text().replace(PROJECT, str(desk.workspace)))
    make_project(desk.workspace)
    return desk


def printed(old: Any, *arguments: str) -> str:
    """What a command prints; it succeeds and has nothing to complain about."""
    ran = old.run(*arguments)
    assert (ran.code, ran.err) == (0, ""), arguments
    return str(ran.out)


def sessions(old: Any) -> dict[str, str]:
    """The ids by what distinguishes the sessions: the fork has its original's title."""
    rows = [json.loads(line) for line in printed(old, "sessions", "list", "--json").splitlines()]
    assert {row["cwd"] for row in rows} == {str(old.workspace)}
    found = {}
    for row in rows:
        killed = row["title"] == "start the server"
        fork = "forked_from_id" in Path(row["path"]).read_text()
        found["killed" if killed else "fork" if fork else "resumed"] = row["id"]
    assert len(found) == len(rows) == 3
    return found


@pytest.mark.slow
def test_sessions_are_listed_shown_and_exported(old: Any) -> None:
    found = sessions(old)
    shown = printed(old, "sessions", "show", found["resumed"])
    for part in ("make the greeting longer", "edit_file", "make a note of it", "I made a note."):
        assert part in shown
    assert "The fork says so." not in shown
    assert "The fork says so." in printed(old, "sessions", "export", found["fork"])
    exported = json.loads(printed(old, "sessions", "export", "--format", "json", found["killed"]))
    assert [item["type"] for item in exported["items"]][-1] == "function_call"
    lines = printed(old, "sessions", "export", "--format", "jsonl", found["fork"]).splitlines()
    assert json.loads(lines[0])["type"] == "session_meta"


@pytest.mark.slow
def test_sessions_go_on(old: Any) -> None:
    found = sessions(old)
    said = {
        "resumed": "I made a note.",
        "fork": "The fork says so.",
        "killed": "echo started; sleep 1000",
    }
    with ScriptedServer([f"{name} goes on" for name in said]) as server:
        base = f"model_providers.scripted.base_url={server.url}"
        for name, before in said.items():
            ran = old.run("sessions", "resume", *FULL, *NO_SERVER, "-c", base, found[name], "go on")
            assert (ran.code, ran.out.strip()) == (0, f"{name} goes on"), ran.err
            assert before in json.dumps(server.requests[-1].body["input"])
        assert server.refused == []  # it refuses a call that has no output
    assert "killed goes on" in printed(old, "sessions", "show", found["killed"])


@pytest.fixture
def verdict(old: Any) -> Callable[..., str]:
    """What a session with this home says to a call."""
    rest = Toolrest(old.workspace, config=load(workspace=str(old.workspace), surface="cli"))
    return lambda name, **arguments: rest.explain(name, arguments).verdict


def test_grants_count(old: Any, verdict: Callable[..., str]) -> None:
    scopes = [grant["scope"] for grant in json.loads(printed(old, "grants", "list", "--json"))]
    assert scopes == ["project", "user"]
    assert verdict("exec_command", cmd="make lint") == "allow"
    assert verdict("exec_command", cmd="make other") == "ask"
    assert verdict("write_file", file_path="docs/guide.md", content="x") == "allow"
    assert verdict("write_file", file_path="docs/other.md", content="x") == "ask"
    printed(old, "grants", "revoke", "--all")
    assert verdict("exec_command", cmd="make lint") == "ask"


def test_rules_count(old: Any, verdict: Callable[..., str]) -> None:
    assert verdict("exec_command", cmd="make check") == "allow"
    assert verdict("exec_command", cmd="make deploy") == "deny"
    checked = json.loads(printed(old, "policy", "check", "--json", "-a", "on-request", "git push"))
    assert (checked["verdict"], checked["segments"][0]["row"]) == ("ask", "rule")


@pytest.mark.slow
def test_pins_count(old: Any) -> None:
    server = old.workspace / "notes-server"
    approved = server.read_text()
    server.write_text(approved.replace("Count the notes", "Send the notes away"))
    ran = old.run("mcp", "list", *FULL)
    assert ran.code == 1
    assert "changed since it was approved" in ran.out
    server.write_text(approved)
    listed = json.loads(printed(old, "mcp", "list", *FULL, "--json"))
    assert [(row["name"], row["state"]) for row in listed] == [("notes", "ready")]


def test_settings_count(old: Any, verdict: Callable[..., str]) -> None:
    shown = printed(old, "config", "show")
    assert 'approval_policy = "untrusted"' in shown
    assert f'projects."{old.workspace}".trust_level = "trusted"' in shown
    assert printed(old, "config", "get", "-p", "careful", "approval_policy") == '"strict"\n'
    assert verdict("webfetch", url="http://127.0.0.1:9") == "deny"
    assert verdict("write_file", file_path="vendor/a", content="x") == "deny"


def test_pending_approvals_can_be_answered(old: Any) -> None:
    rows = [json.loads(row) for row in printed(old, "approvals", "list", "--json").splitlines()]
    waiting, answered = sorted(rows, key=lambda row: row["state"], reverse=True)
    assert (waiting["state"], answered["state"]) == ("waiting", "answered")
    assert "make install" in printed(old, "approvals", "show", waiting["id"])
    printed(old, "approvals", "deny", waiting["id"], "not today")
    assert "answered" in printed(old, "approvals", "show", waiting["id"])


def test_the_audit_logs_verify(old: Any) -> None:
    logs = list((old.home / "audit").glob("*.jsonl"))
    assert printed(old, "audit", "verify").count("lines are intact") == len(logs) > 5
    log = next(log for log in logs if "make lint" in log.read_text())
    assert "exec_command" in printed(old, "audit", "show", str(log))


def test_notes_are_remembered(old: Any) -> None:
    assert "Be brief." in printed(old, "call", *NO_SERVER, "get_memory", '{"memory_id": "global"}')


def test_the_store_of_a_batch_is_read_and_gone_on_with(old: Any) -> None:
    store = old.home / STORE
    if not store.exists():
        return  # 0.1 had none
    assert "2 of 2 have a result" in printed(old, "batch", "status", str(store))
    rows = printed(old, "batch", "results", str(store), "--format", "jsonl").splitlines()
    texts = {row["id"]: row["text"] for row in map(json.loads, rows)}
    assert texts["one"] == "Hello."
    tasks = old.workspace / "tasks.jsonl"
    tasks.write_text(TASKS)
    assert old.run("batch", "retry", str(store)).err.startswith("1 task will run again: ")
    with ScriptedServer(["In rhymes."]) as server:  # one reply: what succeeded is not run again
        base = f"model_providers.scripted.base_url={server.url}"
        ran = old.run("batch", str(tasks), "--store", str(store), "-c", base, *NO_SERVER)
    assert ran.code == 0, ran.err


def test_the_doctor_finds_nothing_wrong_with_it(old: Any) -> None:
    ran = old.run("doctor")
    assert ran.code in (0, 1)  # 1: no sandbox on this machine
    assert ran.err == ""
    assert "bubblewrap" in ran.out

"""Which events each tool is told by, under the names and fields that clients of Codex know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolrest import Conversation, Toolrest
from toolrest.agent.subagents.delegation import delegate
from toolrest.config.loader import default_config, load
from toolrest.testing import Say, ScriptedModel

PATCH = "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch\n"
GENERAL = {"turn_started", "turn_ended", "tool_call_begin", "tool_call_decision", "tool_call_end"}
GENERAL |= {"tool_call_delta", "files_changed"}


def rest_in(folder: Path) -> Toolrest:
    settings = {"approval_policy": "never", "tool_security.audit_log_enabled": False}
    return Toolrest(folder, settings=settings)


def heard(rest: Toolrest) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    rest.subscribe(lambda event: seen.append(event.to_json()))
    return seen


def own(seen: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in seen if event["type"] not in GENERAL]


RUN = ["exec_command_begin", "exec_command_output_delta", "exec_command_end"]


@pytest.mark.usefixtures("any_sandbox")
@pytest.mark.parametrize(
    ("name", "arguments", "names"),
    [
        ("exec_command", {"cmd": "echo hi", "login": False}, RUN),
        ("shell", {"command": ["echo", "hi"]}, RUN),
        ("shell_command", {"command": "echo hi", "login": False}, RUN),
        ("apply_patch", {"input": PATCH}, ["patch_apply_begin", "patch_apply_end", "turn_diff"]),
        ("update_plan", {"plan": [{"step": "a", "status": "pending"}]}, ["plan_update"]),
        ("read_file", {"file_path": "a.txt"}, []),
        ("list_dir", {"dir_path": "."}, []),
        ("grep_files", {"pattern": "x"}, []),
        ("list_mcp_resources", {}, ["mcp_tool_call_begin", "mcp_tool_call_end"]),
    ],
)
async def test_each_tool_is_told_by_its_events(
    tmp_path: Path, name: str, arguments: dict[str, Any], names: list[str]
) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    async with rest_in(tmp_path) as rest:
        seen = heard(rest)
        await rest.call(name, arguments, call_id="c")
    assert own(seen) == names
    assert {event.get("call_id", "c") for event in seen} == {"c"}


@pytest.mark.usefixtures("any_sandbox")
async def test_typing_is_told(tmp_path: Path) -> None:
    async with rest_in(tmp_path) as rest:
        arguments = {"cmd": "cat", "tty": True, "login": False, "yield_time_ms": 250}
        started = await rest.call("exec_command", arguments, call_id="start")
        number = int(started.text.split("session ID ")[1].split()[0])
        seen = heard(rest)
        await rest.call("write_stdin", {"session_id": number, "chars": "\x04"}, call_id="c")
    (typed,) = [event for event in seen if event["type"] == "terminal_interaction"]
    assert (typed["call_id"], typed["process_id"], typed["stdin"]) == ("start", str(number), "\x04")


async def test_questions_are_told_by_what_they_are_about(tmp_path: Path) -> None:
    config = load(workspace=tmp_path, flags={"approval_policy": "untrusted"})
    async with Toolrest(tmp_path, config=config, on_ask=lambda _: "denied") as rest:
        seen = heard(rest)
        await rest.call("exec_command", {"cmd": "make it", "login": False}, call_id="run")
        await rest.call("apply_patch", {"input": PATCH}, call_id="patch")
        await rest.call("save_memory", {"text": "a", "scope": "global"}, call_id="note")
    run, patch, note = [event for event in seen if event["type"].endswith(("request", "requested"))]
    assert run["type"] == "exec_approval_request"
    assert (run["call_id"], run["command"][-1], run["cwd"]) == ("run", "make it", str(tmp_path))
    assert run["proposed_execpolicy_amendment"] == ["make", "it"]
    assert run["parsed_cmd"][0]["type"] == "unknown"
    assert patch["type"] == "apply_patch_approval_request"
    assert patch["changes"] == {str(tmp_path / "made"): {"type": "add", "content": "x\n"}}
    assert patch["grant_root"] is None
    assert (note["type"], note["call_id"]) == ("approval_requested", "note")
    assert all(event["reason"] and event["turn_id"] for event in (run, patch, note))


async def test_agents_are_told_in_pairs(tmp_path: Path, toolrest_home: Path) -> None:
    config = default_config({"tool_security.audit_log_enabled": False}, workspace=tmp_path)
    rest = Toolrest(tmp_path, config=config)
    model = ScriptedModel([Say("done"), Say("again")])
    agents = delegate(rest, lambda _: model, environ={"PATH": "/usr/bin:/bin"})
    assert agents is not None
    async with Conversation(rest, model, agents=agents):
        seen = heard(rest)
        spawned = await rest.call("spawn_agent", {"message": "go", "agent_type": "general"})
        agent = json.loads(spawned.text)["agent_id"]
        await rest.call("wait", {"ids": [agent]})
        await rest.call("send_input", {"id": agent, "message": "more"})
        await rest.call("wait", {"ids": [agent]})
        await rest.call("close_agent", {"id": agent})
        await rest.call("resume_agent", {"id": agent})
        await rest.call("close_agent", {"id": "00000000-0000-0000-0000-000000000007"})
    told = [event for event in seen if event["type"].startswith("collab_")]
    told = [event for event in told if event["type"] != "collab_agent_status"]
    pairs = ["agent_spawn", "waiting", "agent_interaction", "waiting", "close", "resume", "close"]
    expected = [f"collab_{name}_{when}" for name in pairs for when in ("begin", "end")]
    assert [event["type"] for event in told] == expected
    assert (told[0]["prompt"], told[1]["receiver_thread_ids"]) == ("go", [agent])
    assert told[3]["statuses"] == {agent: {"completed": "done"}}
    assert [event["success"] for event in told[1::2]] == [True] * 6 + [False]
    assert {event["sender_thread_id"] for event in told} == {rest.session.id}
    roles = {event["role"] for event in seen if event["type"] == "collab_agent_status"}
    assert roles == {"default"}


@pytest.mark.usefixtures("any_sandbox")
async def test_commands_that_look_say_what_they_look_at(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    expected = [{"type": "read", "cmd": "cat a.txt", "name": "a.txt", "path": "a.txt"}]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("exec_command", {"cmd": "cat a.txt | head -5", "login": False}),
        ("shell_command", {"command": "cat a.txt | head -5", "login": False}),
        ("shell", {"command": ["bash", "-c", "cat a.txt | head -5"]}),
    ]
    for tool, arguments in calls:
        config = load(workspace=tmp_path, flags={"approval_policy": "on-request"})
        async with Toolrest(tmp_path, config=config) as rest:
            seen = heard(rest)
            await rest.call(tool, arguments, call_id="c")
        told = [event["parsed_cmd"] for event in seen if "parsed_cmd" in event]
        assert told == [expected, expected], tool

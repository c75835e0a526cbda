"""The environment switches, as the command sees them, under both of their names (M-38)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrest.testing import Call, Pause

PREFIXES = ["TOOLREST_", "MEMO_"]
"""Every variable counts under both of them: tests/config/test_env.py."""
COLLAB = {"spawn_agent", "send_input", "wait", "close_agent", "resume_agent"}
SHELL = {"exec_command", "write_stdin"}


def offered(desk: Any, **env: str) -> set[str]:
    done = desk.run("tools", "--json", env=env)
    assert done.code == 0, done.err
    return {row["name"] for row in json.loads(done.out)}


@pytest.mark.parametrize(
    ("name", "value", "gone", "come"),
    [
        ("MEMO_EXPERIMENTAL_TOOLS", "read_file", {"list_dir", "grep_files", "glob_files"}, set()),
        ("MEMO_SHELL_TOOL_TYPE", "shell_command", SHELL, {"shell_command"}),
        ("TOOLREST_SHELL_TOOL_TYPE", "disabled", SHELL, set()),
        ("TOOLREST_ENABLE_COLLAB_TOOLS", "0", COLLAB, set()),
        ("TOOLREST_ENABLE_MEMORY_TOOL", "0", {"get_memory", "save_memory"}, set()),
    ],
)
def test_switches_change_what_is_offered(
    desk: Any, name: str, value: str, gone: set[str], come: set[str]
) -> None:
    usual = offered(desk)
    assert gone <= usual
    assert offered(desk, **{name: value}) == (usual - gone) | come


@pytest.mark.slow
@pytest.mark.parametrize("prefix", PREFIXES)
def test_how_much_of_a_result_is_shown(desk: Any, prefix: str) -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    (desk.workspace / "long.txt").write_text(text)
    call = ("call", "read_file", json.dumps({"file_path": "long.txt", "limit": 1000}))
    usual = desk.run(*call).out
    assert 12_000 <= len(usual) < 13_000
    short = desk.run(*call, env={f"{prefix}TOOL_RESULT_MAX_CHARS": "500"}).out
    assert 500 <= len(short) < 1_100
    assert "truncated" in short
    assert "bytes shown (tool_result_max_chars = 500)" in short
    assert len(desk.run(*call, env={f"{prefix}TOOL_RESULT_MAX_CHARS": "400000"}).out) > 14_500
    beyond = desk.run(*call, env={f"{prefix}TOOL_RESULT_MAX_CHARS": "400001"})
    assert beyond.code == 2
    assert "400000" in beyond.err


@pytest.mark.parametrize(
    ("prefix", "most", "refused"),
    [("TOOLREST_", None, 1), ("TOOLREST_", "2", 3), ("MEMO_", "9", 0)],
)
def test_how_many_agents_may_work_at_once(
    desk: Any, serve: Any, prefix: str, most: str | None, refused: int
) -> None:
    spawns = [Call("spawn_agent", {"message": f"task {n}"}, f"c{n}") for n in range(5)]

    def answer(request: Any) -> Any:
        last = request["input"][-1]
        if last.get("type") == "function_call_output":
            return "enough"
        mine = "spawn five" in json.dumps(last)
        return spawns if mine else [Pause(60), "a child that works on"]

    server = serve([answer] * 20)
    env = {} if most is None else {f"{prefix}SUBAGENT_MAX_AGENTS": most}
    assert desk.run("exec", "spawn five", env=env).code == 0
    bodies = [json.dumps(request.body) for request in server.requests]
    said = next(body for body in bodies if "function_call_output" in body)
    assert said.count(f"agent thread limit reached (max {most or 4})") == refused


def test_a_bad_value_is_named_before_anything_runs(desk: Any) -> None:
    done = desk.run("tools", env={"TOOLREST_SHELL_TOOL_TYPE": "fish"})
    assert done.code == 2
    assert "TOOLREST_SHELL_TOOL_TYPE" in done.err

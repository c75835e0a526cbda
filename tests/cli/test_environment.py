"""The environment switches, as the command sees them, under both of their names (M-38)."""

from __future__ import annotations

import json
from typing import Any

import pytest

PREFIXES = ["TOOLREST_", "MEMO_"]


def offered(desk: Any, **env: str) -> set[str]:
    done = desk.run("tools", "--json", env=env)
    assert done.code == 0, done.err
    return {row["name"] for row in json.loads(done.out)}


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("name", "value", "gone", "come"),
    [
        ("EXPERIMENTAL_TOOLS", "read_file", {"list_dir", "grep_files", "glob_files"}, set()),
        ("SHELL_TOOL_TYPE", "shell_command", {"exec_command", "write_stdin"}, {"shell_command"}),
        ("SHELL_TOOL_TYPE", "disabled", {"exec_command", "write_stdin"}, set()),
        (
            "ENABLE_COLLAB_TOOLS",
            "0",
            {"spawn_agent", "send_input", "wait", "close_agent", "resume_agent"},
            set(),
        ),
        ("ENABLE_MEMORY_TOOL", "0", {"get_memory", "save_memory"}, set()),
    ],
)
def test_switches_change_what_is_offered(
    desk: Any, prefix: str, name: str, value: str, gone: set[str], come: set[str]
) -> None:
    usual = offered(desk)
    assert gone <= usual
    assert offered(desk, **{prefix + name: value}) == (usual - gone) | come


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


@pytest.mark.parametrize("prefix", PREFIXES)
def test_how_many_agents_may_work_at_once(desk: Any, prefix: str) -> None:
    assert desk.run("config", "get", "agents.max_agents").out.split()[0] == "4"
    more = desk.run("config", "get", "agents.max_agents", env={f"{prefix}SUBAGENT_MAX_AGENTS": "9"})
    assert more.out.split()[0] == "9"


def test_a_bad_value_is_named_before_anything_runs(desk: Any) -> None:
    done = desk.run("tools", env={"TOOLREST_SHELL_TOOL_TYPE": "fish"})
    assert done.code == 2
    assert "TOOLREST_SHELL_TOOL_TYPE" in done.err

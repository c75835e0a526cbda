"""What `toolrest tools` says of every built-in tool (M-17). Each change here is a decision."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest

Row = tuple[str, str, bool, bool]

# kind, risk, mutating, parallel
COMMAND: Row = ("function", "execute", True, False)
PATCH: Row = ("function", "write", True, False)
READER: Row = ("function", "read", False, True)
# Touches nothing outside of the session, but two plans at once would be one too many.
PLAN: Row = ("function", "read", False, False)

# Reaches other machines, but two at once do not meet.
FETCH: Row = ("function", "write", True, True)

DEFAULT: dict[str, Row] = {
    "exec_command": COMMAND,
    "write_stdin": COMMAND,
    "list_mcp_resource_templates": READER,
    "list_mcp_resources": READER,
    "read_mcp_resource": READER,
    "update_plan": PLAN,
    "apply_patch": PATCH,
    "glob_files": READER,
    "grep_files": READER,
    "list_dir": READER,
    "read_file": READER,
    "webfetch": FETCH,
    "view_image": READER,
    "get_memory": READER,
    "save_memory": PATCH,
}

# Only where an agent can be run; judged call by call, so they may start together.
AGENTS: dict[str, Row] = {
    "close_agent": PLAN,
    "resume_agent": PLAN,
    "send_input": ("function", "execute", True, True),
    "spawn_agent": ("function", "execute", True, True),
    "wait": READER,
}


def family(shell: dict[str, Row], patch: Row = PATCH) -> dict[str, Row]:
    rest = {name: row for name, row in DEFAULT.items() if row != COMMAND}
    return {**shell, **rest, "apply_patch": patch}


# String edits cannot make a file, so these models get a tool that can.
STRING_EDITS = {
    name: row
    for entry in DEFAULT.items()
    for name, row in ([entry, ("write_file", PATCH)] if entry[0] == "apply_patch" else [entry])
}

TABLES: dict[str | None, dict[str, Row]] = {
    None: DEFAULT,
    "claude-sonnet": STRING_EDITS,
    "qwen3-coder": STRING_EDITS,
    "gpt-5": family({"shell": COMMAND}),
    "gpt-oss-20b": family({"shell": COMMAND}),
    "gpt-5.1-codex": family({"shell_command": COMMAND}, ("custom", "write", True, False)),
    "codex-mini-latest": family({"local_shell": ("local_shell", "execute", True, False)}),
}


def rows(table: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    return {
        row["name"]: (row["kind"], row["risk"], row["mutating"], row["parallel"]) for row in table
    }


def test_the_table_of_the_command_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "toolrest", "tools", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    table = json.loads(done.stdout)
    expected = {**DEFAULT, **AGENTS}
    assert rows(table) == expected
    assert list(rows(table)) == list(expected)
    assert all(row["description"] for row in table)


@pytest.mark.parametrize("model", TABLES)
def test_the_table_of_each_family(tmp_path: Path, model: str | None) -> None:
    rest = Toolrest(tmp_path, tools=["all"], model=model)
    assert rows(rest.table()) == TABLES[model]
    assert list(rows(rest.table())) == list(TABLES[model])
    for name, (_, _, _, parallel) in TABLES[model].items():
        assert rest.supports_parallel(name) is parallel
    # Older forms of the shell have a handler whatever is offered.
    for name in ("shell", "container.exec", "local_shell", "shell_command"):
        assert rest.supports_parallel(name) is False
    with pytest.raises(KeyError, match="no tool named nope"):
        rest.supports_parallel("nope")


async def test_families_that_prefer_functions_get_only_functions(tmp_path: Path) -> None:
    from toolrest import Effects, tool

    @tool(input_format="freeform", effects=Effects.none())
    async def free(text: str) -> str:
        """Raw text."""
        return text

    for model, kinds in (("gpt-oss-20b", {"function"}), ("gpt-5.5", {"function", "custom"})):
        async with Toolrest(workspace=tmp_path, model=model, tools=[free, "all"]) as rest:
            assert {spec["type"] for spec in rest.specs("responses")} == kinds


async def test_no_two_tools_are_offered_under_one_name(tmp_path: Path) -> None:
    from toolrest import tool

    @tool(mutating=False)
    def shell(x: str) -> str:
        """Mine."""
        return x

    async with Toolrest(
        workspace=tmp_path, model="codex-mini-latest", tools=[shell, "all"], override=True
    ) as rest:
        names = [spec["function"]["name"] for spec in rest.specs("chat")]
    assert len(names) == len(set(names))


FAMILIES = {
    # model: may call in parallel; characters shown of an output of 100,000
    "gpt-5": (False, 12_000),
    "gpt-5.5": (True, 48_000),
    "gpt-5.1-codex": (False, 48_000),
    "claude-sonnet": (True, 12_000),
    "qwen3-coder": (False, 12_000),
    "mystery": (False, 12_000),
}


@pytest.mark.parametrize("model", FAMILIES)
async def test_a_familys_row_is_what_a_session_does(tmp_path: Path, model: str) -> None:
    from toolrest.agent.open_session import open_session
    from toolrest.config.loader import default_config
    from toolrest.testing import Call, ScriptedModel

    parallel, shown = FAMILIES[model]
    (tmp_path / "long.txt").write_text(("x" * 99 + "\n") * 1000)
    scripted = ScriptedModel([[Call("read_file", {"file_path": "long.txt", "limit": 1000})], "ok"])
    config = default_config({"model": model}, workspace=tmp_path)
    session = open_session(config, scripted, ephemeral=True)
    await session.run("go")
    await session.aclose()
    first, second = scripted.requests
    assert first.parallel_tool_calls is parallel
    output = next(item for item in second.items if item["type"] == "function_call_output")["output"]
    assert shown <= len(output) <= shown + 700

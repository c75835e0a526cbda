from __future__ import annotations

from typing import Any

import pytest

from toolrest.config.layers import VARIABLES

GOOD: dict[str, tuple[str, str, Any]] = {
    "TOOL_RESULT_MAX_CHARS": ("5000", "tool_result_max_chars", 5000),
    "EXPERIMENTAL_TOOLS": (
        " read_file, grep_files,read_file",
        "tools.experimental_tools",
        ("read_file", "grep_files"),
    ),
    "SHELL_TOOL_TYPE": ("shell_command", "tools.shell_type", "shell_command"),
    "ENABLE_COLLAB_TOOLS": ("0", "tools.include_collab_tools", False),
    "ENABLE_MEMORY_TOOL": ("false", "tools.include_memory_tool", False),
    "SUBAGENT_MAX_AGENTS": ("50", "agents.max_agents", 50),
}
BAD = {
    "TOOL_RESULT_MAX_CHARS": ["0", "-1", "many", "1.5", "1e3", "٣", "9" * 30],
    "EXPERIMENTAL_TOOLS": ["shell", "read_file,nope", ","],
    "SHELL_TOOL_TYPE": ["bash", "UNIFIED_EXEC", "family"],
    "ENABLE_COLLAB_TOOLS": ["2", "maybe"],
    "ENABLE_MEMORY_TOOL": ["-"],
    "SUBAGENT_MAX_AGENTS": ["0", "x"],
}


def test_every_variable_is_tested() -> None:
    assert {v.name for v in VARIABLES} == GOOD.keys() == BAD.keys()


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("prefix", ["TOOLREST_", "MEMO_"])
def test_each_variable_sets_its_key_under_both_names(desk: Any, name: str, prefix: str) -> None:
    text, key, value = GOOD[name]
    row = desk.load(env={**desk.env, prefix + name: text}).get(key)
    assert row.value == value
    assert row.source == f"environment variable {prefix}{name}"


@pytest.mark.parametrize("name", GOOD)
def test_our_name_comes_first_and_an_empty_one_is_unset(desk: Any, name: str) -> None:
    text, key, value = GOOD[name]
    old = BAD[name][0]
    env = {**desk.env, f"TOOLREST_{name}": text, f"MEMO_{name}": old}
    assert desk.load(env=env).get(key).value == value
    env = {**desk.env, f"TOOLREST_{name}": " ", f"MEMO_{name}": text}
    assert desk.load(env=env).source(key) == f"environment variable MEMO_{name}"
    assert desk.load(env={**desk.env, f"TOOLREST_{name}": ""}).source(key) == "default"


@pytest.mark.parametrize(
    ("prefix", "name", "text"),
    [
        *(("TOOLREST_", name, text) for name, texts in BAD.items() for text in texts),
        *(("MEMO_", name, texts[0]) for name, texts in BAD.items()),
    ],
)
def test_a_bad_value_names_the_variable(desk: Any, prefix: str, name: str, text: str) -> None:
    message = desk.error(env={**desk.env, prefix + name: text})
    assert message.startswith(f"environment variable {prefix}{name}: expected ")


@pytest.mark.parametrize(("text", "form"), [("default", "shell"), ("local", "local_shell")])
def test_codexs_names_of_shell_forms(desk: Any, text: str, form: str) -> None:
    env = {**desk.env, "TOOLREST_SHELL_TOOL_TYPE": text}
    assert desk.load(env=env).value.tools.shell_type == form


def test_the_streamable_shell_switch_is_unified_exec(desk: Any) -> None:
    desk.user("[tools]\nuse_experimental_streamable_shell_tool = true")
    config = desk.load()
    assert config.value.tools.shell_type == "unified_exec"
    assert "use_experimental_streamable_shell_tool" in config.source("tools.shell_type")
    off = ["tools.use_experimental_streamable_shell_tool=false"]
    assert desk.load(overrides=off).value.tools.shell_type == "family"

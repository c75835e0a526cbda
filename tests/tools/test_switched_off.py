"""What is switched off is off in every form, and what the names of groups mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolrest import Toolrest

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+x\n*** End Patch"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)
READ = {"glob_files", "grep_files", "list_dir", "read_file", "view_image"}


@pytest.mark.parametrize(
    "settings",
    [
        {"tools.disabled": ["apply_patch"]},
        {"tools.disabled": ["edit"]},
        {"tools.disabled": ["apply_patch"], "tools.enabled": ["*", "write_file"]},
        {"tools.include_apply_patch_tool": False},
    ],
)
@pytest.mark.parametrize("start", ["apply_patch", "cd . && apply_patch"])
async def test_a_patch_in_a_command_is_off_with_the_tool(
    tmp_path: Path, settings: dict[str, object], start: str
) -> None:
    async with Toolrest(tmp_path, settings=settings) as rest:
        output = await rest.call("exec_command", {"cmd": f"{start} <<'EOF'\n{PATCH}\nEOF"})
        assert output.failure is not None
        assert output.failure.kind == "policy_denied"
        assert "apply_patch is switched off here, in commands too" in output.text
    assert not (tmp_path / "new.txt").exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"tools.disabled": ["view_image"]},
        {"tools.disabled": ["images"]},
        {"tools.enabled": ["read_file"]},
        {"tools.include_view_image_tool": False},
    ],
)
async def test_read_file_shows_no_picture_where_view_image_is_off(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    (tmp_path / "dot.png").write_bytes(PNG)
    async with Toolrest(tmp_path, settings=settings) as rest:
        output = await rest.call("read_file", {"file_path": "dot.png"})
        assert output.failure is not None
        assert "dot.png is not text but" in output.text


def test_without_spawn_agent_there_are_no_tools_for_sub_agents(tmp_path: Path) -> None:
    settings = {"tools.disabled": ["spawn_agent"]}
    rest = Toolrest(tmp_path, settings=settings)
    left = {state.name for state in rest.tool_states() if state.callable}
    assert not left & {"spawn_agent", "wait", "send_input", "close_agent", "resume_agent"}
    without_one = Toolrest(tmp_path, settings={"tools.disabled": ["send_input"]})
    left = {state.name for state in without_one.tool_states() if state.callable}
    assert {"spawn_agent", "wait", "close_agent", "resume_agent"} <= left


@pytest.mark.parametrize(
    ("group", "names"),
    [
        ("read", READ),
        ("edit", {"apply_patch"}),
        ("files", READ | {"apply_patch"}),
        ("patch", {"apply_patch"}),
    ],
)
def test_groups_of_tools_for_files(tmp_path: Path, group: str, names: set[str]) -> None:
    rest = Toolrest(tmp_path, tools=[group])
    assert {tool.name for tool in rest.tools} == names
    by_settings = Toolrest(tmp_path, tools=["all"], settings={"tools.enabled": [group]})
    assert {tool.name for tool in by_settings.tools} == names
    without = Toolrest(tmp_path, tools=["all"], settings={"tools.disabled": [group]})
    assert not {tool.name for tool in without.tools} & names

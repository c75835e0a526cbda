"""A denial names the setting that would really allow the call: with it, the call is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest

ADD = {"input": "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch"}
CURL = {"cmd": "curl https://example.org", "login": False}
SETTING = re.compile(r'([a-z_]+(?:\.[a-z_]+)*) = ("[a-z-]+"|true|false)')

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "network": ("webfetch", {"url": "https://example.org"}, {}, {}),
    "network, untrusted": (
        *("webfetch", {"url": "https://example.org"}, {"approval_policy": "untrusted"}, {}),
    ),
    "command over the network": ("exec_command", CURL, {}, {}),
    "patch in a read-only session": ("apply_patch", ADD, {"sandbox_mode": "read-only"}, {}),
    "patch in a strict read-only session": (
        *("apply_patch", ADD, {"sandbox_mode": "read-only", "approval_policy": "strict"}, {}),
    ),
    "command in a read-only session": (
        *("exec_command", {"cmd": "touch x", "login": False}, {"sandbox_mode": "read-only"}, {}),
    ),
    "reading, strict": ("list_dir", {"dir_path": "."}, {"approval_policy": "strict"}, {}),
    "command, strict": (
        *("exec_command", {"cmd": "ls", "login": False}, {"approval_policy": "strict"}, {}),
    ),
    "command, untrusted": (
        *("exec_command", {"cmd": "make", "login": False}, {"approval_policy": "untrusted"}, {}),
    ),
    "note": ("save_memory", {"text": "a", "scope": "global"}, {}, {}),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_denial_names_the_setting_that_would_really_allow_it(
    tmp_path: Path, case: str
) -> None:
    tool, arguments, settings, _ = CASES[case]
    async with Toolrest(tmp_path, settings=settings) as rest:
        assert rest.explain(tool, arguments).verdict == "ask"
        said = (await rest.call(tool, arguments)).text
    offered = said.rpartition('"defer", ')[2]
    found = {key: value.strip('"') for key, value in SETTING.findall(offered)}
    assert found, said
    # Where it offers several, each one alone has to do; where it says "and", both together.
    ways = [found] if " and " in offered else [{key: value} for key, value in found.items()]
    for way in ways:
        typed = {
            key: value == "true" if value in ("true", "false") else value
            for key, value in way.items()
        }
        async with Toolrest(tmp_path, settings={**settings, **typed}) as rest:
            assert rest.explain(tool, arguments).verdict == "allow", (way, said)


async def test_a_folder_that_may_be_written_is_named_by_its_setting(
    tmp_path: Path, user_home: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    call = ("write_file", {"file_path": str(tmp_path / "other" / "x"), "content": "y"})
    async with Toolrest(work) as rest:
        said = (await rest.call(*call)).text
    assert "or name the folder in sandbox_workspace_write.writable_roots." in said
    (tmp_path / "other").mkdir()
    roots = {"sandbox_workspace_write.writable_roots": [str(tmp_path / "other")]}
    async with Toolrest(work, settings=roots) as rest:
        assert rest.explain(*call).verdict == "allow"

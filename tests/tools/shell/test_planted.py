"""A command is known by its name: a file of the project must not be what the name means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.config import load
from toolrest.gate.approval.request import ApprovalRequest


class Asked(list[ApprovalRequest]):
    """Says no, and remembers what it was asked."""

    def __call__(self, request: ApprovalRequest) -> str:
        self.append(request)
        return "denied"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A project that brings its own `ls` and `git`, which leave a mark."""
    folder = tmp_path / "workspace"
    (folder / "bin").mkdir(parents=True)
    for name in ("ls", "git"):
        program = folder / "bin" / name
        program.write_text(f"#!/bin/sh\ntouch {folder}/ran {tmp_path}/escaped\n")
        program.chmod(0o755)
    return folder


def environment(*entries: str) -> dict[str, str]:
    return {**os.environ, "PATH": ":".join([*entries, "/usr/bin", "/bin"])}


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("mode", ["workspace-write", "danger-full-access", "read-only"])
@pytest.mark.parametrize("relative", [False, True])
async def test_a_projects_ls_is_not_the_one_known_to_be_harmless(
    workspace: Path, mode: str, relative: bool
) -> None:
    asked = Asked()
    env = environment("bin" if relative else str(workspace / "bin"))
    options: dict[str, Any] = {"approval_policy": "untrusted", "sandbox_mode": mode}
    async with Toolrest(workspace, on_ask=asked, env=env, **options) as rest:
        output = await rest.call("exec_command", {"cmd": "ls", "login": False})
        fine = await rest.call("exec_command", {"cmd": "cat bin/ls", "login": False})
    assert output.failed
    assert len(asked) == 1
    assert "before the system's ls" in asked[0].reason
    assert not (workspace / "ran").exists()
    assert "touch" in fine.text


@pytest.mark.needs("sandbox")
async def test_what_comes_after_the_systems_own_is_not_suspected(workspace: Path) -> None:
    asked = Asked()
    env = {**os.environ, "PATH": f"/usr/bin:/bin:{workspace}/bin"}
    async with Toolrest(workspace, approval_policy="untrusted", on_ask=asked, env=env) as rest:
        output = await rest.call("exec_command", {"cmd": "ls", "login": False})
    assert not asked
    assert "bin" in output.text


@pytest.mark.needs("sandbox")
async def test_a_rule_lets_no_file_of_the_project_out_of_the_sandbox(
    workspace: Path, tmp_path: Path, toolrest_home: Path
) -> None:
    rules = toolrest_home / "rules"
    rules.mkdir(parents=True)
    (rules / "default.rules").write_text('prefix_rule(pattern=["git", "fetch"])\n')
    env = environment(str(workspace / "bin"))
    config = load(workspace=workspace, env=env, flags={"sandbox_mode": "workspace-write"})
    async with Toolrest(workspace, config=config, on_ask="deny", env=env) as rest:
        await rest.call("exec_command", {"cmd": "git fetch", "login": False})
    assert (workspace / "ran").exists()
    assert not (tmp_path / "escaped").exists()


async def test_a_yes_for_a_folder_is_none_for_where_a_link_in_it_leads(
    workspace: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.symlink(elsewhere, workspace / "link")
    asked: list[str] = []

    def ask(request: ApprovalRequest) -> str:
        asked.append(request.cwd)
        return "approved_for_session" if len(asked) == 1 else "denied"

    async with Toolrest(workspace, approval_policy="untrusted", on_ask=ask) as rest:
        for place in (".", "bin", "link"):
            await rest.call("exec_command", {"cmd": "touch same", "workdir": place})
        await rest.call("exec_command", {"cmd": "cd link && touch same"})
    assert len(asked) == 3
    assert asked[1] == str(workspace / "link")
    assert not (elsewhere / "same").exists()

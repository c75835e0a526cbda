"""Commands that name hidden or protected paths, where no sandbox would stop them.

Every test here failed before D-62 was built, for the reason that its docstring gives.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolrest import ApprovalRequest, Toolrest
from toolrest.items import ToolOutput

PATCH = "*** Begin Patch\n*** Add File: .vscode/tasks.json\n+{}\n*** End Patch\n"


async def full_access(work: Path, command: str, **settings: Any) -> ToolOutput:
    options = {"sandbox_mode": "danger-full-access", "approval_policy": "never", **settings}
    async with Toolrest(workspace=work, settings=options) as rest:
        return await rest.call("shell_command", {"command": command})


@pytest.mark.parametrize(
    "command", ["cat .env", "head -1 ./sub/../.env", "wc -c < .env", "rm .env"]
)
async def test_a_hidden_file_is_not_read_in_full_access(work: Path, command: str) -> None:
    """Failed before: in danger-full-access the command ran."""
    (work / ".env").write_text("A=tops")
    (work / "sub").mkdir()
    output = await full_access(work, command)
    assert output.failure is not None
    assert "hidden" in output.text
    assert "tops" not in output.text
    assert (work / ".env").exists()


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("mode", ["workspace-write", "read-only", "danger-full-access"])
async def test_the_user_may_unhide_it(work: Path, mode: str) -> None:
    """Failed before: there was no such setting."""
    (work / ".env").write_text("A=tops")
    (work / ".env.local").write_text("B=tops")
    settings = {"sandbox_mode": mode, "paths": {"unhide": [".env"]}}
    assert "A=tops" in (await full_access(work, "cat .env", **settings)).text
    assert "tops" not in (await full_access(work, "cat .env.local", **settings)).text
    assert "tops" not in (await full_access(work, "cat < .env.local", **settings)).text


@pytest.mark.parametrize("target", [".vscode/tasks.json", ".git/hooks/pre-commit"])
async def test_a_protected_name_is_not_written_in_full_access(work: Path, target: str) -> None:
    """Failed before: in danger-full-access the command ran."""
    (work / target).parent.mkdir(parents=True)
    output = await full_access(work, f"echo x > {target}")
    assert output.failure is not None
    assert "is protected" in output.text
    assert not (work / target).exists()


async def test_ordinary_names_are_written_in_full_access(work: Path) -> None:
    (work / ".git").mkdir()
    output = await full_access(work, "echo x > a && echo y > .git/description")
    assert output.failure is None, output.text
    assert (work / "a").exists()


async def test_on_ask_allow_approves_no_protected_name(work: Path) -> None:
    """Failed before: a patch that leaves was approved, whatever it wrote."""
    async with Toolrest(workspace=work, on_ask="allow") as rest:
        output = await rest.call("apply_patch", {"input": PATCH})
        command = {
            "command": "echo x > .vscode/tasks.json",
            "sandbox_permissions": "require_escalated",
            "justification": "may I?",
        }
        other = await rest.call("shell_command", command)
    for answer in (output, other):
        assert answer.failure is not None
        assert "is protected" in answer.text
        assert 'on_ask = "allow"' in answer.text
    assert not (work / ".vscode/tasks.json").exists()


async def test_a_person_may_still_approve_it(work: Path) -> None:
    asked: list[str] = []

    def approve(request: ApprovalRequest) -> bool:
        asked.append(request.protected)
        return True

    async with Toolrest(workspace=work, on_ask=approve) as rest:
        output = await rest.call("apply_patch", {"input": PATCH})
    assert output.failure is None, output.text
    assert (work / ".vscode/tasks.json").read_text() == "{}\n"
    assert ".vscode is protected" in asked[0]

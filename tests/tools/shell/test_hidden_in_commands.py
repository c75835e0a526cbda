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


FULL_ACCESS = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}


async def full_access(work: Path, command: str, **settings: Any) -> ToolOutput:
    options = {**FULL_ACCESS, **settings}
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


@pytest.mark.parametrize(
    "command",
    [
        "cat ~/.ssh/id_rsa",
        "cat $HOME/.ssh/id_rsa",
        'head -3 "${HOME}/.ssh/id_rsa"',
        "less ~/.ssh/id_rsa",
        "grep -r . ~/.ssh",
        "cat ~/.ssh/*",
        "find ~/.ssh -type f -exec cat {} +",
        "k=.env; cat $k",
        "cat .env*",
        "cat ./.e?v",
        "cat sub/../.[e]nv",
        "sed 's/a/b/' .env",
        "awk '{ print }' .env",
        "cp .env* sub; cat sub/.env",
        "mv ~/.ssh/* sub; cat sub/id_rsa",
        "tar cf - .env | strings",
        "tar -C ~/.ssh -cf - . | strings",
        "ln .env other; cat other",
        "ln -s .env other; cat other",
    ],
)
@pytest.mark.parametrize("escalated", [False, True])
async def test_a_hidden_file_is_known_however_a_reader_spells_it(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, escalated: bool
) -> None:
    """Failed before: only words without expansions, and of few programs, were looked at."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("tops")
    monkeypatch.setenv("HOME", str(tmp_path))
    (work / "sub").mkdir()
    (work / ".env").write_text("A=tops")
    asking = {"sandbox_permissions": "require_escalated", "justification": "may I?"}
    more = {"on_ask": "allow"} if escalated else {"settings": FULL_ACCESS}
    async with Toolrest(workspace=work, **more) as rest:
        arguments = {"command": command, **(asking if escalated else {})}
        output = await rest.call("shell_command", arguments)
    assert output.failure is not None
    assert "hidden" in output.text
    assert "tops" not in output.text


@pytest.mark.parametrize(
    "command",
    [
        "cat *",
        "tar c --exclude .env . | grep -a fine",
        "cat .env.ex*",
        "sed 's/.env/x/' a",
        "awk '/.env/' a",
        "grep .env $PWD/*",
    ],
)
async def test_what_only_looks_like_a_hidden_file_is_read(work: Path, command: str) -> None:
    (work / ".env").write_text("A=tops")
    (work / ".env.example").write_text("fine .env")
    (work / "a").write_text("fine .env")
    output = await full_access(work, command)
    assert "fine" in output.text
    assert "tops" not in output.text


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


@pytest.mark.needs("namespaces")
async def test_no_advice_to_leave_the_sandbox_where_that_would_be_refused(work: Path) -> None:
    """Failed before: a session in read-only mode was told to ask for what it then refused."""
    (work / ".env").write_text("A=tops")
    async with Toolrest(workspace=work, tools=["all"], on_ask=lambda _: True) as rest:
        before = await rest.call("shell_command", {"command": "grep -r zzz ."})
        rest.session.mode.choose("read-only")
        after = await rest.call("shell_command", {"command": "grep -r zzz ."})
    assert "[toolrest] the sandbox" in before.text
    assert "require_escalated" in before.text
    assert "[toolrest] the sandbox" in after.text
    assert "require_escalated" not in after.text

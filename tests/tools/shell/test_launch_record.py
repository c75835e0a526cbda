"""What is judged, shown, granted and run is one record. Each of these failed on earlier trees."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.machine import solid_ground

from toolrest import Toolrest
from toolrest.config import load
from toolrest.gate.approval.request import ApprovalRequest

Answering = Callable[[ApprovalRequest], str]


class Asked(list[ApprovalRequest]):
    """Remembers what it was asked; answers by a function, or denies."""

    def __init__(self, answer: Answering | None = None) -> None:
        super().__init__()
        self.answer = answer

    def __call__(self, request: ApprovalRequest) -> str:
        self.append(request)
        return "denied" if self.answer is None else self.answer(request)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def solid_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=solid_ground()) as made:
        yield Path(made)


def session(workspace: Path, asked: Any, env: dict[str, str], **flags: Any) -> Toolrest:
    config = load(workspace=workspace, env=env, flags=flags)
    return Toolrest(workspace, config=config, on_ask=asked, env=env)


def allow_outside(home: Path, *words: str) -> None:
    rules = home / "rules"
    rules.mkdir(parents=True, exist_ok=True)
    pattern = ", ".join(f'"{word}"' for word in words)
    (rules / "default.rules").write_text(f"prefix_rule(pattern=[{pattern}], outside=True)\n")


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("mode", ["workspace-write", "read-only"])
async def test_a_file_called_bash_is_not_the_shell_that_is_judged(
    workspace: Path, tmp_path: Path, toolrest_home: Path, mode: str
) -> None:
    """In a read-only session the project's own `bash` ran outside by a rule for `git status`."""
    allow_outside(toolrest_home, "git", "status")
    planted = program(workspace / "bash", f"touch {tmp_path}/escaped")
    env = dict(os.environ)
    async with session(workspace, "deny", env, sandbox_mode=mode) as rest:
        call = {"cmd": "git status", "shell": str(planted), "login": False}
        await rest.call("exec_command", call)
        await rest.call("shell", {"command": [str(planted), "-c", "git status"]})
    assert not (tmp_path / "escaped").exists()


@pytest.mark.needs("sandbox")
async def test_a_shell_that_the_system_does_not_know_is_shown_word_by_word(
    workspace: Path, tmp_path: Path
) -> None:
    downloaded = program(tmp_path / "downloads" / "bash", "true")
    asked = Asked()
    call = {"cmd": "ls", "shell": str(downloaded), "login": False}
    async with session(workspace, asked, dict(os.environ), approval_policy="untrusted") as rest:
        await rest.call("exec_command", call)
        known = await rest.call("exec_command", {**call, "shell": "/bin/bash"})
    assert not known.failed
    assert [request.command for request in asked] == [(str(downloaded), "-c", "ls")]


@pytest.mark.needs("sandbox")
async def test_a_bash_that_path_finds_in_the_project_is_not_the_systems(
    workspace: Path, tmp_path: Path, toolrest_home: Path
) -> None:
    allow_outside(toolrest_home, "git", "status")
    program(workspace / "bin" / "bash", f"touch {tmp_path}/escaped")
    env = {**os.environ, "PATH": f"{workspace}/bin:/usr/bin:/bin"}
    asked = Asked()
    async with session(workspace, asked, env, approval_policy="untrusted") as rest:
        await rest.call("shell", {"command": ["bash", "-c", "git status"]})
    assert len(asked) == 1
    assert not (tmp_path / "escaped").exists()


@pytest.mark.needs("sandbox")
async def test_a_login_profile_hides_no_program_of_the_starting_shell(
    workspace: Path, tmp_path: Path, toolrest_home: Path, solid_folder: Path
) -> None:
    """A profile that puts `./node_modules/.bin` first made a planted `ls` the one that ran."""
    allow_outside(toolrest_home, "tea")
    for name in ("ls", "tea"):
        program(workspace / "node_modules" / ".bin" / name, f"touch {tmp_path}/escaped; echo mine")
    home = solid_folder  # inside the sandbox /tmp is another one
    (home / ".bash_profile").write_text("PATH=./node_modules/.bin:$PATH\n")
    env = {**os.environ, "HOME": str(home), "PATH": "/usr/bin:/bin"}
    asked = Asked()
    async with session(workspace, asked, env, approval_policy="untrusted") as rest:
        listed = await rest.call("exec_command", {"cmd": "ls", "shell": "bash"})
        by_rule = await rest.call("exec_command", {"cmd": "tea", "shell": "bash"})
    assert "node_modules" in listed.text
    assert "mine" not in listed.text
    assert by_rule.text == "rejected by user", "found, but no rule is for a file of the workspace"
    assert [request.command[-1] for request in asked] == ["tea"]
    assert not (tmp_path / "escaped").exists()


async def test_a_patch_is_asked_about_again_when_its_file_changed_meanwhile(
    workspace: Path,
) -> None:
    """An approval of one diff was applied to another content."""
    file = workspace / "a.txt"
    file.write_text("one\ntwo\n")

    def edit_and_approve(request: ApprovalRequest) -> str:
        if len(asked) > 1:
            return "denied"
        file.write_text("zero\none\ntwo\n")
        return "approved"

    asked = Asked(edit_and_approve)
    edit = {"path": "a.txt", "oldText": "two", "newText": "2"}
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n one\n-two\n+2\n*** End Patch"
    for name, arguments in (("edit_file", edit), ("apply_patch", {"input": patch})):
        asked.clear()
        file.write_text("one\ntwo\n")
        async with Toolrest(
            workspace, approval_policy="untrusted", on_ask=asked, tools=["all"]
        ) as rest:
            output = await rest.call(name, arguments)
        assert output.failed, name
        assert len(asked) == 2, name
        assert "changed since it was judged" in asked[1].reason
        assert file.read_text() == "zero\none\ntwo\n"


@pytest.mark.needs("sandbox")
async def test_a_program_is_asked_about_again_when_it_changed_meanwhile(
    workspace: Path,
) -> None:
    tool = program(workspace / "tool", "echo first")

    def swap_and_approve(request: ApprovalRequest) -> str:
        if len(asked) == 1:
            program(tool, "echo second")
        return "approved"

    asked = Asked(swap_and_approve)
    async with Toolrest(
        workspace, approval_policy="untrusted", on_ask=asked, tools=["all"]
    ) as rest:
        output = await rest.call("shell", {"command": ["./tool"]})
        again = await rest.call("shell", {"command": ["./tool"]})
    assert [bool("changed since" in request.reason) for request in asked] == [False, True, False]
    assert "second" in output.text
    assert "second" in again.text


@pytest.mark.needs("sandbox")
async def test_a_program_that_path_finds_elsewhere_meanwhile_is_asked_about_again(
    workspace: Path,
) -> None:
    """The file that was judged is still the same, but another one is found before it."""
    (workspace / "first").mkdir()
    program(workspace / "second" / "tool", "echo judged")

    def hide_and_approve(request: ApprovalRequest) -> str:
        if len(asked) == 1:
            program(workspace / "first" / "tool", "echo hidden")
        return "approved"

    asked = Asked(hide_and_approve)
    env = {**os.environ, "PATH": f"{workspace}/first:{workspace}/second:/usr/bin:/bin"}
    async with session(workspace, asked, env, approval_policy="untrusted") as rest:
        await rest.call("shell", {"command": ["tool"]})
    assert [bool("changed since" in request.reason) for request in asked] == [False, True]


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("line", ["./tool", "bash -x tool", "cd . && exec ./tool", "sh < tool"])
async def test_a_script_of_a_line_is_asked_about_again_when_it_changed_meanwhile(
    workspace: Path, line: str
) -> None:
    """Only the shell was compared, so an approved line ran what was put in the file meanwhile."""
    tool = program(workspace / "tool", "echo first")

    def swap_and_approve(request: ApprovalRequest) -> str:
        if len(asked) == 1:
            program(tool, "echo second")
        return "approved"

    asked = Asked(swap_and_approve)
    async with Toolrest(
        workspace, approval_policy="untrusted", on_ask=asked, tools=["all"]
    ) as rest:
        output = await rest.call("exec_command", {"cmd": line, "login": False})
    assert [bool("changed since" in request.reason) for request in asked] == [False, True]
    assert "second" in output.text


OUTSIDE = {"sandbox_permissions": "require_escalated", "justification": "May I?"}


@pytest.mark.needs("sandbox")
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shell", {"command": ["./tool"]}),
        ("exec_command", {"cmd": "./tool", "login": False}),
        ("exec_command", {"cmd": "env A=1 bash -x ./tool", "login": False}),
    ],
)
async def test_a_deferred_program_is_asked_about_again_when_it_changed_meanwhile(
    workspace: Path, tmp_path: Path, name: str, arguments: dict[str, Any], there: bool
) -> None:
    """A confined command exchanged the file; the approval of the old one ran it outside."""
    if there:
        program(workspace / "tool", "echo harmless")
    swap = f"printf '#!/bin/sh\\ntouch {tmp_path}/escaped\\n' > tool; chmod 755 tool"
    async with Toolrest(workspace, on_ask="defer", tools=["all"]) as rest:
        await rest.call(name, {**arguments, **OUTSIDE})
        (first,) = rest.pending
        await rest.call("exec_command", {"cmd": swap, "login": False})
        output = await rest.resume(first, "approved")
        (second,) = rest.pending
        assert output.failed
        assert second.id != first.id
        assert not (tmp_path / "escaped").exists()
        await rest.resume(second, "approved")
    assert (tmp_path / "escaped").exists()


@pytest.mark.needs("sandbox")
async def test_a_deferred_program_that_is_the_same_runs(workspace: Path, tmp_path: Path) -> None:
    tool = program(workspace / "tool", f"echo $1 > {tmp_path}/ran")
    line = {"cmd": "./tool data", "login": False, **OUTSIDE}
    async with Toolrest(workspace, on_ask="defer", tools=["all"]) as rest:
        await rest.call("exec_command", line)
        program(tool, f"echo $1 > {tmp_path}/ran")  # written anew, with the same content
        (workspace / "data").write_text("which is no program")
        output = await rest.resume(rest.pending[0], "approved")
    assert not output.failed
    assert (tmp_path / "ran").read_text() == "data\n"


@pytest.mark.needs("sandbox")
async def test_no_grant_and_no_rule_lets_a_writable_program_out_unasked(
    workspace: Path, tmp_path: Path, toolrest_home: Path
) -> None:
    """The rule names a file whose content a tool can change."""
    allow_outside(toolrest_home, "./build")
    program(workspace / "build", f"touch {tmp_path}/escaped")
    async with session(workspace, "deny", dict(os.environ)) as rest:
        await rest.call("exec_command", {"cmd": "./build", "login": False})
    assert not (tmp_path / "escaped").exists()


async def test_abort_stops_the_queued_calls_of_the_same_reply(workspace: Path) -> None:
    """A call that waited for its turn ran although its sibling's question was answered by abort."""
    asked = Asked(lambda request: "abort" if "first" in request.arguments else "approved")
    async with Toolrest(
        workspace, approval_policy="untrusted", on_ask=asked, tools=["all"]
    ) as rest:

        def touch(name: str) -> dict[str, list[str]]:
            return {"command": ["touch", name]}

        reply = {
            "role": "assistant",
            "tool_calls": [
                {
                    "id": name,
                    "type": "function",
                    "function": {
                        "name": "shell",
                        "arguments": f'{{"command": ["touch", "{name}"]}}',
                    },
                }
                for name in ("first", "second")
            ],
        }
        answers = await rest.answer(reply)
    assert "ended the turn" in str(answers[0])
    assert "not run: the turn has failed" in str(answers[1])
    assert len(asked) == 1
    assert not (workspace / "second").exists()


FOLDERS = ("a", "b", "c")


@pytest.mark.slow
@given(
    placed=st.sets(st.sampled_from(FOLDERS), min_size=1),
    links=st.dictionaries(st.sampled_from(FOLDERS), st.sampled_from(FOLDERS)),
    path=st.lists(st.sampled_from((*FOLDERS, "missing")), min_size=1, max_size=4),
    spelled=st.sampled_from(("tool", "a/tool", "./b/tool", "c/../a/tool")),
)
@settings(max_examples=25)
def test_what_is_executed_is_what_the_record_says(
    placed: set[str], links: dict[str, str], path: list[str], spelled: str
) -> None:
    """For random folders, links and PATHs: the file that runs is the one that was recorded."""
    with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as made:
        workspace = Path(made)
        for folder in FOLDERS:
            (workspace / folder).mkdir()
        for folder in placed:
            program(workspace / folder / "tool", f"echo ran {folder}")
        for folder, target in links.items():
            if folder not in placed:
                (workspace / folder / "tool").symlink_to(workspace / target / "tool")
        env = {**os.environ, "PATH": ":".join([*(f"{made}/{p}" for p in path), "/usr/bin"])}
        asyncio.run(_run_and_compare(workspace, env, spelled))


async def _run_and_compare(workspace: Path, env: dict[str, str], spelled: str) -> None:
    options: dict[str, Any] = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}
    async with Toolrest(workspace, tools=["all"], env=env, **options) as rest:
        await rest.call("shell", {"command": ["/bin/true"]})
        runner = rest.session.runner.made
        assert runner is not None
        launch = runner.plan((spelled,), None)
        output = await rest.call("shell", {"command": [spelled]})
    if launch.program is None:
        assert "ran" not in output.text
    else:
        assert Path(launch.program.path).read_text().split("echo ")[1].strip() in output.text

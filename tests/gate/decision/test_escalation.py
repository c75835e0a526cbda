"""The questions that a tool may answer for itself about approval and the sandbox (M-32)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import solid_ground

from toolrest import ApprovalRequest, Context, Effects, Review, Tool, Toolrest
from toolrest.answer import Answer
from toolrest.errors import SandboxDenied
from toolrest.gate.audit.read import show
from toolrest.gate.decision.decide import Decision
from toolrest.timeline.approval import approval_form


@pytest.fixture
def ground() -> Iterator[Path]:
    """A folder that is not below the sandbox's own /tmp."""
    with tempfile.TemporaryDirectory(dir=solid_ground()) as folder:
        yield Path(folder)


class Builder(Tool):
    """Runs a program, so to speak; the sandbox blocks it."""

    name = "builder"
    description = "Build it."
    typical = Effects(runs=(("make",),), confined=True)
    ran: list[bool]

    async def run(self, args: Any, ctx: Context) -> str:
        self.ran.append(ctx.outside)
        if not ctx.outside:
            raise SandboxDenied("the sandbox blocked it")
        return "built"


async def build(
    folder: Path, mode: Any, **options: Any
) -> tuple[str, list[bool], list[ApprovalRequest]]:
    """What the model reads, where it ran, and what was asked."""
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    made = type("Made", (Builder,), options)()
    made.ran = []
    async with Toolrest(folder, approval_policy=mode, tools=[made], on_ask=approver) as rest:
        output = await rest.call("builder")
    return output.text, made.ran, asked


async def test_by_default_a_blocked_call_may_be_tried_outside_after_a_yes(tmp_path: Path) -> None:
    text, ran, asked = await build(tmp_path, "on-failure")
    assert (text, ran) == ("built", [False, True])
    assert [bool(request.retry_reason) for request in asked] == [True]


async def test_a_tool_that_may_not_escalate_stays_blocked(tmp_path: Path) -> None:
    for mode in ("on-failure", "untrusted"):
        text, ran, asked = await build(tmp_path, mode, may_escalate=False)
        assert ("the sandbox blocked it" in text, ran) == (True, [False])
        assert [request for request in asked if request.retry_reason] == []


@pytest.mark.parametrize(("skips", "questions"), [(True, 1), (False, 2)])
async def test_the_second_question_may_be_skipped(
    tmp_path: Path, skips: bool, questions: int
) -> None:
    text, ran, asked = await build(tmp_path, "untrusted", skips_second_question=skips)
    assert (text, ran) == ("built", [False, True])
    assert len(asked) == questions


@pytest.mark.parametrize("mode", ["on-request", "never"])
async def test_on_request_only_hands_the_denial_back(tmp_path: Path, mode: str) -> None:
    text, ran, asked = await build(tmp_path, mode)
    assert ("the sandbox blocked it" in text, ran, asked) == (True, [False], [])


@pytest.mark.parametrize(
    ("decision", "words", "questions"),
    [
        (Decision(Answer.DENY, "mine", "not on Sundays"), "not on Sundays", 0),
        (Decision(Answer.ASK, "mine", "it is Sunday"), "the sandbox blocked it", 1),
        (Decision(Answer.ALLOW, "mine"), "the sandbox blocked it", 0),
        (None, "the sandbox blocked it", 0),
    ],
)
async def test_a_tool_may_have_an_approval_requirement_of_its_own(
    tmp_path: Path, decision: Decision | None, words: str, questions: int
) -> None:
    def decide(self: Tool, args: Any, effects: Effects, ctx: Context) -> Decision | None:
        return decision

    text, _, asked = await build(tmp_path, "on-request", decide=decide)
    assert words in text
    assert [request.rule for request in asked] == ["mine"] * questions


async def test_a_tool_may_be_bound_to_the_sandbox(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    arguments = {
        "command": ["true"],
        "sandbox_permissions": "require_escalated",
        "justification": "why not",
    }
    for may, questions in ((True, 1), (False, 0)):
        asked.clear()
        async with Toolrest(tmp_path, on_ask=approver) as rest:
            shell = rest.session.registry.get("shell")
            assert shell is not None
            shell.may_ask_to_leave = may
            output = await rest.call("shell", arguments)
        assert len(asked) == questions
        assert ("cannot be run outside the sandbox" in output.text) is not may


async def test_a_retry_outside_can_be_approved_for_the_session(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> str:
        asked.append(request)
        return "approved_for_session"

    made = Builder()
    made.ran = []
    options: dict[str, Any] = {"approval_policy": "on-failure", "on_ask": approver}
    async with Toolrest(tmp_path, tools=[made], **options) as rest:
        for _ in range(3):
            assert (await rest.call("builder")).text.startswith("built")
    assert made.ran == [False, True] * 3
    (request,) = asked
    assert request.retry_reason
    assert [choice.scope for choice in request.choices] == ["once", "session"]
    assert "outside the sandbox" in request.choices[1].sentence
    async with Toolrest(tmp_path, tools=[made], **options) as rest:
        await rest.call("builder")
    assert len(asked) == 2, "another session asks anew"


async def test_a_retry_approved_once_is_asked_about_again(tmp_path: Path) -> None:
    asked: list[ApprovalRequest] = []
    made = Builder()
    made.ran = []

    def approver(request: ApprovalRequest) -> str:
        asked.append(request)
        return "approved"

    options: dict[str, Any] = {"approval_policy": "on-failure", "on_ask": approver}
    async with Toolrest(tmp_path, tools=[made], **options) as rest:
        for _ in range(2):
            await rest.call("builder")
    assert len(asked) == 2


@pytest.mark.slow
@pytest.mark.needs("sandbox")
async def test_a_denied_retry_is_the_users_denial_with_its_note(ground: Path) -> None:
    work, other = ground / "work", ground / "other"
    work.mkdir()
    other.mkdir()

    def approver(request: ApprovalRequest) -> Review:
        return Review("denied", note="never touch that file")

    call = {"cmd": f"touch {other}/x", "login": False}
    async with Toolrest(work, approval_policy="on-failure", on_ask=approver) as rest:
        output = await rest.call("exec_command", call)
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"
    assert f"blocked writing to {other}/x" in output.text
    assert output.text.endswith(
        "\n[toolrest] not run outside the sandbox: rejected by user: never touch that file"
    )
    assert list(other.iterdir()) == []


async def test_a_retry_that_nobody_was_asked_about_stays_the_sandboxs_denial(
    tmp_path: Path,
) -> None:
    made = Builder()
    made.ran = []
    async with Toolrest(tmp_path, approval_policy="on-failure", tools=[made]) as rest:
        output = await rest.call("builder")
    assert output.failure is not None
    assert output.failure.kind == "sandbox_denied"


@pytest.mark.parametrize(
    ("options", "source"),
    [
        ({}, 'on_ask = "deny"'),
        ({"on_ask": "allow"}, 'on_ask = "allow"'),
        ({"on_ask": lambda request: True}, "user"),
        ({"on_ask": lambda request: False}, "user"),
    ],
)
async def test_the_audit_log_names_the_setting_that_answered(
    tmp_path: Path, options: dict[str, Any], source: str
) -> None:
    made = type("Made", (Builder,), {"may_escalate": False})()
    made.ran = []
    options = {"approval_policy": "untrusted", "home": tmp_path / "home", **options}
    async with Toolrest(tmp_path, tools=[made], **options) as rest:
        await rest.call("builder")
    (log,) = (tmp_path / "home" / "audit").glob("*.jsonl")
    (row,) = [row for row in show(log) if row.tool == "builder"]
    said = "deny" if source in ('on_ask = "deny"', "user") and not made.ran else "allow"
    assert row.verdict == f"ask, {said} by {source}"


@pytest.mark.slow
@pytest.mark.needs("namespaces")
@pytest.mark.parametrize(
    ("line", "lasting"),
    [
        ("cp /etc/hostname {0}/x", True),
        ("cp /etc/hostname {0}/x && cp /etc/hostname {0}/y", True),
        ("cp /etc/hostname {0}/*", False),
        ("sh ./own {0}/x", False),
        ("./own {0}/x", False),
    ],
)
async def test_one_rule_says_what_may_be_granted_outside(
    ground: Path, line: str, lasting: bool
) -> None:
    """Failed before: a retry offered a grant where a question to leave did not."""
    work, other = ground / "work", ground / "other"
    for folder in (work, other):
        folder.mkdir()
    (work / "own").write_text("#!/bin/sh\ncp /etc/hostname $1\n")
    (work / "own").chmod(0o755)
    line = line.format(other)
    asked: list[ApprovalRequest] = []

    def deny(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    leave = {"sandbox_permissions": "require_escalated", "justification": "?"}
    for mode, more in (("on-failure", {}), ("on-request", leave)):
        async with Toolrest(work, approval_policy=mode, on_ask=deny, tools=["shell"]) as rest:
            await rest.call("exec_command", {"cmd": line, "login": False, **more})
    assert [bool(request.retry_reason) for request in asked] == [True, False]
    offered = [
        [choice.sentence for choice in request.choices if choice.scope == "session"]
        for request in asked
    ]
    assert offered[0] == offered[1]
    assert bool(offered[0]) is lasting


@pytest.mark.needs("namespaces")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("; ".join(f"touch {{0}}/{n}" for n in "abcd"), ["{0}/a, {0}/b, {0}/c, {0}/d"]),
        ("mkdir .git {0}/more", ["a repository", "{0}/more"]),
        ("touch {0}/a; curl https://a.example", ["{0}/a", "connects to a.example", "network is"]),
    ],
)
async def test_a_question_leaves_nothing_out_that_is_asked_about(
    ground: Path, line: str, said: list[str]
) -> None:
    """Failed before: a fourth reason, what is written beside `.git`, a host beside a file."""
    work, other = ground / "work", ground / "other"
    for folder in (work, other):
        folder.mkdir()
    asked: list[ApprovalRequest] = []

    def deny(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    async with Toolrest(work, on_ask=deny, tools=["shell"]) as rest:
        await rest.call("exec_command", {"cmd": line.format(other), "login": False})
    notes = " ".join(approval_form(asked[0], str(work)).notes)
    assert all(words.format(other) in notes for words in said), notes

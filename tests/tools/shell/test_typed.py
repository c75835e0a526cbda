"""What is typed into a program that runs is judged as the line that a shell would read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolrest import ApprovalRequest, Toolrest
from toolrest.items import FunctionCall, ToolOutput


@pytest.mark.parametrize(
    "chars",
    [
        "rm -rf ~\n",
        "rm -rf ~\r",
        "ls\rrm -rf ~\r",
        "rm -rf x\x7f~\n",
        "echo \x15rm -rf ~\n",
        "\x1b[200~rm -rf ~\x1b[201~\r",
    ],
)
async def test_keys_that_end_or_change_a_line_hide_no_danger(work: Path, chars: str) -> None:
    """Failed before for all but the first: a control character left the line unread."""
    async with Toolrest(workspace=work, tools=["all"]) as rest:
        verdict = rest.explain("write_stdin", {"session_id": 1, "chars": chars})
        assert verdict.verdict == "ask"
        assert "rm_recursive_critical_target" in verdict.reason
        harmless = rest.explain("write_stdin", {"session_id": 1, "chars": "rm -rf ~\x15ls\r"})
        assert harmless.verdict == "allow"


@pytest.mark.needs("sandbox")
async def test_a_line_may_be_typed_in_several_calls(work: Path) -> None:
    """Failed before: each call was judged alone."""
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    async with Toolrest(workspace=work, tools=["all"], on_ask=approver) as rest:
        session = await started(rest, "cat")
        for chars, questions in (
            ("rm -rf", 0),
            (" ", 0),
            ("~\n", 1),
            ("\x03", 1),
            ("~\n", 1),
        ):
            await rest.call("write_stdin", {"session_id": session, "chars": chars})
            assert len(asked) == questions, chars


@pytest.mark.needs("sandbox")
async def test_a_line_may_be_typed_in_several_calls_of_one_reply(work: Path) -> None:
    """Failed before: the second was judged when it came, before the first had been typed."""
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request)
        return False

    async with Toolrest(workspace=work, tools=["all"], on_ask=approver) as rest:
        session = await started(rest, "cat")
        async with rest.turn() as turn:
            for number, chars in enumerate(("", "rm -r", "f ~\n")):
                arguments = {"session_id": session, "chars": chars, "yield_time_ms": 250}
                turn.start(FunctionCall(f"c{number}", "write_stdin", json.dumps(arguments)))
            outputs = await turn.answers()
        assert len(asked) == 1
        assert [answered.output.failed for answered in outputs] == [False, False, True]


async def test_a_hidden_file_is_not_named_in_full_access(work: Path) -> None:
    """Failed before: only what exec_command was given was looked at."""
    (work / ".env").write_text("A=tops")
    settings = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}
    async with Toolrest(workspace=work, tools=["all"], settings=settings) as rest:
        session = await started(rest, "sh")
        outputs = [await typed(rest, session, chars) for chars in ("cat .env\n", "cat .env*\r")]
        fine = await typed(rest, session, "echo $((6 * 7))\n")
    for output in outputs:
        assert output.failure is not None
        assert "hidden" in output.text
    assert fine.failure is None, fine.text


async def started(rest: Toolrest, command: str) -> int:
    arguments: dict[str, Any] = {"cmd": command, "login": False, "tty": True, "yield_time_ms": 250}
    output = await rest.call("exec_command", arguments)
    line = next(line for line in output.text.splitlines() if "session ID" in line)
    return int(line.split()[-1])


async def typed(rest: Toolrest, session: int, chars: str) -> ToolOutput:
    return await rest.call("write_stdin", {"session_id": session, "chars": chars})

"""A pipeline whose last part hides a failure says so, and the line runs as it was shown."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import solid_ground

from toolrest import ApprovalRequest, Toolrest
from toolrest.running.pipeline import PipelineCodes, failed, reporting

pytestmark = [pytest.mark.needs("namespaces"), pytest.mark.slow]

SAID = "[toolrest] exit codes of the pipeline: "
FAILS = "python3 -c 'raise SystemExit(3)'"


@pytest.fixture
def work() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=solid_ground()) as folder:
        (Path(folder) / "work").mkdir()
        (Path(folder) / "beside").mkdir()
        yield Path(folder) / "work"


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        (f"{FAILS} | tail -1", "3 | 0"),
        (f"true | {FAILS} | cat", "0 | 3 | 0"),
        (f"echo first; {FAILS} | cat # and a comment", "3 | 0"),
        (f"{FAILS} | cat; exit 0", "3 | 0"),
        (f"{FAILS} | cat <<EOF\nEOF", "3 | 0"),
        (f"( {FAILS} ) | cat", "3 | 0"),
        (f"{FAILS} | true; exit 5", ""),
        ("yes | head -1", ""),
        ("grep nothing /dev/null | cat", ""),
        ("cat /dev/null | grep -q nothing | cat", ""),
        ("python3 -c 'raise SystemExit(1)' | cat", "1 | 0"),
        ("true | true", ""),
        (f"{FAILS} | cat && echo over", ""),
        (f"trap 'echo own' EXIT; {FAILS} | cat", ""),
    ],
)
@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=pytest.mark.needs("zsh"))])
async def test_a_hidden_failure_is_told(work: Path, line: str, codes: str, shell: str) -> None:
    call = {"cmd": line, "shell": shell, "login": False}
    async with Toolrest(work, approval_policy="on-request", on_ask="allow") as rest:
        output = await rest.call("exec_command", call)
        once = await rest.call("shell_command", {"command": line, "login": False})
    for text in (output.text, once.text):
        told = [row.removeprefix(SAID) for row in text.splitlines() if row.startswith(SAID)]
        assert told == ([codes] if codes else []), text
    assert f"exited with code {5 if 'exit 5' in line else 0}" in output.text


async def test_the_line_is_what_was_shown(work: Path) -> None:
    line = 'echo "$0 $# $LINENO"; echo "[$BASH_EXECUTION_STRING]" | tail -c 7; nonesuch | cat'
    async with Toolrest(work, on_ask="allow") as rest:
        call = {"cmd": line, "shell": "/bin/bash", "login": False}
        output = await rest.call("exec_command", call)
    assert "bash 0 1\n" in output.text
    assert "| cat]" in output.text
    assert "bash: line 1: nonesuch: command not found" in output.text
    assert f"{SAID}127 | 0" in output.text


@pytest.mark.parametrize(("mode", "questions"), [("on-failure", 1), ("untrusted", 2)])
async def test_a_blocked_write_behind_a_pipe_is_asked_about(
    work: Path, mode: Any, questions: int
) -> None:
    beside = work.parent / "beside"
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request)
        return not request.retry_reason

    code = f"open('{beside}/x', 'w')"
    line = f"python3 -c {shlex.quote(code)} 2>&1 | tail -1"
    call = {"cmd": line, "shell": "/bin/bash", "login": False}
    async with Toolrest(work, approval_policy=mode, on_ask=approver) as rest:
        output = await rest.call("exec_command", call)
    assert len(asked) == questions, "what ended with 0 is not run again unasked"
    assert asked[-1].retry_reason
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"
    assert "Process exited with code 0" in output.text
    assert f"blocked writing to {beside}/x" in output.text
    assert list(beside.iterdir()) == []


def test_what_is_reported_is_read_as_codes_only() -> None:
    for said, codes in ((b"1 0\n", (1, 0)), (b"", ()), (b"1 x\n", ()), (b"9" * 400, ())):
        found = PipelineCodes()
        os.write(found.fds[0][1], said)
        assert found.take() == codes
        assert found.take() == ()
    assert failed((1, 0), ("make", "tail"))
    assert not failed((1, 0), ("diff", "tail"))
    assert not failed((141, 0), ("yes", "head"))
    assert failed((2, 0), ("grep", "tail"))
    assert reporting(("zsh", "-c", "a | b"), "zsh")[-1].endswith("EXIT; a | b")
    assert reporting(("sh", "-c", "a | b"), "sh") == ("sh", "-c", "a | b")

"""No approver (R-9): the answer comes at once, names the rule, and what it advises works."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest, tool

PATCH = "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch\n"


@tool(mutating=True)
def act() -> str:
    """Act."""
    return "acted"


@tool(connects="url")
def fetch(url: str) -> str:
    """Fetch."""
    return "got"


def run(line: str, **more: Any) -> dict[str, Any]:
    return {"cmd": line, "login": False, **more}


ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "it must"}

# mode, tool, arguments, and the advice that is more than on_ask
CASES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "undeclared": ("on-request", "act", {}, "approvals.tools.act"),
    "network": ("on-request", "fetch", {"url": "http://x.invalid"}, "network_access = true"),
    "command": ("untrusted", "exec_command", run("npm test"), "approvals.tools.exec_command"),
    "patch": (
        "untrusted", "apply_patch", {"input": PATCH.format("a")}, "approvals.tools.apply_patch",
    ),
    "patch outside": (
        "on-request", "apply_patch", {"input": PATCH.format("/opt/a")}, "writable_roots",
    ),
    "escalated": ("on-request", "exec_command", run("true", **ESCALATED), "outside=True"),
    "unknown": ("on-request", "exec_command", run('eval "$X"'), "known beforehand"),
    "unknown, untrusted": ("untrusted", "exec_command", run('eval "$X"'), "known beforehand"),
    "critical": ("on-request", "exec_command", run("rm -rf /"), "do it yourself"),
}  # fmt: skip


def asks(output: Any) -> bool:
    return output.failure is not None and output.failure.kind == "approval_denied"


@pytest.mark.slow
@pytest.mark.usefixtures("any_sandbox")
@pytest.mark.parametrize("name", CASES)
async def test_a_question_to_nobody(tmp_path: Path, name: str) -> None:
    mode, called, arguments, advice = CASES[name]
    async with Toolrest(tmp_path, tools=[act, fetch], approval_policy=mode) as rest:
        await rest.call("list_dir", {"dir_path": str(tmp_path)})
        async with asyncio.timeout(60):
            output = await rest.call(called, arguments)
    assert asks(output)
    assert advice in output.text
    assert re.search(r"; rule [a-z.-]+\)", output.text)
    assert "cancelled" not in output.text
    for setting, value in re.findall(r"(approv[a-z._]+) = \"(\w+)\"", output.text):
        settings = {"approval_policy": mode, setting: value}
        async with Toolrest(tmp_path, tools=[act, fetch], settings=settings) as rest:
            output = await rest.call(called, arguments)
        assert not asks(output), f"{setting} was named, and does not help"
        assert output.failure is None or output.failure.kind == "execution_failed"
        (tmp_path / "a").unlink(missing_ok=True)


async def test_the_advice_about_the_network(tmp_path: Path) -> None:
    settings = {"sandbox_workspace_write.network_access": True}
    async with Toolrest(tmp_path, tools=[fetch], settings=settings) as rest:
        assert (await rest.call("fetch", {"url": "http://x.invalid"})).text == "got"


async def test_fail_ends_the_turn(tmp_path: Path) -> None:
    from toolrest.items import FunctionCall

    async with Toolrest(tmp_path, tools=[act], on_ask="fail") as rest:
        async with rest.turn() as turn:
            output = await turn.start(FunctionCall("c", "act", {})).output()
        assert asks(output)
        assert "on_ask is `fail`" in output.text
        assert turn.failure is not None

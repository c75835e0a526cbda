"""Which kind of failure each error of `toolrest.errors` becomes, and that no failure lacks one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest, errors, tool

KINDS = {
    "input_invalid",
    "tool_not_found",
    "approval_denied",
    "policy_denied",
    "sandbox_denied",
    "execution_failed",
    "timed_out",
    "aborted",
    "fatal",
}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.RespondToModel("w"), "execution_failed"),
        (errors.RespondToModel("w", kind="input_invalid"), "input_invalid"),
        (errors.MissingLocalShellCallId(), "input_invalid"),
        (errors.Rejected("w"), "policy_denied"),
        (errors.SandboxDenied("w"), "sandbox_denied"),
        (errors.Timeout("w"), "timed_out"),
        (errors.Fatal("w"), "fatal"),
        (ValueError("w"), "execution_failed"),
    ],
)
async def test_what_a_tool_raises_has_its_kind(tmp_path: Path, error: Exception, kind: str) -> None:
    @tool(mutating=False)
    def breaks() -> str:
        """Break."""
        raise error

    async with Toolrest(tmp_path, tools=[breaks]) as rest:
        output = await rest.call("breaks")
        assert output.failure is not None
        assert (output.failure.kind, output.success) == (kind, False)
        assert output.failure.kind in KINDS
        # Whatever it was: the session goes on.
        assert (await rest.call("list_dir", {"dir_path": "."})).failure is None


async def test_what_the_gate_says_no_to_has_its_kind(tmp_path: Path) -> None:
    started = asyncio.Event()

    @tool(mutating=True)
    def unknown() -> str:
        """Anything may happen."""
        return "ran"

    @tool(mutating=False, timeout=0.05)
    async def slow() -> str:
        """Too slow."""
        await asyncio.sleep(60)
        return "late"

    @tool(mutating=False)
    async def stuck() -> str:
        """Waits for ever."""
        started.set()
        await asyncio.Event().wait()
        return "never"

    async def kind(rest: Toolrest, name: str, arguments: Any = None) -> str | None:
        failure = (await rest.call(name, arguments)).failure
        return failure.kind if failure else None

    tools = [unknown, slow, stuck]
    async with Toolrest(tmp_path, tools=tools, on_ask=lambda _: "denied") as rest:
        assert await kind(rest, "nope") == "tool_not_found"
        assert await kind(rest, "read_file", {"file_path": 1}) == "input_invalid"
        assert await kind(rest, "unknown") == "approval_denied"
        assert await kind(rest, "slow") == "timed_out"
        calling = asyncio.ensure_future(rest.call("stuck", call_id="s"))
        await started.wait()
        cancelled = await rest.cancel("s")
        assert cancelled.failure is not None
        assert cancelled.failure.kind == "aborted"
        assert await calling == cancelled
    async with Toolrest(tmp_path, approval_policy="never") as rest:
        outside = {"path": "/etc/toolrest-nope", "content": "x"}
        assert await kind(rest, "write_file", outside) == "policy_denied"

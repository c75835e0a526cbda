"""Calls through a framework, without one: held, resumed once, and exactly what was approved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolrest import PendingApproval, ToolOutput, Toolrest, tool
from toolrest.integrations.gated_calls import FrameworkCall, GatedCalls

RAN: list[str] = []


@tool(mutating=True)
def refund(order: str) -> str:
    """Pay an order back."""
    RAN.append(order)
    return f"refunded {order}"


@pytest.fixture(autouse=True)
def _none_ran() -> None:
    RAN.clear()


def session(folder: Path, **options: Any) -> Toolrest:
    settings: dict[str, Any] = {"on_ask": "defer", "home": folder / "home"} | options
    return Toolrest(folder, tools=[refund], approval_policy="untrusted", **settings)


def call(order: str = "A7", call_id: str = "c1", name: str = "refund") -> FrameworkCall:
    return FrameworkCall(call_id, name, {"order": order})


async def test_a_call_that_needs_approval_is_held_and_runs_once(tmp_path: Path) -> None:
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        held = await calls.call(call())
        assert isinstance(held, PendingApproval)
        assert RAN == []
    async with session(tmp_path) as rest:  # another process
        calls = GatedCalls(rest)
        output = await calls.resume(call())
        assert isinstance(output, ToolOutput)
        assert output.text == "refunded A7"
        again = await calls.resume(call())
        assert isinstance(again, PendingApproval)
    assert RAN == ["A7"]


async def test_an_approval_is_not_for_another_call(tmp_path: Path) -> None:
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        held = await calls.call(call())
        for other in (call("B8"), call(call_id="c2")):
            result = await calls.resume(other)
            assert isinstance(result, PendingApproval)
            assert result.id != getattr(held, "id", None)
    assert RAN == []


async def test_the_same_call_twice_is_two_approvals(tmp_path: Path) -> None:
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        first, second = await calls.call(call()), await calls.call(call(call_id="c2"))
        assert isinstance(first, PendingApproval)
        assert isinstance(second, PendingApproval)
        assert first.id != second.id


async def test_a_denial_has_its_reason(tmp_path: Path) -> None:
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        await calls.call(call())
        output = await calls.resume(call(), "denied", "too much")
        assert isinstance(output, ToolOutput)
        assert "too much" in output.text
    assert RAN == []


async def test_only_what_is_offered_can_be_called(tmp_path: Path) -> None:
    async with session(tmp_path, on_ask="allow") as rest:
        calls = GatedCalls(rest)
        assert [tool.name for tool in calls.offered()] == ["refund"]
        output = await calls.call(FrameworkCall("c1", "read_file", {"file_path": "x"}))
        assert isinstance(output, ToolOutput)
        assert "not offered here" in output.text


async def test_a_framework_that_asks_beforehand(tmp_path: Path) -> None:
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        assert calls.needs_approval(call())
        refused = await calls.finish(call(), approved=False)
        assert "was not approved" in refused.text
        assert RAN == []
        assert (await calls.finish(call(), approved=True)).text == "refunded A7"


async def test_one_id_of_two_calls_is_no_approval_of_either(tmp_path: Path) -> None:
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        assert calls.needs_approval(call("A7"))
        assert "was not approved" in (await calls.finish(call("B8"), approved=True)).text
        assert calls.needs_approval(call("B8"))
        for order in ("A7", "B8"):
            assert "was not approved" in (await calls.finish(call(order), approved=True)).text
    assert RAN == []


async def test_an_approver_of_the_session_answers_itself(tmp_path: Path) -> None:
    async with session(tmp_path, on_ask=lambda request: True) as rest:
        calls = GatedCalls(rest)
        assert not calls.needs_approval(call())
        output = await calls.call(call())
        assert isinstance(output, ToolOutput)
        assert output.text == "refunded A7"


async def test_critical_calls_are_not_for_always_approve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "user"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    async with session(workspace) as rest:
        calls = GatedCalls(rest)
        critical = FrameworkCall("c1", "shell_command", {"command": "rm -rf ~"}, of_host=True)
        output = await calls.finish(critical, approved=True)
        assert "was not approved" in output.text
    assert home.exists()

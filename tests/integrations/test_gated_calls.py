"""Calls through a framework, without one: held, resumed once, and exactly what was approved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolrest import PendingApproval, ToolOutput, Toolrest, tool
from toolrest.integrations.gated_calls import FrameworkCall, GatedCalls
from toolrest.policy.effects import Effects

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


async def test_an_approval_for_other_arguments_is_none_for_the_call_that_was_held(
    tmp_path: Path,
) -> None:
    """The framework's user altered the call; what is shown then is the altered one."""
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        assert isinstance(await calls.call(call("A7")), PendingApproval)
        altered = await calls.resume(call("B8"))
        assert isinstance(altered, PendingApproval)
        assert [pending.id for pending in rest.pending] == [altered.id]
        again = await calls.resume(call("A7"))
        assert isinstance(again, PendingApproval)
        assert RAN == []
        output = await calls.resume(call("A7"))
        assert isinstance(output, ToolOutput)
    assert RAN == ["A7"]


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
        assert await calls.needs_approval(call())
        refused = await calls.finish(call(), approved=False)
        assert "was not approved" in refused.text
        unasked = await calls.finish(call(), approved=True)
        assert "was not approved" in unasked.text
        assert RAN == []
        assert await calls.needs_approval(call())
        assert (await calls.finish(call(), approved=True)).text == "refunded A7"
        again = await calls.finish(call(), approved=True)
        assert "was not approved" in again.text
    assert RAN == ["A7"]


async def test_what_was_asked_beforehand_is_approved_in_another_process_with_its_home(
    tmp_path: Path,
) -> None:
    async with session(tmp_path) as rest:
        assert await GatedCalls(rest).needs_approval(call())
    async with session(tmp_path, home=tmp_path / "elsewhere") as rest:
        output = await GatedCalls(rest).finish(call(), approved=True)
        assert "was not approved" in output.text
        assert RAN == []
    async with session(tmp_path) as rest:
        assert (await GatedCalls(rest).finish(call(), approved=True)).text == "refunded A7"


async def test_what_changed_since_it_was_asked_beforehand_is_not_run(tmp_path: Path) -> None:
    """An approval was bound to nothing: the patch was applied to another content."""
    workspace, file = tmp_path / "workspace", tmp_path / "outside.txt"
    workspace.mkdir()
    patch = f"*** Begin Patch\n*** Update File: {file}\n@@\n-a\n+b\n*** End Patch"
    edit = FrameworkCall("c1", "apply_patch", patch, of_host=True)
    file.write_text("x\na\ny\n")
    async with session(workspace) as rest:
        calls = GatedCalls(rest)
        assert await calls.needs_approval(edit)
        file.write_text("changed meanwhile\na\nmore\n")
        output = await calls.finish(edit, approved=True)
        assert "has changed since it was approved" in output.text
        assert file.read_text() == "changed meanwhile\na\nmore\n"
        assert await calls.needs_approval(edit)
        assert not (await calls.finish(edit, approved=True)).failed
    assert file.read_text() == "changed meanwhile\nb\nmore\n"


@pytest.mark.needs("sandbox")
async def test_asked_beforehand_twice_the_last_time_counts(tmp_path: Path) -> None:
    script = tmp_path / "work" / "script"
    script.parent.mkdir()
    script.write_text("echo first")
    run = FrameworkCall("c1", "shell_command", {"command": "sh script"}, of_host=True)
    async with session(script.parent, home=tmp_path / "home") as rest:
        calls = GatedCalls(rest)
        assert await calls.needs_approval(run)
        script.write_text("echo second")
        assert await calls.needs_approval(run)
        assert len(rest.pending) == 1
        assert "second" in (await calls.finish(run, approved=True)).text


async def test_calls_that_a_framework_rejects_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rejected call is never finished; after enough of them no call could be approved."""
    monkeypatch.setattr("toolrest.integrations.gated_calls._MOST_HELD", 3)
    monkeypatch.setattr("toolrest.gate.approval.pending_store._MOST_OPEN", 5)
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        for number in range(7):
            assert await calls.needs_approval(call(call_id=f"c{number}"))
        assert [pending.call_id for pending in rest.pending] == ["c4", "c5", "c6"]
        given_up = await calls.finish(call(call_id="c0"), approved=True)
        assert "was not approved" in given_up.text
        for number in range(7):
            refused = await calls.finish(call(call_id=f"d{number}"), approved=False)
            assert "was not approved" in refused.text
        output = await calls.finish(call(call_id="c6"), approved=True)
        assert output.text == "refunded A7"
        assert [pending.call_id for pending in rest.pending] == ["c4", "c5"]


async def test_held_calls_that_a_framework_rejects_do_not_pile_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pydantic-ai answers a rejected call itself; after 200 of them no call could be approved."""
    monkeypatch.setattr("toolrest.integrations.gated_calls._MOST_HELD", 3)
    monkeypatch.setattr("toolrest.gate.approval.pending_store._MOST_OPEN", 5)
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        for number in range(7):
            assert isinstance(await calls.call(call(call_id=f"c{number}")), PendingApproval)
        for number in range(4, 7):
            assert isinstance(await calls.resume(call(call_id=f"c{number}")), ToolOutput)
        assert rest.pending == []
        for number in range(3):  # those that ran are not counted
            assert isinstance(await calls.call(call(call_id=f"d{number}")), PendingApproval)
        assert [pending.call_id for pending in rest.pending] == ["d0", "d1", "d2"]
    assert RAN == ["A7"] * 3


async def test_looking_ahead_runs_and_announces_nothing(tmp_path: Path) -> None:
    events: list[Any] = []
    async with session(tmp_path) as rest:
        rest.subscribe(events.append)
        calls = GatedCalls(rest)
        assert await calls.needs_approval(call())
        assert not await calls.needs_approval(call(name="no_such_tool"))
        assert not await calls.needs_approval(FrameworkCall("c1", "refund", {"wrong": 1}))
        assert not await calls.needs_approval(FrameworkCall("c1", "exec_command", {"cmd": "rm x"}))
    assert events == []


async def test_an_error_in_a_tool_is_reported_and_the_call_says_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def touched(order: str) -> Effects:
        raise ZeroDivisionError(f"of the tool, {order}")

    @tool(effects=touched)
    def broken(order: str) -> str:
        """Fail before it runs."""
        return order

    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        rest.add_tool(broken)
        assert not await calls.needs_approval(call(name="no_such_tool"))
        assert not caplog.records, "what is refused is no error"
        assert not await calls.needs_approval(call(name="broken"))
        assert "broken needs approval is not known" in caplog.text
        output = await calls.call(call(name="broken"))
        assert isinstance(output, ToolOutput)
        assert "of the tool, A7" in output.text


async def test_always_approve_is_for_calls_that_were_not_shown(tmp_path: Path) -> None:
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        output = await calls.finish(call(), approved=True, always=True)
        assert output.text == "refunded A7"


async def test_one_id_of_two_calls_is_no_approval_of_either(tmp_path: Path) -> None:
    async with session(tmp_path) as rest:
        calls = GatedCalls(rest)
        assert await calls.needs_approval(call("A7"))
        assert "was not approved" in (await calls.finish(call("B8"), approved=True)).text
        assert await calls.needs_approval(call("B8"))
        for order in ("A7", "B8"):
            assert "was not approved" in (await calls.finish(call(order), approved=True)).text
    assert RAN == []


async def test_an_approver_of_the_session_answers_itself(tmp_path: Path) -> None:
    async with session(tmp_path, on_ask=lambda request: True) as rest:
        calls = GatedCalls(rest)
        assert not await calls.needs_approval(call())
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
        output = await calls.finish(critical, approved=True, always=True)
        assert "was not approved" in output.text
    assert home.exists()

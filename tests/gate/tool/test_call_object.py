"""A tool's own call: what it learns on the way lies in its fields, and lasts until it changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import ApprovalRequest, Context, Effects, Tool, Toolrest
from toolrest.answer import Answer
from toolrest.errors import SandboxDenied, ToolDefinitionError
from toolrest.gate.decision.decide import Decision
from toolrest.gate.tool.call import ToolCall, ToolQuestion
from toolrest.policy.launch import Changed

MAKE = Effects(runs=(("make",),), confined=True)


class BuildCall(ToolCall):
    """Counts its plan up; the question and the run read it from the field."""

    plan = 0

    async def prepare(self) -> None:
        self.plan += 1

    def question(self) -> ToolQuestion:
        return ToolQuestion(("make", str(self.plan)))

    async def run(self) -> str:
        return self.tool.work(self)  # type: ignore[attr-defined,no-any-return]


class Build(Tool):
    """Runs a program, so to speak."""

    name = "build"
    description = "Build it."
    typical = MAKE

    def __init__(self, work: Callable[[BuildCall], str]) -> None:
        self.work = work
        self.begun: list[BuildCall] = []

    def begin(self, args: Any, ctx: Context) -> ToolCall:
        self.begun.append(BuildCall(self, args, ctx, MAKE))
        return self.begun[-1]

    def decide(self, args: Any, effects: Effects, ctx: Context) -> Decision | None:
        return Decision(Answer.ASK if len(self.begun) == 1 else Answer.ALLOW, "mine")


async def build(folder: Path, tool: Build, mode: Any) -> tuple[str, list[ApprovalRequest]]:
    asked: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request)
        return True

    async with Toolrest(folder, approval_policy=mode, tools=[tool], on_ask=approver) as rest:
        return (await rest.call("build")).text, asked


async def test_the_question_and_the_run_read_the_same_field(tmp_path: Path) -> None:
    tool = Build(lambda call: f"built by plan {call.plan}")
    text, asked = await build(tmp_path, tool, "on-request")
    assert (text, [request.command for request in asked]) == ("built by plan 1", [("make", "1")])
    assert len(tool.begun) == 1


async def test_a_call_that_changed_is_begun_anew_and_knows_nothing(tmp_path: Path) -> None:
    def work(call: BuildCall) -> str:
        if len(tool.begun) == 1:
            raise Changed("the Makefile is another one")
        return f"plan {call.plan} of call {len(tool.begun)}"

    tool = Build(work)
    text, asked = await build(tmp_path, tool, "on-request")
    assert text == "plan 1 of call 2"
    assert len(asked) == 1


async def test_an_approval_does_not_outlive_a_change(tmp_path: Path) -> None:
    def work(call: BuildCall) -> str:
        if len(tool.begun) == 1:
            raise Changed("the Makefile is another one")
        if not call.ctx.outside:
            raise SandboxDenied("the sandbox blocked it")
        return "built outside"

    tool = Build(work)
    text, asked = await build(tmp_path, tool, "untrusted")
    assert text == "built outside"
    # The approval was for what was shown first: leaving the sandbox is a question of its own.
    assert [bool(request.retry_reason) for request in asked] == [False, True]


@pytest.mark.parametrize("name", ["prepare", "question", "known_writes", "reaches", "retry_keys"])
def test_a_hook_that_nobody_would_ask_is_refused(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match=f"Old defines {name}, .* `begin`"):
        type("Old", (Tool,), {name: lambda *_: None})


@pytest.mark.parametrize("first", [True, False])
def test_a_mixin_with_a_hook_that_nobody_would_ask_is_refused(first: bool) -> None:
    class Asks:
        def question(self, args: Any, ctx: Context) -> ToolQuestion:
            return ToolQuestion(("rm",))

    with pytest.raises(ToolDefinitionError, match="Old defines question"):
        type("Old", (Asks, Tool) if first else (Tool, Asks), {})


async def test_an_instance_with_a_hook_that_nobody_would_ask_is_refused(tmp_path: Path) -> None:
    tool = Build(lambda _: "built")
    tool.prepare = lambda *_: None  # type: ignore[attr-defined]
    with pytest.raises(ToolDefinitionError, match="build defines prepare"):
        Toolrest(tmp_path, tools=[tool])


@pytest.mark.parametrize("name", ["effects", "decide", "run"])
def test_a_subclass_cannot_say_what_the_calls_of_its_base_decide(name: str) -> None:
    """Failed before: the base's calls answer themselves, so the method silently did not count."""
    with pytest.raises(ToolDefinitionError, match=f"Careful defines {name}, .* `begin`"):
        type("Careful", (Build,), {name: lambda *_: None})
    type("Whole", (Build,), {name: lambda *_: None, "begin": Build.begin})


async def test_an_approval_does_not_outlive_a_change_of_the_same_object(tmp_path: Path) -> None:
    """Failed before: `again` may return the call itself, which kept its approval."""

    class Same(BuildCall):
        def again(self, changed: Changed) -> ToolCall:
            return self

    class Again(Build):
        def begin(self, args: Any, ctx: Context) -> ToolCall:
            self.begun.append(Same(self, args, ctx, MAKE))
            return self.begun[-1]

        def decide(self, args: Any, effects: Effects, ctx: Context) -> Decision | None:
            return Decision(Answer.ALLOW if self.begun[0].plan > 1 else Answer.ASK, "mine")

    def work(call: BuildCall) -> str:
        if call.plan == 1:
            raise Changed("the Makefile is another one")
        if not call.ctx.outside:
            raise SandboxDenied("the sandbox blocked it")
        return "built outside"

    text, asked = await build(tmp_path, Again(work), "untrusted")
    assert text == "built outside"
    assert [bool(request.retry_reason) for request in asked] == [False, True]

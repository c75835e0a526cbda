"""inspect_ai with our sandbox, tools and approver: the real package, a scripted model."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from inspect_ai import Task, eval_async
from inspect_ai.approval import (
    Approval,
    ApprovalPolicy,
    Approver,
    approver,
    auto_approver,
    human_approver,
)
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate, use_tools
from inspect_ai.tool import Tool, bash, tool
from inspect_ai.util import sandbox
from tests.docs import blocks
from tests.integrations.cases.common import Place, run
from tests.integrations.cases.pages import run_program

from toolrest import Toolrest
from toolrest.integrations.inspect_ai import InspectGate


async def evaluated(task: Task, *calls: tuple[str, dict[str, Any]], approval: Any = None) -> Any:
    """The one sample of an evaluation whose model makes these calls."""
    replies = [ModelOutput.for_tool_call("mockllm/model", name, given) for name, given in calls]
    replies.append(ModelOutput.from_content("mockllm/model", "Done."))
    for reply in replies:
        reply.usage = ModelUsage()  # else the package fetches a tokenizer to count
    model = get_model("mockllm/model", custom_outputs=replies)
    [log] = await eval_async(task, model=model, approval=approval, log_dir=os.environ["CASES"])
    assert log.status == "success", log.error and log.error.message
    [sample] = log.samples or []
    return sample


def outputs(sample: Any) -> list[str]:
    messages = [m for m in sample.messages if isinstance(m, ChatMessageTool)]
    return [m.error.message if m.error else m.text for m in messages]


@scorer(metrics=[accuracy()])
def file_is_there() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        box = sandbox()
        await box.write_file("deep/er/data", b"\x00\xff")
        assert await box.read_file("deep/er/data", text=False) == b"\x00\xff"
        done = await box.exec(["tr", "a-z", "A-Z"], input="loud")
        assert (done.stdout, done.success) == ("LOUD", True)
        assert (await box.exec(["no-such-program"])).returncode == 127
        for missing, error in {"nothing": FileNotFoundError, "deep": IsADirectoryError}.items():
            try:
                await box.read_file(missing)
            except error:
                continue
            raise AssertionError(missing)
        # A link that the sample made leads nowhere that the sample could not go.
        secret = os.path.join(os.environ["CASES"], "outside-the-sample")
        await box.exec(["ln", "-s", secret, "link"])
        with suppress(OSError):
            await box.write_file("link", "overwritten")
        assert not os.path.exists(secret)
        try:
            await box.exec(["sleep", "60"], timeout=1)
        except TimeoutError:
            return Score(value=(await box.read_file("inside")).strip() == "made")
        raise AssertionError("no time limit")

    return score


async def commands_of_a_sample_run_in_the_sandbox() -> None:
    place = Place()
    task = Task(
        [Sample("Go.", files={"given.txt": "given"})],
        solver=[use_tools(bash()), generate()],
        scorer=file_is_there(),
        sandbox="toolrest",
    )
    sample = await evaluated(task, ("bash", {"command": "cat given.txt; " + place.ordinary()}))
    assert sample.scores["file_is_there"].value is True, sample.scores
    assert "given" in outputs(sample)[0]
    assert not (place.outside / "escaped").exists()


async def ordinary_calls_of_our_tools_run_in_the_sandbox() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["shell"], on_ask="defer") as rest:
        gate = InspectGate(rest)
        task = Task([Sample("Go.")], solver=[use_tools(gate.tools()), generate()])
        sample = await evaluated(task, ("exec_command", {"cmd": place.ordinary()}))
    assert "finished" in outputs(sample)[0], outputs(sample)
    place.was_confined()


async def a_model_edits_a_file() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        task = Task([Sample("Go.")], solver=[use_tools(InspectGate(rest).tools()), generate()])
        sample = await evaluated(task, ("apply_patch", place.edit()))
    assert place.was_edited(), outputs(sample)


async def dangerous_calls_are_not_run_without_an_approver() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["shell"], on_ask="defer") as rest:
        gate = InspectGate(rest)
        task = Task([Sample("Go.")], solver=[use_tools(gate.tools()), generate()])
        sample = await evaluated(task, ("exec_command", place.dangerous()))
    assert "was not approved" in outputs(sample)[0]
    assert not place.touched()


async def the_gate_escalates_to_the_next_approver() -> None:
    place = Place()
    decisions: tuple[tuple[Any, bool], ...] = (("reject", False), ("approve", True))
    for decision, runs in decisions:
        async with Toolrest(place.workspace, tools=["shell"], on_ask="defer") as rest:
            gate = InspectGate(rest)
            task = Task([Sample("Go.")], solver=[use_tools(gate.tools()), generate()])
            policy = [
                ApprovalPolicy(gate.approver(), "*"),
                ApprovalPolicy(auto_approver(decision), "*"),
            ]
            calls = [("exec_command", {"cmd": "echo hi"}), ("exec_command", place.dangerous())]
            sample = await evaluated(task, *calls, approval=policy)
        assert "hi" in outputs(sample)[0]
        assert place.touched() is runs, outputs(sample)


@tool
def double() -> Tool:
    async def execute(number: int) -> str:
        """Double a number.

        Args:
            number: The number.
        """
        return f"doubled: {2 * number}"

    return execute


async def tools_that_are_not_ours_are_left_to_the_next_approver() -> None:
    decisions: tuple[tuple[Any, bool], ...] = (("reject", False), ("approve", True))
    for decision, runs in decisions:
        async with Toolrest(Place().workspace, tools=["shell"], on_ask="defer") as rest:
            gate = InspectGate(rest)
            task = Task([Sample("Go.")], solver=[use_tools(*gate.tools(), double()), generate()])
            policy = [
                ApprovalPolicy(gate.approver(), "*"),
                ApprovalPolicy(auto_approver(decision), "*"),
            ]
            sample = await evaluated(task, ("double", {"number": 2}), approval=policy)
        assert ("doubled: 4" in outputs(sample)[0]) is runs, outputs(sample)


async def what_changed_while_the_next_approver_was_asked_is_not_run() -> None:
    place = Place()
    script = place.workspace / "script"
    script.write_text("true\n")

    @approver(name="slow")
    def slow() -> Approver:
        async def approve(*args: Any, **kwargs: Any) -> Approval:
            script.write_text(f"touch {place.outside}/touched\n")
            return Approval(decision="approve")

        return approve

    async with Toolrest(place.workspace, tools=["shell"], on_ask="defer") as rest:
        gate = InspectGate(rest)
        task = Task([Sample("Go.")], solver=[use_tools(gate.tools()), generate()])
        policy = [ApprovalPolicy(gate.approver(), "*"), ApprovalPolicy(slow(), "*")]
        call = ("exec_command", {**place.dangerous(), "cmd": "sh script"})
        sample = await evaluated(task, call, approval=policy)
    assert "has changed since it was approved" in outputs(sample)[0], outputs(sample)
    assert not place.touched()


async def a_rejected_call_is_not_run_later_without_its_own_approval() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["shell"], on_ask="defer") as rest:
        gate = InspectGate(rest)
        task = Task([Sample("Go.")], solver=[use_tools(gate.tools()), generate()])
        no, yes = auto_approver("reject"), auto_approver("approve")
        rejecting = [ApprovalPolicy(gate.approver(), "*"), ApprovalPolicy(no, "*")]
        call = ("exec_command", place.dangerous())
        await evaluated(task, call, call, approval=rejecting)
        sample = await evaluated(task, call, approval=[ApprovalPolicy(yes, "*")])
        assert "was not approved" in outputs(sample)[0]
        assert not place.touched()
        approving = [ApprovalPolicy(gate.approver(), "*"), ApprovalPolicy(yes, "*")]
        await evaluated(task, call, approval=approving)
    assert place.touched()


async def the_page_s_program_asks_and_runs() -> None:
    run_program("with_inspect_ai.py", "success", "a", "r")


async def the_reference_s_fragment_runs() -> None:
    text = blocks.fragment("docs/reference/api.md", "gate = InspectGate(")
    made = await blocks.run(text, {**globals(), "human_approver": human_approver})
    assert len(made["approval"]) == 2


run(
    commands_of_a_sample_run_in_the_sandbox,
    ordinary_calls_of_our_tools_run_in_the_sandbox,
    a_model_edits_a_file,
    dangerous_calls_are_not_run_without_an_approver,
    the_gate_escalates_to_the_next_approver,
    tools_that_are_not_ours_are_left_to_the_next_approver,
    what_changed_while_the_next_approver_was_asked_is_not_run,
    a_rejected_call_is_not_run_later_without_its_own_approval,
    the_page_s_program_asks_and_runs,
    the_reference_s_fragment_runs,
)

"""openai-agents with our function, shell and patch tools: the real package, a scripted model."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, RunState, Usage, set_tracing_disabled
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseFunctionShellToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from tests.docs import blocks
from tests.integrations.cases.common import Place, run
from tests.integrations.cases.pages import run_program

from toolrest import Toolrest
from toolrest.integrations.openai_agents import apply_patch_tool, function_tools, shell_tool

set_tracing_disabled(True)


class Scripted(Model):
    """A model that replies with these items, then with those of `then`, then with a text."""

    def __init__(self, *items: Any, then: tuple[Any, ...] = ()) -> None:
        self.replies = [list(items), list(then)]
        self.seen: list[Any] = []

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        self.seen = args[1] if len(args) > 1 else kwargs["input"]
        text = ResponseOutputText(text="Done.", type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id="m", content=[text], role="assistant", status="completed", type="message"
        )
        output = (self.replies.pop(0) if self.replies else []) or [message]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


def function(name: str, arguments: dict[str, Any], call_id: str) -> ResponseFunctionToolCall:
    text = json.dumps(arguments)
    return ResponseFunctionToolCall(
        arguments=text, call_id=call_id, name=name, type="function_call"
    )


def shell(command: str, call_id: str) -> ResponseFunctionShellToolCall:
    return ResponseFunctionShellToolCall.model_validate(
        {
            "id": call_id,
            "call_id": call_id,
            "type": "shell_call",
            "status": "completed",
            "action": {"commands": [command], "timeout_ms": 60000, "max_output_length": None},
        }
    )


def patch(path: str, call_id: str) -> ResponseApplyPatchToolCall:
    return ResponseApplyPatchToolCall.model_validate(
        {
            "id": call_id,
            "call_id": call_id,
            "type": "apply_patch_call",
            "status": "completed",
            "operation": {"type": "create_file", "path": path, "diff": "+hello\n"},
        }
    )


def said(model: Scripted) -> str:
    return json.dumps([i if isinstance(i, dict) else i.model_dump() for i in model.seen])


async def ordinary_calls_run_in_the_sandbox() -> None:
    place = Place()
    model = Scripted(
        function("exec_command", {"cmd": place.ordinary()}, "c1"),
        shell("echo shelled > by_shell", "c2"),
        patch("made.txt", "c3"),
    )
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        tools = [*function_tools(rest), shell_tool(rest), apply_patch_tool(rest)]
        result = await Runner.run(Agent("a", model=model, tools=tools), "Go.")
    assert result.final_output == "Done."
    assert "finished" in said(model)
    place.was_confined()
    assert (place.workspace / "by_shell").read_text() == "shelled\n"
    assert (place.workspace / "made.txt").read_text() == "hello\n"


async def a_model_edits_a_file() -> None:
    """Failed before: "files" had no tool for it, and the package ends a run with an unknown one."""
    place = Place()
    model = Scripted(function("apply_patch", place.edit(), "c1"))
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        await Runner.run(Agent("a", model=model, tools=[*function_tools(rest)]), "Go.")
    assert place.was_edited(), said(model)


async def the_shell_is_confined() -> None:
    place = Place()
    async with Toolrest(place.workspace, on_ask="defer", tools=[]) as rest:
        model = Scripted(shell(place.ordinary(), "c1"))
        result = await Runner.run(Agent("a", model=model, tools=[shell_tool(rest)]), "Go.")
        assert not result.interruptions
    place.was_confined()


async def dangerous_calls_interrupt_and_run_once_approved() -> None:
    place = Place()
    options: dict[str, Any] = {"tools": ["files", "shell"], "on_ask": "defer", "home": place.home}
    model = Scripted(
        function("exec_command", place.dangerous("a"), "c1"),
        function("exec_command", place.dangerous("b"), "c2"),
    )
    async with Toolrest(place.workspace, **options) as rest:
        agent = Agent("a", model=model, tools=[*function_tools(rest)])
        result = await Runner.run(agent, "Go.")
        assert [item.name for item in result.interruptions] == ["exec_command"] * 2
        assert not place.touched("a")
        text = result.to_state().to_string()
    async with Toolrest(place.workspace, **options) as rest:  # as another process would
        agent = Agent("a", model=model, tools=[*function_tools(rest)])
        state = await RunState.from_string(agent, text)
        first, second = state.get_interruptions()
        state.approve(first)
        state.reject(second)
        result = await Runner.run(agent, state)
    assert result.final_output == "Done."
    assert (place.touched("a"), place.touched("b")) == (True, False)


async def without_a_home_another_process_runs_nothing_that_it_did_not_ask() -> None:
    place = Place()
    options: dict[str, Any] = {"tools": ["shell"], "on_ask": "defer"}
    model = Scripted(function("exec_command", place.dangerous(), "c1"))
    async with Toolrest(place.workspace, **options) as rest:
        agent = Agent("a", model=model, tools=[*function_tools(rest)])
        text = (await Runner.run(agent, "Go.")).to_state().to_string()
    async with Toolrest(place.workspace, **options) as rest:
        agent = Agent("a", model=model, tools=[*function_tools(rest)])
        state = await RunState.from_string(agent, text)
        for item in state.get_interruptions():
            state.approve(item)
        await Runner.run(agent, state)
    assert "was not approved" in said(model)
    assert not place.touched()


async def what_changed_since_it_was_asked_about_is_not_run() -> None:
    place = Place()
    file, script = place.outside / "given.txt", place.workspace / "script"
    file.write_text("old\n")
    script.write_text("true\n")
    removal = patch(str(file), "c2").model_dump()
    removal["operation"] = {"type": "update_file", "path": str(file), "diff": "@@\n-old\n+new\n"}
    model = Scripted(shell("sh script", "c1"), ResponseApplyPatchToolCall.model_validate(removal))
    options: dict[str, Any] = {"tools": [], "on_ask": "defer", "approval_policy": "untrusted"}
    async with Toolrest(place.workspace, **options) as rest:
        agent = Agent("a", model=model, tools=[shell_tool(rest), apply_patch_tool(rest)])
        result = await Runner.run(agent, "Go.")
        state = result.to_state()
        assert len(result.interruptions) == 2
        for item in result.interruptions:
            state.approve(item)
        file.write_text("something\nold\n")
        script.write_text("touch made\n")
        await Runner.run(agent, state)
    assert said(model).count("has changed since it was approved") == 2, said(model)
    assert file.read_text() == "something\nold\n"
    assert not (place.workspace / "made").exists()


async def dangerous_shell_calls_and_patches_interrupt() -> None:
    place = Place()
    outside = str(place.outside / "made.txt")
    model = Scripted(shell("touch made", "c1"), patch(outside, "c2"))
    options: dict[str, Any] = {"tools": [], "on_ask": "defer", "approval_policy": "untrusted"}
    async with Toolrest(place.workspace, **options) as rest:
        tools = [shell_tool(rest), apply_patch_tool(rest)]
        agent = Agent("a", model=model, tools=tools)
        result = await Runner.run(agent, "Go.")
        asked = {item.tool_name: item for item in result.interruptions}
        assert set(asked) == {"shell", "apply_patch"}
        assert not (place.outside / "made.txt").exists()
        state = result.to_state()
        state.approve(asked["apply_patch"])
        state.reject(asked["shell"])
        result = await Runner.run(agent, state)
        assert result.final_output == "Done."
    assert (place.outside / "made.txt").read_text() == "hello\n"
    assert not (place.workspace / "made").exists()


async def always_approve_is_not_about_critical_calls() -> None:
    place = Place()
    (place.outside / "kept").touch()
    os.environ["HOME"] = str(place.outside)
    options: dict[str, Any] = {"tools": [], "on_ask": "defer", "approval_policy": "untrusted"}
    async with Toolrest(place.workspace, **options) as rest:
        assert rest.explain("shell_command", {"command": "rm -rf ~"}).risk == "critical"
        model = Scripted(shell("touch made", "c1"), then=(shell("rm -rf ~", "c2"),))
        agent = Agent("a", model=model, tools=[shell_tool(rest)])
        result = await Runner.run(agent, "Go.")
        [item] = result.interruptions
        state = result.to_state()
        state.approve(item, always_approve=True)
        result = await Runner.run(agent, state)
        assert result.final_output == "Done."
        assert "was not approved" in said(model)
    assert (place.workspace / "made").exists()
    assert (place.outside / "kept").exists()


async def an_approver_of_the_session_leaves_nothing_to_interrupt_for() -> None:
    place = Place()
    item = ResponseFunctionToolCall(
        arguments="[1]", call_id="c1", name="exec_command", type="function_call"
    )
    for on_ask in ("deny", lambda request: False):
        model = Scripted(item, then=(function("exec_command", place.dangerous(), "c2"),))
        async with Toolrest(place.workspace, tools=["shell"], on_ask=on_ask) as rest:
            agent = Agent("a", model=model, tools=[*function_tools(rest)])
            result = await Runner.run(agent, "Go.")
        assert result.final_output == "Done."
        assert "expected a JSON object" in said(model)
        assert not place.touched()


async def an_operation_is_one_file() -> None:
    place = Place()
    (place.workspace / "victim").touch()
    item = patch("made.txt", "c1").model_dump()
    item["operation"]["diff"] = "+hello\n*** Delete File: victim\n"
    model = Scripted(ResponseApplyPatchToolCall.model_validate(item))
    async with Toolrest(place.workspace, tools=[], on_ask="allow") as rest:
        await Runner.run(Agent("a", model=model, tools=[apply_patch_tool(rest)]), "Go.")
    assert "not one file's patch" in said(model)
    assert (place.workspace / "victim").exists()


async def the_page_s_program_asks_and_runs() -> None:
    run_program("with_openai_agents.py", "The tests pass.")


async def the_reference_s_fragment_runs() -> None:
    text = blocks.fragment("docs/reference/api.md", "tools=function_tools(rest)")
    made = await blocks.run(text, dict(globals()))
    assert "exec_command" in {tool.name for tool in made["agent"].tools}


run(
    ordinary_calls_run_in_the_sandbox,
    a_model_edits_a_file,
    the_shell_is_confined,
    dangerous_calls_interrupt_and_run_once_approved,
    without_a_home_another_process_runs_nothing_that_it_did_not_ask,
    what_changed_since_it_was_asked_about_is_not_run,
    dangerous_shell_calls_and_patches_interrupt,
    always_approve_is_not_about_critical_calls,
    an_approver_of_the_session_leaves_nothing_to_interrupt_for,
    an_operation_is_one_file,
    the_page_s_program_asks_and_runs,
    the_reference_s_fragment_runs,
)

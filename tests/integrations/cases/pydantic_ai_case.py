"""A pydantic-ai agent with our toolset: the real package, a scripted model."""

from __future__ import annotations

import os
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.docs import blocks
from tests.integrations.cases.common import Place, run
from tests.integrations.cases.pages import run_program

from toolrest import Toolrest
from toolrest.integrations.pydantic_ai import ToolrestToolset


def agent(rest: Toolrest, *calls: ToolCallPart) -> Agent[None, Any]:
    """An agent whose model makes these calls at once, then answers."""

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        assert {tool.name for tool in info.function_tools} >= {"exec_command", "read_file"}
        answered = isinstance(messages[-1], ModelRequest) and any(
            isinstance(part, ToolReturnPart) for part in messages[-1].parts
        )
        return ModelResponse(parts=[TextPart("Done.")] if answered else list(calls))

    return Agent(
        FunctionModel(reply),
        toolsets=[ToolrestToolset(rest)],
        output_type=[str, DeferredToolRequests],
    )


def returns(messages: list[ModelMessage]) -> list[str]:
    """The outputs that the model was given."""
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


async def ordinary_calls_run_in_the_sandbox() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        call = ToolCallPart("exec_command", {"cmd": place.ordinary()}, "c1")
        result = await agent(rest, call).run("Go.")
    assert result.output == "Done."
    assert "finished" in returns(result.all_messages())[0]
    place.was_confined()


async def a_model_edits_a_file() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        result = await agent(rest, ToolCallPart("apply_patch", place.edit(), "c1")).run("Go.")
    assert place.was_edited(), returns(result.all_messages())


async def dangerous_calls_are_deferred_and_run_once_approved() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        helper = agent(
            rest,
            ToolCallPart("exec_command", place.dangerous("a"), "c1"),
            ToolCallPart("exec_command", place.dangerous("b"), "c2"),
        )
        asked = (await helper.run("Go.")).output
        assert isinstance(asked, DeferredToolRequests)
        assert [call.tool_call_id for call in asked.approvals] == ["c1", "c2"]
        assert asked.metadata["c1"]["leaves"] is True
        assert "touch" in asked.metadata["c1"]["command"][-1]
        assert not place.touched("a")
    # The asking process is gone, and so is its home: a new session asks anew.


async def approvals_count_once_and_for_their_call() -> None:
    place = Place()
    options: dict[str, Any] = {"tools": ["files", "shell"], "on_ask": "defer", "home": place.home}
    calls = [
        ToolCallPart("exec_command", place.dangerous("a"), "c1"),
        ToolCallPart("exec_command", place.dangerous("b"), "c2"),
    ]
    async with Toolrest(place.workspace, **options) as rest:
        first = await agent(rest, *calls).run("Go.")
    answers = DeferredToolResults(approvals={"c1": True, "c2": ToolDenied("not that one")})
    async with Toolrest(place.workspace, **options) as rest:  # as another process would
        history = first.all_messages()
        done = await agent(rest, *calls).run(message_history=history, deferred_tool_results=answers)
        assert done.output == "Done."
        assert (place.touched("a"), place.touched("b")) == (True, False)
        assert "not that one" in " ".join(returns(done.all_messages()))
        (place.outside / "a").unlink()
        again = await agent(rest, *calls).run(
            message_history=history, deferred_tool_results=answers
        )
        assert isinstance(again.output, DeferredToolRequests)
        assert not place.touched("a")


async def altered_arguments_are_asked_about_and_approve_nothing_else() -> None:
    """The request shows the model's arguments beside what the altered call would do."""
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        helper = agent(rest, ToolCallPart("exec_command", place.dangerous("a"), "c1"))
        altered = ToolApproved(override_args=place.dangerous("b"))
        result = await helper.run("Go.")
        for answer, shown in ((altered, "/b"), (True, "/a"), (altered, "/b")):
            approvals = DeferredToolResults(approvals={"c1": answer})
            result = await helper.run(
                message_history=result.all_messages(), deferred_tool_results=approvals
            )
            assert isinstance(result.output, DeferredToolRequests)
            assert shown in result.output.metadata["c1"]["command"][-1]
            assert (place.touched("a"), place.touched("b")) == (False, False)
        approvals = DeferredToolResults(approvals={"c1": altered})
        await helper.run(message_history=result.all_messages(), deferred_tool_results=approvals)
        assert (place.touched("a"), place.touched("b")) == (False, True)


async def arguments_that_are_no_object_are_answered() -> None:
    place = Place()
    for wrong in ("null", "[1]", '"x"', ""):
        async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
            result = await agent(rest, ToolCallPart("exec_command", wrong, "c1")).run("Go.")
        assert "failed to parse function arguments" in returns(result.all_messages())[0]


async def tools_that_are_not_offered_are_not_run() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["read_file"], on_ask="allow") as rest:
        nothing: Any = None
        assert list(await ToolrestToolset(rest).get_tools(nothing)) == ["read_file"]


async def the_page_s_program_asks_and_runs() -> None:
    run_program("with_pydantic_ai.py", "The tests pass.")


async def the_reference_s_fragment_runs() -> None:
    os.environ["OPENAI_API_KEY"] = "sk-none-0123456789"
    text = blocks.fragment("docs/reference/api.md", "toolsets=[ToolrestToolset(rest)]")
    made = await blocks.run(text, dict(globals()))
    assert isinstance(made["agent"].toolsets[-1], ToolrestToolset)


run(
    ordinary_calls_run_in_the_sandbox,
    a_model_edits_a_file,
    dangerous_calls_are_deferred_and_run_once_approved,
    approvals_count_once_and_for_their_call,
    altered_arguments_are_asked_about_and_approve_nothing_else,
    arguments_that_are_no_object_are_answered,
    tools_that_are_not_offered_are_not_run,
    the_page_s_program_asks_and_runs,
    the_reference_s_fragment_runs,
)

"""LangGraph with our tools: the real packages, a scripted model."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send
from tests.docs import blocks
from tests.integrations.cases.common import Place, run
from tests.integrations.cases.pages import run_program

from toolrest import Toolrest
from toolrest.integrations.langchain import tools

CONFIG: Any = {"configurable": {"thread_id": "1"}}


def call(arguments: dict[str, Any], call_id: str, name: str = "exec_command") -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": call_id, "type": "tool_call"}


def graph(rest: Toolrest, saver: InMemorySaver | None = None) -> Any:
    """A graph of one node, which runs the calls of the last message."""
    made = StateGraph(MessagesState)
    made.add_node("tools", ToolNode(tools(rest)))
    made.add_edge(START, "tools")
    return made.compile(checkpointer=saver or InMemorySaver())


def asking(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"messages": [AIMessage("", tool_calls=list(calls))]}


def outputs(state: dict[str, Any]) -> dict[str, str]:
    messages = [m for m in state["messages"] if isinstance(m, ToolMessage)]
    return {message.tool_call_id: str(message.content) for message in messages}


async def ordinary_calls_run_in_the_sandbox() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        state = await graph(rest).ainvoke(asking(call({"cmd": place.ordinary()}, "c1")), CONFIG)
    assert "finished" in outputs(state)["c1"]
    place.was_confined()


async def a_model_edits_a_file() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        edit = call(place.edit(), "c1", "apply_patch")
        state = await graph(rest).ainvoke(asking(edit), CONFIG)
    assert place.was_edited(), outputs(state)


async def tools_work_without_a_graph_and_run_nothing_dangerous() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["shell"], on_ask="defer") as rest:
        [tool] = [tool for tool in tools(rest) if tool.name == "exec_command"]
        text = await tool.ainvoke({"cmd": place.ordinary()})
        assert "finished" in text
        message = await tool.ainvoke(call(place.dangerous(), "c1"))
    assert "was not approved" in message.content
    assert not place.touched()
    place.was_confined()


async def dangerous_calls_interrupt_and_run_once_approved() -> None:
    place, saver = Place(), InMemorySaver()
    options: dict[str, Any] = {"tools": ["files", "shell"], "on_ask": "defer", "home": place.home}
    async with Toolrest(place.workspace, **options) as rest:
        state = await graph(rest, saver).ainvoke(asking(call(place.dangerous(), "c1")), CONFIG)
        [interrupt] = state["__interrupt__"]
        assert interrupt.value["leaves"] is True
        assert not place.touched()
    async with Toolrest(place.workspace, **options) as rest:  # as another process would
        loop = graph(rest, saver)
        # An answer that does not name this request is no answer to it.
        for wrong in ("approved", True, {"0123456789ab": "approved"}):
            state = await loop.ainvoke(Command(resume=wrong), CONFIG)
            assert state["__interrupt__"][0].value["id"] == interrupt.value["id"]
            assert not place.touched()
        await loop.ainvoke(Command(resume={interrupt.value["id"]: "approved"}), CONFIG)
    assert place.touched()


async def denied_calls_are_not_run() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        loop = graph(rest)
        state = await loop.ainvoke(asking(call(place.dangerous(), "c1")), CONFIG)
        answer = {state["__interrupt__"][0].value["id"]: {"denied": {"rejection": "not today"}}}
        state = await loop.ainvoke(Command(resume=answer), CONFIG)
    assert "not today" in outputs(state)["c1"]
    assert not place.touched()


async def calls_beside_an_interrupted_one_run_once() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        loop = graph(rest)
        state = await loop.ainvoke(
            asking(
                call({"cmd": "echo x >> count"}, "c1"),
                call(place.dangerous("a"), "c2"),
                call(place.dangerous("b"), "c3"),
            ),
            CONFIG,
        )
        for _ in range(5):
            found = state.get("__interrupt__")
            if not found:
                break
            value = found[0].value
            verdict = "approved" if "/a" in value["command"][-1] else "denied"
            state = await loop.ainvoke(Command(resume={value["id"]: verdict}), CONFIG)
    assert set(outputs(state)) == {"c1", "c2", "c3"}
    assert (place.workspace / "count").read_text() == "x\n"
    assert (place.touched("a"), place.touched("b")) == (True, False)


async def answered(loop: Any, state: Any, verdict: Any) -> Any:
    """The state after every interrupt was answered, in the way that the manual shows."""
    for _ in range(5):
        found = state.get("__interrupt__")
        if not found:
            return state
        answers = {one.id: {one.value["id"]: verdict(one.value)} for one in found}
        state = await loop.ainvoke(Command(resume=answers), CONFIG)
    raise AssertionError("the graph is interrupted again and again")


def only_a(value: Any) -> str:
    return "approved" if "/a" in value["command"][-1] else "denied"


async def several_calls_of_one_task_are_answered_one_after_the_other() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        loop = graph(rest)
        calls = [call(place.dangerous(name), f"c-{name}") for name in "ab"]
        state = await answered(loop, await loop.ainvoke(asking(*calls), CONFIG), only_a)
    assert set(outputs(state)) == {"c-a", "c-b"}
    assert (place.touched("a"), place.touched("b")) == (True, False)


async def calls_in_tasks_of_their_own_are_answered_together() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        made = StateGraph(MessagesState)
        made.add_node("model", lambda _: {})
        made.add_node("tools", ToolNode(tools(rest)))
        made.add_edge(START, "model")
        made.add_conditional_edges(
            "model",
            lambda state: [
                Send("tools", asking(one)) for one in state["messages"][-1].tool_calls
            ],
        )  # fmt: skip
        loop = made.compile(checkpointer=InMemorySaver())
        calls = [call(place.dangerous(name), f"c-{name}") for name in "ab"]
        state = await loop.ainvoke(asking(*calls), CONFIG)
        assert len(state["__interrupt__"]) == 2
        state = await answered(loop, state, only_a)
    assert set(outputs(state)) == {"c-a", "c-b"}
    assert (place.touched("a"), place.touched("b")) == (True, False)


async def two_calls_with_one_id_both_run() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["shell"], on_ask="defer") as rest:
        calls = [call({"cmd": f"echo {name} >> made"}, "c1") for name in ("one", "two")]
        await graph(rest).ainvoke(asking(*calls), CONFIG)
    assert sorted((place.workspace / "made").read_text().split()) == ["one", "two"]


async def a_call_without_an_id_is_refused_where_it_needs_approval() -> None:
    place = Place()
    async with Toolrest(place.workspace, tools=["shell"], on_ask="defer") as rest:
        [tool] = [tool for tool in tools(rest) if tool.name == "exec_command"]

        async def node(_: Any) -> Any:
            return {"messages": [AIMessage(await tool.ainvoke(place.dangerous()))]}

        made = StateGraph(MessagesState)
        made.add_node("node", node)
        made.add_edge(START, "node")
        state = await made.compile(checkpointer=InMemorySaver()).ainvoke(asking(), CONFIG)
    assert "was not approved" in state["messages"][-1].content
    assert not place.touched()


async def calls_that_still_run_after_an_interrupt_are_waited_for() -> None:
    place = Place()
    go = place.workspace / "go"
    until = f"until [ -e {go} ]; do sleep 0.02; done;"
    slow = place.dangerous("a")
    async with Toolrest(place.workspace, tools=["files", "shell"], on_ask="defer") as rest:
        loop = graph(rest)
        calls = [
            call({**slow, "cmd": f"{until} {slow['cmd']}; echo x >> {place.outside}/count"}, "c1")
        ]
        calls.append(call(place.dangerous("b"), "c2"))
        state = await loop.ainvoke(asking(*calls), CONFIG)
        for _ in range(5):
            found = state.get("__interrupt__")
            if not found:
                break
            value = found[0].value
            slow_one = "/a" in value["command"][-1]
            if not slow_one:
                go.touch()
            answer = "approved" if slow_one else "denied"
            state = await loop.ainvoke(Command(resume={value["id"]: answer}), CONFIG)
    assert set(outputs(state)) == {"c1", "c2"}
    assert (place.outside / "count").read_text() == "x\n"
    assert (place.touched("a"), place.touched("b")) == (True, False)


async def the_page_s_program_asks_and_runs() -> None:
    run_program("with_langgraph.py", "The tests pass.")


async def the_reference_s_fragment_runs() -> None:
    text = blocks.fragment("docs/reference/api.md", "node = ToolNode(tools(rest))")
    made = await blocks.run(text, dict(globals()))
    assert "exec_command" in made["node"].tools_by_name


run(
    ordinary_calls_run_in_the_sandbox,
    a_model_edits_a_file,
    tools_work_without_a_graph_and_run_nothing_dangerous,
    dangerous_calls_interrupt_and_run_once_approved,
    denied_calls_are_not_run,
    calls_beside_an_interrupted_one_run_once,
    several_calls_of_one_task_are_answered_one_after_the_other,
    calls_in_tasks_of_their_own_are_answered_together,
    two_calls_with_one_id_both_run,
    a_call_without_an_id_is_refused_where_it_needs_approval,
    calls_that_still_run_after_an_interrupt_are_waited_for,
    the_page_s_program_asks_and_runs,
    the_reference_s_fragment_runs,
)

"""The front door: an agent in a few lines, typed answers, conversations, approvals, sub-agents."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import pytest
from pydantic import BaseModel

from toolrest import (
    Agent,
    AgentError,
    ApprovalRequest,
    ConfigError,
    Context,
    Effects,
    PendingError,
    TaskComplete,
    ToolCallEnd,
    ToolDefinitionError,
    Toolrest,
    ToolrestError,
    tool,
)
from toolrest.testing import Call, Fail, Say, ScriptedModel, ScriptedServer
from toolrest.testing.server import ServerWire

WIRES: list[ServerWire] = ["responses", "chat", "anthropic"]


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


@tool(mutating=True)
def pay(amount: int) -> str:
    """Pay an invoice."""
    return f"paid {amount}"


class City(BaseModel):
    name: str
    people: int


@dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict, total=False):
    key: str


def bodies(server: ScriptedServer) -> list[dict[str, Any]]:
    """What the model was asked; clients may also ask for the list of models."""
    return [request.body for request in server.requests if request.body]


def outputs(model: ScriptedModel) -> list[str]:
    items = model.requests[-1].items
    return [str(item["output"]) for item in items if item["type"].endswith("_output")]


@pytest.mark.parametrize("wire", WIRES)
def test_the_lines_of_the_readme(wire: ServerWire, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([Call("weather", {"city": "Oslo"}), "Yes, take one."]) as server:
        variable, model = {
            "responses": ("OPENAI_BASE_URL", "openai:gpt-5.5"),
            "chat": ("OLLAMA_HOST", "ollama:qwen3:8b"),
            "anthropic": ("ANTHROPIC_BASE_URL", "anthropic:claude-sonnet-4-5"),
        }[wire]
        monkeypatch.setenv(variable, server.url.removesuffix("/v1"))
        if wire == "responses":
            monkeypatch.setenv(variable, server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-none-0123456789")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none-0123456789")
        agent = Agent(model, tools=[weather])
        result = agent.run_sync("Do I need an umbrella in Oslo?")
        assert result.text == result.output == "Yes, take one."
        assert (result.status, result.tool_calls) == ("completed", 1)
        first, second = bodies(server)
        assert len(first["tools"]) == 1
        assert "sandbox" not in json.dumps(first)
        assert "rain in Oslo" in json.dumps(second)


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        (City, {"name": "Oslo", "people": 7}, City(name="Oslo", people=7)),
        (Point, {"x": 1, "y": 2}, Point(1, 2)),
        (Row, {"key": "k"}, {"key": "k"}),
        (list[int], {"result": [1, 2]}, [1, 2]),
        (City | Point, {"result": {"x": 1, "y": 0}}, Point(1)),
        (Literal["yes", "no"], {"result": "no"}, "no"),
        (dict[str, int], {"a": 1}, {"a": 1}),
    ],
)
@pytest.mark.parametrize("wire", WIRES)
def test_the_answer_has_the_type_that_was_asked_for(
    wire: ServerWire, kind: Any, answer: Any, expected: Any
) -> None:
    with ScriptedServer([json.dumps(answer)]) as server:
        agent = Agent(settings=server.settings(wire), output_type=kind)
        assert agent.run_sync("which?").output == expected
        assert "schema" in json.dumps(bodies(server)[0]).lower()


def test_an_answer_of_the_wrong_form_is_sent_back_with_what_is_wrong() -> None:
    model = ScriptedModel(['{"name": "Oslo"}', "seven", '```json\n{"name":"O","people":7}\n```'])
    result = Agent(model, output_type=City).run_sync("which?")
    assert result.output.people == 7
    assert len(model.requests) == 3
    last = json.dumps(model.requests[2].items)
    assert "people: Field required" in last
    assert "Invalid JSON" in last


def test_without_a_usable_answer_the_run_fails_and_says_why() -> None:
    model = ScriptedModel(['{"name": 1}'] * 2)
    with pytest.raises(AgentError, match="people: Field required") as raised:
        Agent(model, output_type=City, retries=1).run_sync("which?")
    assert raised.value.result.reason == "schema_unmet"
    with pytest.raises(ToolrestError, match="no output"):
        _ = raised.value.result.output


def test_a_failure_of_the_model_is_raised() -> None:
    with pytest.raises(AgentError, match="no such thing") as raised:
        Agent(ScriptedModel([Fail(400, "bad_request", "no such thing")])).run_sync("hi")
    assert raised.value.result.status == "failed"


def test_a_models_own_object_is_not_closed_and_serves_many_runs() -> None:
    model = ScriptedModel(["one", "two"])
    agent = Agent(model)
    assert [agent.run_sync("go").text, agent.run_sync("go").text] == ["one", "two"]
    assert not model.closed


async def test_run_sync_in_a_running_loop_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        Agent(ScriptedModel(["x"])).run_sync("hi")


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(ConfigError, match="'qwen3'"):
        Agent("qwen3:8b").run_sync("hi")


def test_a_misspelt_provider_is_an_error_and_a_models_own_name_is_taken_as_it_is() -> None:
    with pytest.raises(ConfigError, match="did you mean anthropic:claude-5"):
        Agent("antropic:claude-5").run_sync("hi")
    assert Agent(ScriptedModel(["yes"], name="opena:m")).run_sync("hi").text == "yes"


def test_built_in_tools_by_group_bring_the_coding_instructions(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("needle")
    model = ScriptedModel([Call("read_file", {"file_path": "a.txt"}), "read"])
    assert Agent(model, tools=["read"], workspace=tmp_path).run_sync("go").text == "read"
    assert "needle" in outputs(model)[0]
    request = model.requests[0]
    assert {spec["name"] for spec in request.tools} == {
        "glob_files",
        "grep_files",
        "list_dir",
        "read_file",
        "view_image",
    }
    assert "sandbox_mode" in json.dumps(request.items)
    assert request.instructions


async def test_the_events_of_a_run() -> None:
    model = ScriptedModel([Call("weather", {"city": "Rome"}), Say("It rains.", chunks=3)])
    async with Agent(model, tools=[weather]).stream("go") as events:
        seen = [event async for event in events]
        result = await events.result()
    assert [e.tool for e in seen if isinstance(e, ToolCallEnd)] == ["weather"]
    assert isinstance(seen[-1], TaskComplete)
    assert result.text == "It rains."


async def test_the_text_of_a_run_in_pieces() -> None:
    async with Agent(ScriptedModel([Say("one two three", chunks=3)])).stream("go") as events:
        pieces = [piece async for piece in events.text()]
    assert len(pieces) == 3
    assert "".join(pieces) == "one two three"


async def test_reading_the_events_of_a_failed_run_raises() -> None:
    async with Agent(ScriptedModel([Fail(400, "bad_request", "no such thing")])).stream(
        "go"
    ) as events:
        with pytest.raises(AgentError, match="no such thing"):
            async for _ in events:
                pass


async def test_leaving_a_stream_early_ends_the_turn() -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def waits() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    async with Agent(ScriptedModel([Call("waits")]), tools=[waits]).stream("go"):
        await started.wait()
    assert ended.is_set()


async def test_leaving_a_stream_at_once_ends_the_turn() -> None:
    """The turn was not begun, so nothing was interrupted, and the block waited for all of it."""
    model = ScriptedModel([Call("weather", {"city": "Rome"}), "It rains."])
    async with Agent(model, tools=[weather]).stream("go") as events:
        pass
    with pytest.raises(AgentError, match="stopped"):
        await events.result()
    assert model.requests == []


async def test_leaving_a_second_stream_at_once_does_not_end_the_turn_that_runs() -> None:
    agent = Agent(ScriptedModel(["It rains."]))
    async with agent.session() as chat, chat.stream("go") as events:
        async with chat.stream("again") as second:
            pass
        with pytest.raises(RuntimeError, match="a turn is running"):
            await second.result()
        assert (await events.result()).text == "It rains."


# Conversations


async def test_a_conversation_remembers() -> None:
    model = ScriptedModel(["Hi Ada.", "Ada."])
    async with Agent(model).session() as chat:
        await chat.run("I am Ada.")
        assert (await chat.run("Who am I?")).text == "Ada."
    assert "I am Ada." in json.dumps(model.requests[1].items)


async def test_a_conversation_is_resumed_and_forked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    agent = Agent(ScriptedModel(["Hi Ada."]), home=home)
    async with agent.session() as chat:
        await chat.run("I am Ada.")
    again = ScriptedModel(["Ada.", "Ada again."])
    agent = Agent(again, home=home)
    async with agent.session(resume=chat.id) as same:
        assert same.id == chat.id
        await same.run("Who am I?")
    async with agent.session(fork=chat.id) as copy:
        assert copy.id != chat.id
        await copy.run("And now?")
    assert all("I am Ada." in json.dumps(request.items) for request in again.requests)


async def test_without_a_home_nothing_can_be_resumed() -> None:
    with pytest.raises(ConfigError, match="home"):
        Agent(ScriptedModel([])).session(resume="abcd")


# What tools get


@dataclass
class Deps:
    user: str


@tool
def who(ctx: Context[Deps]) -> str:
    """Who asks."""
    return f"user {ctx.deps.user}"


async def test_deps_reach_the_tools_that_name_their_type() -> None:
    model = ScriptedModel([Call("who"), "ok"])
    await Agent(model, tools=[who]).run("go", deps=Deps("ada"))
    assert outputs(model) == ["user ada"]
    with pytest.raises(TypeError, match=r"who takes Context\[Deps\]"):
        await Agent(model, tools=[who]).run("go", deps="ada")


# Approval


async def test_a_callback_answers_what_needs_approval() -> None:
    asked: list[ApprovalRequest] = []

    def answer(request: ApprovalRequest) -> bool:
        asked.append(request)
        return "7" in request.arguments

    model = ScriptedModel([[Call("pay", {"amount": 7}), Call("pay", {"amount": 9})], "done"])
    result = await Agent(model, tools=[pay], on_ask=answer).run("go")
    assert [request.tool for request in asked] == ["pay", "pay"]
    assert outputs(model)[0] == "paid 7"
    assert "rejected by user" in outputs(model)[1]
    assert [row["tool"] for row in result.denials] == ["pay"]


LATER = """
import asyncio, json, sys
from toolrest import Agent, tool
from toolrest.testing import ScriptedModel

@tool(mutating=True)
def pay(amount: int) -> str:
    "Pay an invoice."
    return f"paid {amount}"

async def main():
    model = ScriptedModel(["It is paid."])
    agent = Agent(model, tools=[pay], on_ask="defer", home=sys.argv[1])
    async with agent.session(resume=sys.argv[2]) as chat:
        [pending] = chat.pending
        result = await chat.resume(pending, sys.argv[3])
    items = model.requests[0].items
    print(json.dumps([result.text, items[-1]["output"]]))

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("answer", "output"), [("approved", "paid 7"), ("denied", "rejected by user")]
)
async def test_a_turn_waits_for_its_approval_and_goes_on_in_another_process(
    tmp_path: Path, answer: str, output: str
) -> None:
    model = ScriptedModel([[Call("pay", {"amount": 7}), Call("weather", {"city": "Oslo"})]])
    agent = Agent(model, tools=[pay, weather], on_ask="defer", home=tmp_path / "home")
    result = await agent.run("Pay the invoice.")
    assert result.status == "pending"
    assert [(p.tool, p.arguments) for p in result.pending] == [("pay", '{"amount": 7}')]
    with pytest.raises(ToolrestError, match="pending"):
        _ = result.output
    done = subprocess.run(
        [sys.executable, "-c", LATER, str(tmp_path / "home"), result.session_id, answer],
        capture_output=True,
        text=True,
        cwd=os.getcwd(),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["It is paid.", output]


async def test_two_approvals_of_one_turn_are_answered_one_by_one(tmp_path: Path) -> None:
    calls = [Call("pay", {"amount": 7}), Call("pay", {"amount": 7})]
    model = ScriptedModel([calls, "Both are paid."])
    agent = Agent(model, tools=[pay], on_ask="defer", home=tmp_path / "home")
    async with agent.session() as chat:
        first, second = (await chat.run("go")).pending
        assert (await chat.resume(first)).pending == [second]
        assert (await chat.resume(second)).text == "Both are paid."
    assert outputs(model) == ["paid 7", "paid 7"]


async def test_saying_something_else_skips_a_pending_call(tmp_path: Path) -> None:
    model = ScriptedModel([Call("pay", {"amount": 7}), "Fine."])
    agent = Agent(model, tools=[pay], on_ask="defer", home=tmp_path / "home")
    async with agent.session() as chat:
        await chat.run("go")
        assert (await chat.run("Never mind.")).text == "Fine."
    assert outputs(model) == ["not run: the user went on before it was approved"]


async def test_a_late_approval_of_a_skipped_call_runs_nothing(tmp_path: Path) -> None:
    """It ran the call that the model was told was not run: two outputs of one call."""
    model = ScriptedModel([Call("pay", {"amount": 7}), "Fine.", "Never sent."])
    agent = Agent(model, tools=[pay], on_ask="defer", home=tmp_path / "home")
    async with agent.session() as chat:
        [pending] = (await chat.run("go")).pending
        await chat.run("Never mind.")
        assert chat.rest.pending == []
        with pytest.raises(PendingError, match="no call of this conversation waits"):
            await chat.resume(pending)
        with pytest.raises(PendingError, match="already used"):
            await chat.rest.resume(pending)
        history = chat.history
    async with agent.session(resume=chat.id) as chat:
        with pytest.raises(PendingError, match="no call of this conversation waits"):
            await chat.resume(pending)
    assert [item["type"] for item in history].count("function_call_output") == 1


@pytest.mark.slow
async def test_a_call_that_another_process_approved_is_not_reported_as_skipped(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([Call("pay", {"amount": 7}), "Fine."])
    agent = Agent(model, tools=[pay], on_ask="defer", home=tmp_path / "home")
    async with agent.session() as chat:
        [pending] = (await chat.run("go")).pending
        async with Toolrest(tools=[pay], home=tmp_path / "home") as elsewhere:
            assert (await elsewhere.resume(pending)).text == "paid 7"
        await chat.run("Never mind.")
    assert outputs(model) == [
        "not run here: its approval was used in another process, or has expired"
    ]


# Agents of agents


async def test_an_agent_is_a_tool_of_another() -> None:
    inner = ScriptedModel([Call("pay", {"amount": 3}), '{"name": "Oslo", "people": 7}'])
    asked: list[str] = []

    def answer(request: ApprovalRequest) -> bool:
        asked.append(request.tool)
        return True

    expert = Agent(
        inner, tools=[pay], output_type=City, name="geographer", description="Knows cities."
    )
    outer = ScriptedModel([Call("geographer", {"prompt": "Where?"}), "Oslo."])
    result = await Agent(outer, tools=[expert], on_ask=answer).run("go")
    assert result.text == "Oslo."
    assert (result.turns, result.usage.total) == (2, 440), "tokens of both of them"
    assert json.loads(outputs(outer)[0]) == {"name": "Oslo", "people": 7}
    assert asked == ["pay"]
    with pytest.raises(ToolDefinitionError, match="description"):
        Agent(outer, tools=[Agent(inner)])


# What is offered, and where it is kept


def offered(rest: Toolrest) -> set[str]:
    return {found.name for found in rest.tools}


def test_offered_is_what_is_named(tmp_path: Path) -> None:
    assert offered(Toolrest(tmp_path, tools=[weather])) == {"weather"}
    assert offered(Toolrest(tmp_path, tools=[])) == set()
    assert {"weather", "read_file", "exec_command"} < offered(
        Toolrest(tmp_path, tools=[weather, "files", "shell"])
    )
    assert offered(Toolrest(tmp_path, tools=["edit_file"])) == {"edit_file"}
    assert offered(Toolrest(tmp_path, tools=["shell"])) == {"exec_command", "write_stdin"}
    assert offered(Toolrest(tmp_path, tools=["tool:shell"])) == {"shell"}
    with pytest.raises(ToolDefinitionError, match="did you mean read_file"):
        Toolrest(tmp_path, tools=["read_fil"])
    with pytest.raises(ToolDefinitionError, match=r"tools=\['files'\]"):
        Toolrest(tmp_path, tools="files")


async def test_a_toolrest_without_tools_says_how_to_name_them(tmp_path: Path) -> None:
    async with Toolrest(tmp_path) as rest:
        with pytest.warns(UserWarning, match="tools="):
            assert rest.specs("chat") == []
        assert rest.specs("chat") == []
        (tmp_path / "a").write_text("x")
        assert (await rest.call("read_file", {"file_path": "a"})).text == "L1: x"


async def test_a_model_reaches_only_what_is_offered(tmp_path: Path) -> None:
    calls = [Call("exec_command", {"cmd": "touch made"}), Call("read_file", {"file_path": "a"})]
    model = ScriptedModel([calls, "ok"])
    await Agent(model, tools=["files"], workspace=tmp_path).run("go")
    assert outputs(model)[0] == "unsupported call: exec_command (not offered here)"
    assert "not offered" not in outputs(model)[1]
    assert not (tmp_path / "made").exists()
    reply = {"type": "function_call", "call_id": "1", "name": "update_plan", "arguments": "{}"}
    async with Toolrest(tmp_path, tools=[weather]) as rest:
        [answer] = await rest.answer([reply])
        assert answer["output"] == "unsupported call: update_plan (not offered here)"
        assert (await rest.call("update_plan", {"plan": []})).success


async def test_the_home_is_private_and_gone_after_closing(tmp_path: Path) -> None:
    async with Toolrest(tmp_path, tools=[weather]) as rest:
        await rest.call("weather", {"city": "Oslo"})
        home = Path(rest.config.home)
        assert home.stat().st_mode & 0o777 == 0o700
        assert list((home / "audit").glob("*.jsonl"))
        read = await rest.call("list_dir", {"dir_path": str(home)})
        assert read.failure is not None
    assert not home.exists()


async def test_the_users_own_home_stays_closed_beside_a_temporary_one(
    tmp_path: Path, toolrest_home: Path
) -> None:
    (toolrest_home / "grants.json").write_text("secret-grant")
    async with Toolrest(tmp_path, sandbox_mode="danger-full-access") as rest:
        output = await rest.call("read_file", {"file_path": str(toolrest_home / "grants.json")})
    assert output.failure is not None
    assert "secret-grant" not in output.text


@pytest.mark.parametrize("required", [False, True])
async def test_calls_run_where_the_audit_log_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, required: bool
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "audit").write_text("in the way")
    settings = {"audit.required": required, "checkpoints.enabled": False}
    heard: list[str] = []
    with caplog.at_level(logging.WARNING, "toolrest"):
        async with Toolrest(tmp_path, tools=[weather], home=home, settings=settings) as rest:
            rest.subscribe(lambda e: heard.append(e.type))
            texts = [(await rest.call("weather", {"city": "Oslo"})).text for _ in range(2)]
    if required:
        assert all("audit log" in text for text in texts)
    else:
        assert texts == ["rain in Oslo"] * 2
        assert heard.count("warning") == 1
        assert len([r for r in caplog.records if "audit log" in r.getMessage()]) == 1


async def test_without_any_disk_calls_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = os.mkdir

    def mkdir(path: Any, *args: Any, **more: Any) -> None:
        if "toolrest-" in os.fspath(path):
            raise OSError(28, "No space left on device")
        real(path, *args, **more)

    monkeypatch.setattr(os, "mkdir", mkdir)
    async with Toolrest(tmp_path, tools=[weather]) as rest:
        assert (await rest.call("weather", {"city": "Oslo"})).text == "rain in Oslo"
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text


async def test_declared_effects_of_a_passed_function_are_judged_as_ever(tmp_path: Path) -> None:
    @tool(effects=Effects(connects=("example.org",)))
    def send() -> str:
        """Send it."""
        return "sent"

    async with Toolrest(tmp_path, tools=[send]) as rest:
        output = await rest.call("send")
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"


async def test_a_conversation_that_a_person_reads_has_text_answers(tmp_path: Path) -> None:
    """Failed before: an editor's session asked the model for the agent's typed answer."""
    agent = Agent(ScriptedModel(["four"]), workspace=tmp_path, output_type=int)
    async with agent.open_for_person() as chat:
        result = await chat.run("2 + 2?")
    assert (result.status, result.text, result.output) == ("completed", "four", "four")

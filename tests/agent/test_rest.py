"""The library as a Python user meets it: define tools, hand over replies, get answers back."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolrest import (
    ApprovalRequest,
    ConfigError,
    Context,
    Effects,
    Fatal,
    Image,
    RespondToModel,
    Text,
    Tool,
    ToolDefinitionError,
    ToolOutput,
    Toolrest,
    tool,
)
from toolrest.events import (
    Event,
    PlanUpdate,
    ToolCallBegin,
    ToolCallDecision,
    ToolCallDelta,
    ToolCallEnd,
    ToolCallProgress,
    TurnEnded,
)
from toolrest.items import FunctionCall


@tool(mutating=False)
async def echo(text: str) -> str:
    """Say it back."""
    return text


@tool(reads="path")
async def count_lines(path: Path, ctx: Context) -> str:
    """Count the lines of a text file."""
    return str(len((await ctx.read_text(path)).splitlines()))


@tool
def undeclared() -> str:
    """Declares nothing."""
    return "ran"


@tool(mutating=True)
def changes() -> str:
    """Changes something that it does not name."""
    return "ran"


async def test_the_readme_example(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    async with Toolrest(workspace=tmp_path, tools=[count_lines]) as rest:
        output = await rest.call("count_lines", {"path": "a.txt"})
    assert output.text == "3"
    assert output.success is True


def calls(wire: str) -> tuple[Any, Any]:
    """A reply with two calls, and what goes back."""
    if wire == "responses":
        reply: Any = {
            "output": [
                {"type": "reasoning", "summary": []},
                {
                    "type": "function_call",
                    "call_id": "c1",
                    "name": "echo",
                    "arguments": '{"text":"hi"}',
                },
                {"type": "function_call", "call_id": "c2", "name": "frobnicate", "arguments": "{}"},
            ]
        }
        return reply, [
            {"type": "function_call_output", "call_id": "c1", "output": "hi"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": "unsupported call: frobnicate",
            },
        ]
    if wire == "chat":
        function = {"name": "echo", "arguments": '{"text":"hi"}'}
        unknown = {"name": "frobnicate", "arguments": ""}
        reply = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": function},
                {"id": "c2", "type": "function", "function": unknown},
            ],
        }
        return reply, [
            {"role": "tool", "tool_call_id": "c1", "content": "hi"},
            {"role": "tool", "tool_call_id": "c2", "content": "unsupported call: frobnicate"},
        ]
    reply = {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "let me see"},
            {"type": "tool_use", "id": "c1", "name": "echo", "input": {"text": "hi"}},
            {"type": "tool_use", "id": "c2", "name": "frobnicate", "input": {}},
        ],
    }
    block = {"type": "tool_result", "tool_use_id": "c1", "content": "hi"}
    unknown_block = {
        "type": "tool_result",
        "tool_use_id": "c2",
        "content": "unsupported call: frobnicate",
        "is_error": True,
    }
    return reply, [{"role": "user", "content": [block, unknown_block]}]


@pytest.mark.parametrize("wire", ["responses", "chat", "anthropic"])
async def test_a_reply_is_answered_in_its_own_wire(tmp_path: Path, wire: str) -> None:
    reply, expected = calls(wire)
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        assert await rest.answer(reply) == expected
        assert await rest.answer({"role": "assistant", "content": "no calls"}) == []


@pytest.mark.parametrize("mode", ["on-request", "untrusted", "auto", "on-failure", "never"])
async def test_passing_a_function_approves_it(tmp_path: Path, mode: str) -> None:
    async with Toolrest(workspace=tmp_path, tools=[undeclared], approval_policy=mode) as rest:
        assert (await rest.call("undeclared")).text == "ran"


async def test_strict_asks_about_a_passed_function_too(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=[undeclared], approval_policy="strict") as rest:
        output = await rest.call("undeclared")
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"


async def test_a_tool_that_the_program_did_not_pass_itself_asks(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=[]) as rest:
        rest.add_tool(undeclared, approved=False)
        output = await rest.call("undeclared")
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"
    assert "on_ask" in output.text
    assert "approval_policy" in output.text


async def test_a_tool_that_only_says_that_it_changes_something_asks(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=[changes]) as rest:
        output = await rest.call("changes")
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"
    assert "on_ask" in output.text
    assert "approval_policy" in output.text


@pytest.mark.parametrize(
    ("answer", "kind"),
    [(True, None), ("approved", None), (False, "approval_denied"), ("denied", "approval_denied")],
)
async def test_an_approver_decides(tmp_path: Path, answer: Any, kind: str | None) -> None:
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Any:
        asked.append(request)
        return answer

    async with Toolrest(workspace=tmp_path, tools=[changes], on_ask=approver) as rest:
        output = await rest.call("changes")
    assert [request.tool for request in asked] == ["changes"]
    assert (output.failure.kind if output.failure else None) == kind
    if kind is None:
        assert output.text == "ran"


@pytest.mark.parametrize("answer", [None, "maybe", RuntimeError("phone is off")])
async def test_a_broken_approver_means_no(tmp_path: Path, answer: Any) -> None:
    def approver(request: ApprovalRequest) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with Toolrest(workspace=tmp_path, tools=[changes], on_ask=approver) as rest:
        output = await rest.call("changes")
    assert output.failure is not None
    assert output.failure.kind == "approval_denied"


async def test_abort_answers_the_call_and_ends_the_turn(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=[changes], on_ask=lambda _: "abort") as rest:
        ended: list[TurnEnded] = []
        rest.subscribe(lambda e: ended.append(e) if isinstance(e, TurnEnded) else None)
        async with rest.turn() as turn:
            calls = [turn.start(FunctionCall(name, "changes", {})) for name in ("first", "second")]
            first, second = [await call.output() for call in calls]
            assert turn.failure is not None
        assert first.failure is not None
        assert first.failure.kind == "approval_denied"
        # Its sibling, which waited for its turn, is answered as well, and was not run.
        assert second.failure is not None
        assert "ran" not in (first.text, second.text)
        assert [event.reason for event in ended] == ["failed"]


async def test_never_runs_what_would_ask(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=[changes], approval_policy="never") as rest:
        assert (await rest.call("changes")).text == "ran"


async def test_declared_reads_and_writes_meet_the_path_policy(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("TOKEN=1\n")

    @tool(writes="path")
    async def put(path: str, ctx: Context) -> str:
        await ctx.write_text(path, "x")
        return "ok"

    async with Toolrest(workspace=tmp_path, tools=[count_lines, put]) as rest:
        hidden = await rest.call("count_lines", {"path": ".env"})
        outside = await rest.call("put", {"path": "../outside.txt"})
        inside = await rest.call("put", {"path": "new.txt"})
    assert hidden.failure is not None
    assert hidden.failure.kind == "policy_denied"
    assert outside.failure is not None
    assert outside.failure.kind == "policy_denied"
    assert not (tmp_path.parent / "outside.txt").exists()
    assert inside.success
    assert (tmp_path / "new.txt").read_text() == "x"


async def test_a_write_is_reported_with_hashes_before_and_after(tmp_path: Path) -> None:
    @tool(writes="path")
    async def put(path: str, text: str, ctx: Context) -> str:
        await ctx.write_text(path, text)
        return "ok"

    ends: list[ToolCallEnd] = []
    async with Toolrest(workspace=tmp_path, tools=[put]) as rest:
        rest.subscribe(lambda e: ends.append(e) if isinstance(e, ToolCallEnd) else None)
        await rest.call("put", {"path": "f", "text": "1"})
        await rest.call("put", {"path": "f", "text": "2"})
    first, second = (event.files[0] for event in ends)
    assert first.before is None
    assert first.after == second.before
    assert second.after not in (None, second.before)


class Boom(Exception):
    pass


@tool(mutating=False)
def explodes() -> str:
    raise Boom("with a reason")


@tool(mutating=False)
async def tells() -> str:
    raise RespondToModel("use another way", kind="execution_failed")


@tool(mutating=False)
async def misses_a_file() -> str:
    return Path("/nonexistent/file").read_text()


@tool(mutating=False)
async def returns_nonsense() -> Any:
    return object()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("explodes", "explodes failed: Boom: with a reason"),
        ("tells", "use another way"),
        ("misses_a_file", "misses_a_file failed: No such file or directory (os error 2)"),
        ("returns_nonsense", "returns_nonsense ran, but what it returned cannot be sent"),
    ],
)
async def test_exceptions_become_error_outputs(tmp_path: Path, name: str, text: str) -> None:
    tools = [explodes, tells, misses_a_file, returns_nonsense]
    async with Toolrest(workspace=tmp_path, tools=tools) as rest:
        output = await rest.call(name)
    assert output.failure is not None
    assert output.failure.kind == "execution_failed"
    assert output.text.startswith(text)


async def test_fatal_answers_its_call_lets_siblings_finish_and_fails_the_turn(
    tmp_path: Path,
) -> None:
    @tool(mutating=False)
    async def dies() -> str:
        raise Fatal("the journal is gone")

    async with Toolrest(workspace=tmp_path, tools=[dies, echo]) as rest:
        ended: list[TurnEnded] = []
        rest.subscribe(lambda e: ended.append(e) if isinstance(e, TurnEnded) else None)
        answers = await rest.answer(
            [
                {"type": "function_call", "call_id": "1", "name": "dies", "arguments": "{}"},
                {
                    "type": "function_call",
                    "call_id": "2",
                    "name": "echo",
                    "arguments": '{"text": "still here"}',
                },
            ]
        )
        assert [answer["output"] for answer in answers] == ["the journal is gone", "still here"]
        assert [event.reason for event in ended] == ["failed"]
        assert (await rest.call("echo", {"text": "usable"})).text == "usable"


async def test_what_a_tool_may_return(tmp_path: Path) -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        value: int

    @tool(mutating=False)
    async def give(what: str) -> Any:
        return {
            "none": None,
            "dict": {"a": [1, None, "ü"]},
            "model": Answer(value=3),
            "models": [Answer(value=1)],
            "number": 4,
            "parts": [Text("see"), Image("data:image/png;base64,AAAA")],
            "output": ToolOutput.error("no"),
        }[what]

    async with Toolrest(workspace=tmp_path, tools=[give]) as rest:
        texts = {
            what: (await rest.call("give", {"what": what})).text
            for what in ("none", "dict", "model", "models", "number", "parts", "output")
        }
        assert texts == {
            "none": "(no output)",
            "dict": '{"a":[1,null,"ü"]}',
            "model": '{"value":3}',
            "models": '[{"value":1}]',
            "number": "4",
            "parts": "see",
            "output": "no",
        }
        answers = await rest.answer(
            {
                "type": "function_call",
                "call_id": "c",
                "name": "give",
                "arguments": '{"what": "parts"}',
            }
        )
        assert answers[0]["output"] == [
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        ]


async def test_streaming_tools_show_pieces_and_return_the_whole(tmp_path: Path) -> None:
    @tool(mutating=False)
    async def counts(to: int) -> AsyncIterator[str]:
        for number in range(to):
            yield f"{number}\n"

    @tool(mutating=False)
    def sync_counts(to: int) -> Iterator[str]:
        for number in range(to):
            yield f"{number}\n"

    async with Toolrest(workspace=tmp_path, tools=[counts, sync_counts]) as rest:
        for name in ("counts", "sync_counts"):
            pieces: list[str] = []
            stop = rest.subscribe(
                lambda e, pieces=pieces: (
                    pieces.append(e.text)  # type: ignore[misc]
                    if isinstance(e, ToolCallDelta)
                    else None
                )
            )
            assert (await rest.call(name, {"to": 3})).text == "0\n1\n2\n"
            stop()
            assert pieces == ["0\n", "1\n", "2\n"]
        long = await rest.call("counts", {"to": 5000})
    assert "chars truncated…" in long.text
    assert long.text.startswith("0\n1\n")
    notice = long.text.splitlines()[-1]
    assert notice.startswith("[toolrest] output cut: 23890 bytes and 5000 lines in all")


async def test_the_spilled_rest_can_be_read_with_read_file(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(3000))
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        output = await rest.call("echo", {"text": text})
        path = output.text.splitlines()[-1].split("the whole is in ")[1].split(" (read")[0]
        page = await rest.call("read_file", {"file_path": path, "offset": 2999, "limit": 2})
        assert page.text == "L2999: line 2998\nL3000: line 2999"
        assert Path(path).stat().st_mode & 0o777 == 0o600


async def test_events_come_in_order_with_begin_decision_and_end(tmp_path: Path) -> None:
    seen: list[Event] = []
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        rest.subscribe(seen.append)
        await rest.call("echo", {"text": "x", "extra": 1}, call_id="me")
    names = [event.type for event in seen]
    assert names == [
        "turn_started",
        "tool_call_begin",
        "tool_call_decision",
        "tool_call_end",
        "turn_ended",
    ]
    assert [event.seq for event in seen] == sorted(event.seq for event in seen)
    begin, decision, end = seen[1:4]
    assert isinstance(begin, ToolCallBegin)
    assert begin.unknown_fields == ("extra",)
    assert isinstance(decision, ToolCallDecision)
    assert (decision.verdict, decision.rule) == ("allow", "table.read")
    assert isinstance(end, ToolCallEnd)
    assert (end.call_id, end.success, end.bytes) == ("me", True, 1)
    assert json.loads(json.dumps(end.to_json()))["type"] == "tool_call_end"


async def test_the_event_stream_can_be_iterated(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        stream = rest.events()
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        await rest.call("echo", {"text": "x"})
        assert (await first).type == "turn_started"
        await stream.aclose()  # type: ignore[attr-defined]


async def test_a_listener_that_fails_hurts_nobody(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        rest.subscribe(lambda event: 1 / 0)  # type: ignore[arg-type]
        assert (await rest.call("echo", {"text": "x"})).text == "x"


async def test_progress_and_own_events(tmp_path: Path) -> None:
    @tool(mutating=False)
    async def works(ctx: Context) -> str:
        ctx.progress("half", 0.5)
        ctx.emit("milestone", {"at": 1})
        ctx.output("live\n")
        return "done"

    seen: list[Event] = []
    async with Toolrest(workspace=tmp_path, tools=[works]) as rest:
        rest.subscribe(seen.append)
        await rest.call("works")
    progress = [event for event in seen if isinstance(event, ToolCallProgress)]
    assert [(event.message, event.fraction) for event in progress] == [("half", 0.5)]
    assert any(event.type == "custom" for event in seen)
    assert [event.text for event in seen if isinstance(event, ToolCallDelta)] == ["live\n"]


async def test_update_plan_emits_the_plan_and_rejects_unknown_fields(tmp_path: Path) -> None:
    plan = [{"step": "look", "status": "completed"}, {"step": "fix", "status": "in_progress"}]
    seen: list[Event] = []
    async with Toolrest(workspace=tmp_path) as rest:
        rest.subscribe(seen.append)
        assert (await rest.call("update_plan", {"plan": plan})).text == "Plan updated"
        bad = await rest.call("update_plan", {"plan": [{**plan[0], "why": "x"}], "who": "me"})
        assert (await rest.call("update_plan", {"plan": []})).text == "Plan updated"
    updates = [event for event in seen if isinstance(event, PlanUpdate)]
    assert updates[0].plan == plan
    assert bad.failure is not None
    assert set(bad.failure.fields) == {"plan[0].why", "who"}


async def test_freeform_tools_take_raw_text_on_every_wire(tmp_path: Path) -> None:
    @tool(grammar='start: "go" NUMBER\nNUMBER: /[0-9]+/\n', effects=Effects.none())
    async def drive(command: str) -> str:
        """Drive."""
        return f"drove {command!r}"

    async with Toolrest(workspace=tmp_path, tools=[drive]) as rest:
        (custom,) = await rest.answer(
            {"type": "custom_tool_call", "call_id": "1", "name": "drive", "input": "go12"}
        )
        assert custom == {
            "type": "custom_tool_call_output",
            "call_id": "1",
            "output": "drove 'go12'",
        }
        (function,) = await rest.answer(
            {
                "type": "function_call",
                "call_id": "2",
                "name": "drive",
                "arguments": '{"input": "go7"}',
            }
        )
        assert function["output"] == "drove 'go7'"
        bad = await rest.call("drive", {"input": "go\nxy"})
        assert bad.failure is not None
        assert bad.failure.kind == "input_invalid"
        assert "line 1 column 3" in bad.text
        missing = await rest.call("drive", {})
        assert missing.failure is not None
        assert missing.failure.fields == ("input",)


async def test_a_wrong_payload_kind_is_an_answer(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        (answer,) = await rest.answer(
            {"type": "custom_tool_call", "call_id": "1", "name": "echo", "input": "hi"}
        )
        assert answer["type"] == "custom_tool_call_output"
        assert answer["output"].startswith("tool echo invoked with incompatible payload")
        (unknown,) = await rest.answer(
            {"type": "custom_tool_call", "call_id": "1", "name": "zzz", "input": "hi"}
        )
        assert unknown["output"] == "unsupported custom tool call: zzz"


async def test_unknown_names_suggest_the_nearest(tmp_path: Path) -> None:
    async with Toolrest(workspace=tmp_path) as rest:
        output = await rest.call("raed_file")
    assert output.failure is not None
    assert output.failure.kind == "tool_not_found"
    assert output.text == "unsupported call: raed_file (did you mean read_file?)"


async def test_overriding_a_built_in_needs_the_flag(tmp_path: Path) -> None:
    class ReadFile(Tool):
        name = "read_file"
        typical = Effects.none()

        async def run(self, args: Any, ctx: Context) -> str:
            return "mine"

    with pytest.raises(ToolDefinitionError, match="already is a tool named read_file"):
        Toolrest(workspace=tmp_path, tools=[ReadFile])
    async with Toolrest(workspace=tmp_path, tools=[ReadFile], override=["read_file"]) as rest:
        assert (await rest.call("read_file")).text == "mine"


async def test_switched_off_tools_have_no_handler(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("there\n")
    settings = {"tools.disabled": ["read_*", "echo"]}
    async with Toolrest(workspace=tmp_path, tools=[echo, "all"], settings=settings) as rest:
        names = [t.name for t in rest.tools]
        assert "list_dir" in names
        assert not {"read_file", "echo"} & set(names)
        for name, arguments in (("read_file", {"file_path": "x"}), ("echo", {"text": "hi"})):
            output = await rest.call(name, arguments)
            assert output.failure is not None
            assert output.failure.kind == "tool_not_found"
            assert "there" not in output.text


SHELLS = {
    "exec_command": {"cmd": "touch made"},
    "shell": {"command": ["touch", "made"]},
    "container.exec": {"command": ["touch", "made"]},
    "local_shell": {"command": ["touch", "made"]},
    "shell_command": {"command": "touch made"},
}
PATCHES = {
    "apply_patch": {"input": "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch"},
    "write_file": {"file_path": "made", "content": "x"},
    "edit_file": {"file_path": "made", "old_string": "", "new_string": "x"},
}


@pytest.mark.parametrize("model", [None, "gpt-5", "gpt-5.1-codex", "codex-mini-latest"])
@pytest.mark.parametrize(
    ("disabled", "calls"),
    [
        (["exec_command", "write_stdin"], SHELLS),
        (["tool:shell"], SHELLS),
        (["shell"], SHELLS),
        (["apply_patch"], PATCHES),
        (["patch"], PATCHES),
        (["write_f*"], PATCHES),
    ],
    ids=str,
)
async def test_a_capability_is_switched_off_with_all_its_forms(
    tmp_path: Path, model: str | None, disabled: list[str], calls: dict[str, dict[str, object]]
) -> None:
    settings = {"tools.disabled": disabled, "on_ask": "allow"}
    async with Toolrest(tmp_path, model=model, settings=settings) as rest:
        for name, arguments in calls.items():
            output = await rest.call(name, arguments)
            assert output.failure is not None, name
            assert output.failure.kind == "tool_not_found", name
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("disabled", "left"),
    [
        (["exec_command"], set()),
        (["tool:shell"], set()),
        (["write_stdin"], {"exec_command"}),
        ([], {"exec_command", "write_stdin"}),
    ],
)
async def test_a_part_of_a_capability_goes_with_it_and_alone(
    tmp_path: Path, disabled: list[str], left: set[str]
) -> None:
    settings = {"tools.disabled": disabled}
    async with Toolrest(tmp_path, tools=["all"], settings=settings) as rest:
        assert {tool.name for tool in rest.tools if tool.group == "shell"} == left
        output = await rest.call("write_stdin", {"session_id": 1})
        assert output.failure is not None
        assert (output.failure.kind == "tool_not_found") is ("write_stdin" not in left)


async def test_a_form_that_is_enabled_by_name_stays(tmp_path: Path) -> None:
    settings = {"tools.enabled": ["*", "write_file"], "tools.disabled": ["apply_patch"]}
    async with Toolrest(tmp_path, tools=["all"], settings=settings) as rest:
        assert "write_file" in {tool.name for tool in rest.tools}
        assert (await rest.call("write_file", {"file_path": "a", "content": "x"})).failure is None
        gone = await rest.call("apply_patch", PATCHES["apply_patch"])
        assert gone.failure is not None
        assert gone.failure.kind == "tool_not_found"


def test_groups_can_be_named(tmp_path: Path) -> None:
    only = Toolrest(tmp_path, tools=["all"], settings={"tools.enabled": ["files", "shell"]})
    names = {tool.name for tool in only.tools}
    assert names == {
        *("exec_command", "write_stdin"),
        *("glob_files", "grep_files", "list_dir", "read_file", "view_image", "apply_patch"),
    }
    without = Toolrest(tmp_path, tools=["all"], settings={"tools.disabled": ["files", "memory"]})
    assert not {tool.group for tool in without.tools} & {"read", "images", "edit", "memory"}


@pytest.mark.parametrize(
    ("key", "name", "meant"),
    [
        ("tools.disabled", "exec_comand", "exec_command"),
        ("tools.enabled", "raed_file", "read_file"),
        ("tools.disabled", "tool:shel", "shell"),
        ("tools.disabled", "exce_*", "exec_command"),
        ("agents.roles.x.disabled", "fils", "files"),
        ("tools.disabled", "ehco", "echo"),
    ],
)
def test_a_name_that_means_no_tool_is_an_error_with_the_nearest(
    tmp_path: Path, key: str, name: str, meant: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Toolrest(tmp_path, tools=[echo], settings={key: [name]})
    said = str(caught.value)
    assert said.startswith(f"{key}: there is no tool or group {name.removeprefix('tool:')!r}")
    assert f"did you mean {meant}?" in said
    Toolrest(tmp_path, tools=[echo], settings={key: ["mcp__x__y", "x/y", "echo"]})


async def test_two_instances_do_not_meet(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "name").write_text(folder.name)

    async with (
        Toolrest(workspace=one, tools=[count_lines]) as first,
        Toolrest(workspace=two, sandbox_mode="read-only") as second,
    ):
        texts = await asyncio.gather(
            first.call("read_file", {"file_path": "name"}),
            second.call("read_file", {"file_path": "name"}),
        )
        assert [output.text for output in texts] == ["L1: one", "L1: two"]
        assert (await second.call("count_lines", {"path": "name"})).failure is not None


def is_subreaper() -> bool:
    import ctypes

    found = ctypes.c_int(-1)
    get_child_subreaper = 37
    assert ctypes.CDLL(None).prctl(get_child_subreaper, ctypes.byref(found)) == 0
    return bool(found.value)


def children() -> set[str]:
    import os

    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.usefixtures("any_sandbox")
async def test_the_host_program_is_left_alone(tmp_path: Path) -> None:
    import logging
    import os
    import signal

    before = (
        os.getcwd(),
        dict(os.environ),
        [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM)],
        list(logging.getLogger().handlers),
    )
    beside = children()
    async with Toolrest(workspace=tmp_path, tools=[echo]) as rest:
        await rest.call("echo", {"text": "x"})
        assert children() <= beside  # the helper starts with the first command
        assert (await rest.call("exec_command", {"cmd": "true", "login": False})).success
        assert len(children() - beside) == 1
        assert not is_subreaper()
    assert children() <= beside
    after = (
        os.getcwd(),
        dict(os.environ),
        [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGCHLD, signal.SIGTERM)],
        list(logging.getLogger().handlers),
    )
    assert before == after


async def test_a_hundred_edits_of_one_file_in_one_batch_are_all_there(tmp_path: Path) -> None:
    @tool(writes="path")
    async def append(path: str, line: str, ctx: Context) -> str:
        """Read, wait, write back: a lost update would show."""
        try:
            old = await ctx.read_text(path)
        except FileNotFoundError:
            old = ""
        await asyncio.sleep(0)
        await ctx.write_text(path, f"{old}{line}\n")
        return "ok"

    items = [
        {
            "type": "function_call",
            "call_id": str(number),
            "name": "append",
            "arguments": json.dumps({"path": "log.txt", "line": str(number)}),
        }
        for number in range(100)
    ]
    async with Toolrest(workspace=tmp_path, tools=[append]) as rest:
        answers = await rest.answer(items)
    assert [answer["call_id"] for answer in answers] == [str(number) for number in range(100)]
    assert (tmp_path / "log.txt").read_text().split() == [str(number) for number in range(100)]


async def test_sync_tools_run_off_the_loop_and_together(tmp_path: Path) -> None:
    barrier = threading.Barrier(4, timeout=60)

    @tool(mutating=False)
    def meets() -> str:
        barrier.wait()
        return threading.current_thread().name

    async with Toolrest(workspace=tmp_path, tools=[meets]) as rest:
        outputs = await asyncio.gather(*(rest.call("meets") for _ in range(4)))
    assert all(output.success for output in outputs)
    assert threading.main_thread().name not in {output.text for output in outputs}


async def test_a_session_may_be_limited_in_calls(tmp_path: Path) -> None:
    async with Toolrest(
        workspace=tmp_path, tools=[echo], settings={"max_calls_per_session": 2}
    ) as rest:
        outputs = [await rest.call("echo", {"text": str(n)}) for n in range(3)]
    assert [output.success for output in outputs] == [True, True, False]
    assert "max_calls_per_session" in outputs[2].text


async def test_the_third_same_result_nudges_and_the_fifth_change_is_not_run(
    tmp_path: Path,
) -> None:
    @tool(mutating=True)
    def push(text: str) -> str:
        return text

    async with Toolrest(workspace=tmp_path, tools=[echo, push], on_ask=lambda _: True) as rest:
        looked = [await rest.call("echo", {"text": "again"}) for _ in range(5)]
        pushed = [await rest.call("push", {"text": "again"}) for _ in range(5)]
    for outputs in (looked, pushed):
        assert [output.text for output in outputs[:2]] == ["again", "again"]
        assert outputs[2].text.splitlines()[1].startswith("[toolrest] the same call")
    assert looked[4].success
    assert "5 times. Use the earlier result" in looked[4].text
    assert pushed[4].failure is not None
    assert pushed[4].failure.kind == "policy_denied"


async def test_redaction_reaches_output_events_and_audit(
    tmp_path: Path, toolrest_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-canary-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    seen: list[Event] = []

    @tool(mutating=False)
    async def leaks(text: str) -> AsyncIterator[str]:
        yield f"key is {secret[:9]}"
        yield secret[9:] + "\n" + "filler " * 4000

    async with Toolrest(workspace=tmp_path, tools=[leaks, echo], home=toolrest_home) as rest:
        rest.subscribe(seen.append)
        streamed = await rest.call("leaks", {"text": secret})
        plain = await rest.call("echo", {"text": secret})
    assert "[redacted:OPENAI_API_KEY]" in streamed.text
    assert plain.text == "[redacted:OPENAI_API_KEY]"
    assert secret not in json.dumps([event.to_json() for event in seen])
    stored = [path for path in toolrest_home.rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if secret in path.read_text()]


async def test_an_unwritable_audit_log_is_fatal_and_still_answered(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    ran = []

    @tool(mutating=False)
    async def runs() -> str:
        ran.append(1)
        return "x"

    workspace = tmp_path / "w"
    workspace.mkdir()
    settings = {"tool_security.audit_log_path": str(blocked / "audit")}
    async with Toolrest(workspace=workspace, tools=[runs], settings=settings) as rest:
        output = await rest.call("runs")
    assert output.failure is not None
    assert output.failure.kind == "fatal"
    assert not ran


async def test_a_mutating_call_starts_after_its_decision_is_written_and_on_its_way_to_disk(
    tmp_path: Path, toolrest_home: Path, synced: threading.Event
) -> None:
    written: list[str] = []

    def log() -> str:
        return "".join(path.read_text() for path in (toolrest_home / "audit").glob("*.jsonl"))

    @tool(effects=Effects(writes=(str(tmp_path / "f"),)))
    async def writes() -> str:
        written.append(log())
        return ""

    async with Toolrest(workspace=tmp_path, tools=[writes], home=toolrest_home) as rest:
        synced.clear()
        await rest.call("writes")
        assert await asyncio.to_thread(synced.wait, 10)
    assert '"tool":"writes","verdict":"allow"' in written[0]


def test_a_closed_session_says_so(tmp_path: Path) -> None:
    rest = Toolrest(workspace=tmp_path)
    asyncio.run(rest.aclose())
    with pytest.raises(RuntimeError, match="closed"):
        rest.turn()


def test_a_workspace_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone is not a folder"):
        Toolrest(tmp_path / "gone")


PATCH = "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch\n"


@pytest.mark.parametrize("model", [None, "gpt-5.5", "claude-sonnet"])
async def test_raw_text_is_a_freeform_tools_input(tmp_path: Path, model: str | None) -> None:
    @tool(input_format="freeform", effects=Effects.none())
    async def free(text: str) -> str:
        """Raw text."""
        return f"<{text}>"

    async with Toolrest(tmp_path, tools=[free], model=model) as rest:
        for given in ("plain text", '{"a": 1}', "[1]", "7", '"quoted"'):
            assert (await rest.call("free", given)).text == f"<{given}>"
        assert (await rest.call("free", {"input": "named"})).text == "<named>"
        assert (await rest.call("free", '{"input": "named"}')).text == "<named>"
        assert (await rest.call("apply_patch", PATCH)).failure is None
        assert (tmp_path / "made").read_text() == "x\n"
        assert rest.explain("apply_patch", PATCH).verdict == "allow"
        other = await rest.call("list_dir", "plain text")
        assert other.failure is not None
        assert other.failure.kind == "input_invalid"


def test_a_grammar_is_written_with_public_names() -> None:
    import toolrest

    class Words(toolrest.Tool):
        name = "words"
        kind = "custom"
        grammar = toolrest.Grammar("regex", "[a-z ]+")

    assert "Grammar" in toolrest.__all__
    assert Words().grammar == toolrest.Grammar("regex", "[a-z ]+")

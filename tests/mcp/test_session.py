"""MCP servers in a session: real processes, the whole gate."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.clock import Clock
from tests.mcp.conftest import call_too_slow

from toolrest import ApprovalRequest, Context, Toolrest, tool
from toolrest.agent.mcp import session
from toolrest.items import Image, Text
from toolrest.mcp import pool

Open = Callable[..., Toolrest]
Fake = Callable[..., dict[str, Any]]


async def test_a_servers_tools_join_the_registry(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"fs": fake_server()}) as rest:
        await rest.wait_for_mcp()
        names = [tool.name for tool in rest.tools if tool.mcp]
        assert names == sorted(names)
        assert "mcp__fs__echo" in names
        for wire in ("responses", "chat", "anthropic"):
            assert "mcp__fs__echo" in json.dumps(rest.specs(wire))
        for spelling in ("mcp__fs__echo", "fs/echo"):
            assert (await rest.call(spelling, {"text": "hi"})).content == "hi"


async def test_results_keep_their_parts(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"fs": fake_server()}) as rest:
        await rest.wait_for_mcp()
        image = await rest.call("fs/image")
        assert isinstance(image.content, list)
        assert isinstance(image.content[0], Text)
        assert isinstance(image.content[1], Image)
        assert image.content[1].url.startswith("data:image/png;base64,")
        failed = await rest.call("fs/fail")
        assert failed.text == "it went wrong"
        assert failed.failure is not None
        assert failed.failure.kind == "execution_failed"
        structured = await rest.call("fs/structured")
        assert (structured.text, structured.structured) == ('{"n":7}', {"n": 7})
        assert (await rest.call("fs/both")).text == 'hello\n{"n":7}'
        assert (await rest.call("fs/both")).provenance == "external"


async def test_arguments_are_checked_before_the_server_sees_them(
    open_rest: Open, fake_server: Fake
) -> None:
    async with open_rest({"fs": fake_server()}) as rest:
        await rest.wait_for_mcp()
        output = await rest.call("fs/echo", {"text": 7})
        assert output.failure is not None
        assert (output.failure.kind, output.failure.fields) == ("input_invalid", ("text",))


async def test_events_of_a_call(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"fs": fake_server()}) as rest:
        seen: list[dict[str, Any]] = []
        rest.subscribe(lambda event: seen.append(event.to_json()))
        await rest.wait_for_mcp()
        await rest.call("fs/echo", {"text": "hi"}, call_id="c1")
        await rest.call("fs/nonesuch", call_id="c2")
    states = [e["state"] for e in seen if e["type"] == "mcp_startup_update"]
    assert states == ["starting", "ready"]
    begin = next(e for e in seen if e["type"] == "mcp_tool_call_begin")
    invocation = {"server": "fs", "tool": "echo", "arguments": {"text": "hi"}}
    assert (begin["call_id"], begin["invocation"]) == ("c1", invocation)
    end = next(e for e in seen if e["type"] == "mcp_tool_call_end")
    assert end["invocation"] == invocation
    assert end["duration"] >= 0
    assert end["result"] == {"Ok": {"content": [{"type": "text", "text": "hi"}]}}
    last = [e for e in seen if e["type"] == "tool_call_end"][-1]
    assert last["failure"] == "tool_not_found"
    assert "the MCP server fs has no such tool" in last["output"]


@pytest.mark.slow
async def test_a_crash_in_a_call_is_answered_and_the_server_comes_back(
    open_rest: Open, fake_server: Fake
) -> None:
    async with open_rest({"fs": fake_server(), "other": fake_server()}) as rest:
        await rest.wait_for_mcp()
        crashed = await rest.call("fs/crash")
        assert crashed.failed
        assert "tool call failed for `fs/crash`" in crashed.text
        assert (await rest.call("other/echo", {"text": "1"})).text == "1"
        assert (await rest.call("fs/echo", {"text": "2"})).text == "2"


@pytest.mark.slow
async def test_a_timeout_tells_the_server_and_progress_extends_it(
    open_rest: Open, fake_server: Fake, clock: Clock
) -> None:
    async with open_rest({"fs": fake_server(tool_timeout_sec=60.5)}) as rest:
        await rest.wait_for_mcp()
        late = await call_too_slow(rest, clock)
        assert "timed out awaiting tools/call after 60.5s" in late.text
        cancelled = json.loads((await rest.call("fs/seen")).text)
        assert len(cancelled) == 1
        # Six steps of more than 20 s each: more than the limit, but never silent for so long.
        rest.subscribe(lambda e: clock.skip(20) if e.type == "tool_call_progress" else None)
        assert (await rest.call("fs/steps")).text == "stepped"


@pytest.mark.slow
async def test_progress_cannot_hold_a_call_for_ever(open_rest: Open, fake_server: Fake) -> None:
    row = fake_server(tool_timeout_sec=1.2, tool_timeout_max_sec=1.4)
    async with open_rest({"fs": row}) as rest:
        await rest.wait_for_mcp()
        late = await rest.call("fs/steps")
        assert late.failure is not None
        assert late.failure.kind == "timed_out"


async def test_cancelling_a_call_reaches_the_server(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"fs": fake_server()}) as rest:
        await rest.wait_for_mcp()
        began = asyncio.Event()
        rest.subscribe(lambda e: began.set() if e.type == "mcp_tool_call_begin" else None)
        call = asyncio.ensure_future(rest.call("fs/sleep", call_id="long"))
        await began.wait()
        await asyncio.sleep(0)  # the request itself is written in the next step
        assert "aborted" in (await rest.cancel("long")).text
        await call
        assert len(json.loads((await rest.call("fs/seen")).text)) == 1


async def test_list_changed(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"fs": fake_server("plain", "state")}) as rest:
        await rest.wait_for_mcp()
        assert "mcp__fs__grown" not in {tool.name for tool in rest.tools}
        before = json.dumps(rest.specs("chat"))
        assert (await rest.call("fs/grow")).text == "grown"
        await _until(lambda: "mcp__fs__grown" in {tool.name for tool in rest.tools})
        assert json.dumps(rest.specs("chat")) != before
        assert (await rest.call("fs/grown")).text == "grown"


async def test_bad_tools_are_set_aside_and_the_others_work(
    open_rest: Open, fake_server: Fake
) -> None:
    async with open_rest({"fs": fake_server("bad-tools")}) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("fs/echo", {"text": "x"})).text == "x"
        reasons = {n.removeprefix("mcp__fs__"): why for n, why in rest.quarantined.items()}
        assert reasons["bad"] == "inputSchema is a int, not an object"
        assert "two tools of this name" in reasons["echo"]
        assert "cannot be shown" in reasons["hidden\u202e"]
        assert "tool 16" in reasons
        assert "worse" in reasons
        names = {rest.wire_name(tool) for tool in rest.tools if tool.mcp}
        assert all(name.isascii() and len(name) <= 64 for name in names)


async def test_allow_and_deny_lists(open_rest: Open, fake_server: Fake) -> None:
    row = fake_server(enabled_tools=["e*", "fail"], disabled_tools=["env"])
    async with open_rest({"fs": row}, settings={"tools.disabled": ["mcp__fs__fail"]}) as rest:
        await rest.wait_for_mcp()
        assert {tool.name for tool in rest.tools if tool.mcp} == {"mcp__fs__echo"}
        assert rest.mcp is not None
        assert (await rest.call("fs/env")).failed


async def test_noise_before_the_first_message_does_no_harm(
    open_rest: Open, fake_server: Fake
) -> None:
    async with open_rest({"fs": fake_server("noisy")}) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("fs/echo", {"text": "x"})).text == "x"


@pytest.mark.slow
async def test_resources(open_rest: Open, fake_server: Fake) -> None:
    servers = {"a": fake_server(), "b": fake_server("crash")}
    async with open_rest(servers) as rest:
        one = json.loads((await rest.call("list_mcp_resources", {"server": "a"})).text)
        entry = {"server": "a", "mimeType": "text/plain", "name": "one", "uri": "memo://one"}
        assert one == {"server": "a", "resources": [entry], "nextCursor": "2"}
        every = json.loads((await rest.call("list_mcp_resources", "")).text)
        assert every["resources"] == [entry, entry]
        assert [e["server"] for e in every["errors"]] == ["b"]
        assert "cannot find my own feet" in every["errors"][0]["error"]
        templates = json.loads((await rest.call("list_mcp_resource_templates")).text)
        assert templates["resourceTemplates"][0]["uriTemplate"] == "memo://{id}"
        read = await rest.call("read_mcp_resource", {"server": "a", "uri": "memo://one"})
        contents = [{"uri": "memo://one", "text": "the text"}]
        assert json.loads(read.text) == {"server": "a", "uri": "memo://one", "contents": contents}
        cursor = await rest.call("list_mcp_resources", {"cursor": "2"})
        assert cursor.text == "cursor can only be used when a server is specified"
        unknown = await rest.call("read_mcp_resource", {"server": "zz", "uri": "x"})
        assert unknown.text.startswith("resources/read failed: resources/read failed for `zz` (x)")
        blank = await rest.call("read_mcp_resource", {"server": " ", "uri": "x"})
        assert blank.text == "server must be provided"


async def test_without_servers_there_is_nothing_to_read(tmp_path: Path) -> None:
    async with Toolrest(tmp_path) as rest:
        assert rest.mcp is None
        assert (await rest.call("list_mcp_resources")).text == '{"resources":[]}'


async def test_a_long_answer_is_cut_like_any_other(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"fs": fake_server()}) as rest:
        await rest.wait_for_mcp()
        output = await rest.call("fs/echo", {"text": "word " * 50_000})
        assert len(output.text) < 20_000
        assert any("read_file" in note for note in output.notes) or "truncated" in output.text


@pytest.mark.slow
async def test_prompts(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"a": fake_server(), "b": fake_server("crash")}) as rest:
        assert rest.mcp is not None
        found, failed = await rest.mcp.prompts()
        assert [prompt["name"] for prompt in found["a"]] == ["review"]
        assert set(failed) == {"b"}
        made = await rest.mcp.get_prompt("a", "review", {"what": "it"})
        assert made["messages"][0]["content"]["text"] == "do it"


async def test_a_tool_of_ones_own_reaches_the_pool(open_rest: Open, fake_server: Fake) -> None:
    @tool
    async def relay(text: str, ctx: Context) -> str:
        """Pass it on."""
        result = await ctx.mcp.call("fs", "echo", {"text": text})
        return str(result["content"][0]["text"])

    async with open_rest({"fs": fake_server()}, tools=[relay]) as rest:
        assert (await rest.call("relay", {"text": "hello"})).text == "hello"


async def test_calls_beside_each_other(open_rest: Open, fake_server: Fake) -> None:
    async with open_rest({"fs": fake_server(supports_parallel_tool_calls=True)}) as rest:
        await rest.wait_for_mcp()
        calls = [rest.call("fs/echo", {"text": f"number {n}"}) for n in range(50)]
        outputs = await asyncio.gather(*calls)
        assert [output.text for output in outputs] == [f"number {n}" for n in range(50)]


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.01)


async def test_hooks_see_and_stop_a_servers_tools(
    open_rest: Open, fake_server: Fake, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    told = ["/bin/sh", "-c", f"cat >> {log}; echo >> {log}"]
    stop = ["/bin/sh", "-c", "echo not this server >&2; exit 2"]
    hooks = {
        "PreToolUse": [{"command": told}, {"command": stop, "matcher": "mcp__fs__fail"}],
        "PostToolUse": [{"command": told, "matcher": "mcp__.*"}],
    }
    async with open_rest({"fs": fake_server()}, settings={"hooks": hooks}) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("fs/echo", {"text": "hi"})).text == "hi"
        assert "not this server" in (await rest.call("fs/fail")).text
    seen = [json.loads(line) for line in log.read_text().splitlines() if line]
    assert [(one["hook_event_name"], one["tool_name"]) for one in seen] == [
        ("PreToolUse", "mcp__fs__echo"),
        ("PostToolUse", "mcp__fs__echo"),
        ("PreToolUse", "mcp__fs__fail"),
    ]


async def test_a_tools_own_calls_of_servers_pass_the_gate(
    open_rest: Open, fake_server: Fake
) -> None:
    asked: list[str] = []

    @tool(mutating=False)
    async def through(text: str, ctx: Context) -> str:
        """Ask a server."""
        result = await ctx.mcp.call("fs", "echo", {"text": text})
        return json.dumps(result)

    def approver(request: ApprovalRequest) -> bool:
        asked.append(request.tool)
        return "secret" not in str(request.arguments)

    options = {"on_ask": approver, "tools": [through]}
    async with open_rest({"fs": fake_server()}, **options) as rest:
        seen: list[dict[str, Any]] = []
        rest.subscribe(lambda event: seen.append(event.to_json()))
        fine = await rest.call("through", {"text": "hi"})
        denied = await rest.call("through", {"text": "secret"})
        missing = await rest.call("fs/nonesuch")
    assert json.loads(fine.text) == {"content": [{"type": "text", "text": "hi"}]}
    assert asked == ["mcp__fs__echo"] * 2
    assert denied.failure is not None
    assert denied.failure.kind == "approval_denied"
    assert missing.failed
    assert [e["type"] for e in seen if e["type"].startswith("mcp_tool_call")] == [
        *("mcp_tool_call_begin", "mcp_tool_call_end")
    ]
    decisions = [e["verdict"] for e in seen if e["type"] == "tool_call_decision"]
    assert len(decisions) >= 4


@pytest.mark.slow
async def test_lists_do_not_wait_for_a_dead_server(
    open_rest: Open, fake_server: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "PATIENCE", 0.5)
    rows = {"dead": fake_server("hang", startup_timeout_sec=600.0), "fs": fake_server()}
    rows["gone"] = fake_server("crash")
    async with open_rest(rows) as rest:
        await rest.wait_for_mcp("fs", "gone")
        async with asyncio.timeout(60):
            listed = json.loads((await rest.call("list_mcp_resources")).text)
        assert [entry["server"] for entry in listed["resources"]] == ["fs", "fs"]
        errors = {entry["server"]: entry["error"] for entry in listed["errors"]}
        assert "still starting" in errors["dead"]
        assert "cannot find my own feet" in errors["gone"]


@pytest.mark.slow
async def test_a_required_server_is_named_while_it_is_waited_for(
    open_rest: Open, fake_server: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_PATIENCE", 0.1)
    rows = {
        "slow": fake_server("hang", required=True, startup_timeout_sec=0.5),
        "other": fake_server(),
    }
    said: list[str] = []
    async with open_rest(rows) as rest:
        rest.subscribe(lambda event: said.append(getattr(event, "message", "")))
        await rest.wait_for_mcp(required=True)
    (waits, failed) = [message for message in said if "required MCP server" in message]
    assert "waiting for the required MCP server slow (at most 0.5 s: startup_timeout_sec)" in waits
    assert "slow is not available: it did not get ready within 0.5 s" in failed


@pytest.mark.parametrize("mode", ["modern", "modern-shape"])
async def test_a_server_that_speaks_only_the_newest_protocol(
    open_rest: Open, fake_server: Fake, tmp_path: Path, mode: str
) -> None:
    """Its requests carry what they have to, and its questions are answered within a call."""
    row = fake_server(mode, str(tmp_path / "workspace" / "state"))
    async with open_rest({"fs": row}, settings={"sandbox_mode": "workspace-write"}) as rest:
        await rest.wait_for_mcp()
        assert (await rest.call("fs/echo", {"text": "hi"})).text == "hi"
        accepted = json.loads((await rest.call("fs/ask")).text)
        assert accepted == [{"action": "accept", "content": {"ok": True}}, "st"]
        roots = json.loads((await rest.call("fs/ask", {"text": "roots/list"})).text)
        assert roots[0] == {"roots": [{"uri": f"file://{tmp_path / 'workspace'}"}]}
        refused = await rest.call("fs/ask", {"text": "sampling/createMessage"})
        assert "no model is available" in refused.text


async def test_a_server_of_the_newest_protocol_says_that_its_tools_changed(
    open_rest: Open, fake_server: Fake, tmp_path: Path
) -> None:
    row = fake_server("modern", str(tmp_path / "workspace" / "state"))
    async with open_rest({"fs": row}, settings={"sandbox_mode": "workspace-write"}) as rest:
        await rest.wait_for_mcp()
        await rest.call("fs/grow")
        assert rest.mcp is not None
        while "grown" not in rest.mcp.status()[0].tools:
            await asyncio.sleep(0.01)


LOOSE: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "a list of items": ({"items": [{"type": "string"}, {"type": "number"}]}, ["a", 1], ["a", "b"]),
    "draft 4's bound": ({"type": "number", "minimum": 3, "exclusiveMinimum": True}, 4, 3),
    "required: null": ({"type": "object", "required": None}, {}, 7),
    "description: null": ({"type": "string", "description": None}, "x", 7),
    "a number in quotes": ({"type": "string", "minLength": "2"}, "xx", "x"),
    "Python's end": ({"type": "string", "pattern": r"^\d+\Z"}, "12", "12x"),
    "OpenAPI's null": ({"type": "string", "nullable": True}, None, 7),
    "properties: null": ({"type": "object", "properties": None}, {"a": 1}, 7),
    "a pattern of another language": ({"type": "string", "pattern": "(?P<a>x)(?P=a)"}, "x", 7),
    "draft 3's any": ({"type": "any"}, [7], ...),
    "an unknown dialect": ({"$schema": "https://example.com/own", "type": "string"}, "x", 7),
    "a reference and null": ({"$ref": "#/$defs/n", "nullable": True}, None, "x"),
}


@pytest.mark.parametrize("name", LOOSE)
async def test_older_and_loose_schemas_can_be_used(
    open_rest: Open, fake_server: Fake, tmp_path: Path, name: str
) -> None:
    part, fits, fails = LOOSE[name]
    schema: dict[str, Any] = {"properties": {"x": part}, "$defs": {"n": {"type": "number"}}}
    if "$schema" in part:
        schema["$schema"] = part.pop("$schema")
    listed = [{"name": "echo", "inputSchema": {"type": "object", "required": ["x"], **schema}}]
    listed.append({"name": "plain", "inputSchema": {"type": "object", "properties": None}})
    state = tmp_path / "workspace" / "tools.json"
    state.write_text(json.dumps(listed))
    async with open_rest({"fs": fake_server("listed", str(state))}) as rest:
        await rest.wait_for_mcp()
        offered = {tool.name for tool in rest.tools if tool.mcp}
        assert offered == {"mcp__fs__echo", "mcp__fs__plain"}
        assert rest.specs("chat")
        called = await rest.call("fs/echo", {"x": fits})
        assert not called.failed, called.text
        if fails is not ...:
            refused = (await rest.call("fs/echo", {"x": fails})).failure
            assert refused is not None
            assert refused.kind == "input_invalid"

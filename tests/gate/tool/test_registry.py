"""Which tool a name means, whatever wire, server, alias or override it came by."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolrest import Effects, Toolrest, tool
from toolrest.errors import RespondToModel, ToolDefinitionError
from toolrest.gate.call.understand import route
from toolrest.gate.tool.registry import Registry
from toolrest.gate.tool.tool import Tool
from toolrest.items import FunctionCall, LocalShellCall


def named(name: str, mcp: tuple[str, str] | None = None, *aliases: str) -> Tool:
    """A tool that only has names."""
    made = Tool()
    made.name, made.mcp, made.aliases, made.typical = name, mcp, aliases, Effects.none()
    return made


def test_a_wire_name_means_the_tool_that_was_offered_under_it() -> None:
    spaced, other = named("a b"), named("other", None, "a_b")
    for tools in ([spaced, other], [other, spaced]):
        registry = Registry(tools)
        assert registry.wire_name(spaced) == "a_b"
        assert registry.get("a_b") is spaced
        assert registry.get("a b") is spaced
        assert registry.get("other") is other


def test_every_wire_name_leads_back() -> None:
    tools = [
        named("do", ("srv", "do")),
        named("do", ("other", "do")),
        named("c", ("a__b", "c")),
        named("b__c", ("a", "b__c")),
        named("mcp__a.b__c", ("a.b", "c")),
        named("mcp__a_b__c"),
        named("x" * 100),
        named("gr\u00f6\u00dfe\ud800"),
    ]
    registry = Registry(tools)
    wires = [registry.wire_name(each) for each in tools]
    assert len(set(wires)) == len(tools)
    assert [registry.get(wire) for wire in wires] == tools


def test_a_servers_tool_by_each_of_its_spellings() -> None:
    mine = named("do", ("srv", "do"))
    registry = Registry([mine])
    for spelling in ("do", "srv/do", "mcp__srv__do"):
        assert registry.get(spelling) is mine
    assert registry.get("do", "mcp__srv") is mine
    assert registry.get("do", "mcp__other") is None
    registry.add(named("do", ("other", "do")))
    assert registry.get("do") is None
    plain = named("do")
    registry.add(plain)
    assert registry.get("do") is plain
    assert registry.get("srv/do") is mine


def test_a_namespace_is_taken_literally_before_it_is_made_legal() -> None:
    dotted, lined = named("c", ("a.b", "c")), named("c", ("a_b", "c"))
    registry = Registry([dotted, lined])
    assert registry.get("c", "mcp__a.b") is dotted
    assert registry.get("c", "mcp__a_b") is lined
    apart, other = named("c", ("a__b", "c")), named("b__c", ("a", "b__c"))
    registry = Registry([apart, other])
    assert registry.get("c", "mcp__a__b") is apart
    assert registry.get("b__c", "mcp__a") is other


def test_taking_an_alias_leaves_its_tool() -> None:
    first, second = named("first", None, "one", "eins"), named("one")
    registry = Registry([first])
    with pytest.raises(ToolDefinitionError, match="override=True"):
        registry.add(second)
    registry.add(second, override=True)
    assert registry.get("one") is second
    assert registry.get("first") is first
    assert registry.get("eins") is first


def test_taking_a_tools_place_keeps_its_aliases_working() -> None:
    second = named("first")
    registry = Registry([named("first", None, "one")])
    registry.add(second, override=True)
    assert registry.get("one") is registry.get("first") is second
    registry.remove("first")
    assert registry.get("one") is None
    assert len(registry) == 0


def test_a_set_aside_tool_says_why_under_each_of_its_names() -> None:
    mine = named("do it", ("srv", "do it"))
    registry = Registry([mine])
    wire = registry.wire_name(mine)
    registry.quarantine(mine, "it is broken")
    assert registry.quarantined == {"do it": "it is broken"}
    for name in ("do it", wire):
        with pytest.raises(RespondToModel, match="set aside: it is broken"):
            route(FunctionCall("1", name), registry)
    registry.add(mine)
    assert registry.quarantined == {}
    assert registry.get(wire) is mine


def test_a_wrong_namespace_is_named() -> None:
    registry = Registry([named("first")])
    with pytest.raises(RespondToModel) as caught:
        route(FunctionCall("1", "first", namespace="mcp__x"), registry)
    assert caught.value.message == (
        "unsupported call: first (there is no first in the namespace mcp__x; "
        "call it without a namespace)"
    )
    assert route(FunctionCall("1", "first", namespace="functions"), registry).tool.name == "first"


async def test_overriding_shell_leaves_the_hosted_shells_calls_alone(tmp_path: Any) -> None:
    @tool(mutating=False, name="shell")
    def mine(words: str) -> str:
        return words

    rest = Toolrest(tmp_path, model="codex-mini-latest", tools=[mine, "all"], override=True)
    async with rest:
        assert (await rest.call("shell", {"words": "mine"})).text == "mine"
        async with rest.turn() as turn:
            item = LocalShellCall("1", {"command": ["true"]})
            output = await turn.start(item).output()
        assert "unsupported" not in output.text


async def test_arguments_renamed_for_anthropic_are_translated_back(tmp_path: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a b/c": {"type": "string"}, "plain": {"type": "string"}},
        "required": ["a b/c"],
    }

    @tool(parameters=schema, mutating=False)
    def odd(**values: Any) -> str:
        return json.dumps(values, sort_keys=True)

    async with Toolrest(tmp_path, tools=[odd]) as rest:
        (spec,) = [spec for spec in rest.specs("anthropic") if spec["name"] == "odd"]
        (renamed,) = spec["input_schema"]["required"]
        assert renamed != "a b/c"
        reply = {
            "role": "assistant",
            "content": [
                {
                    "type": "tool_use",
                    "id": "1",
                    "name": "odd",
                    "input": {renamed: "x", "plain": "y"},
                }
            ],
        }
        (answer,) = await rest.answer(reply)
        assert json.loads(_text(answer)) == {"a b/c": "x", "plain": "y"}
        # Other wires know the arguments by their own names only.
        assert (await rest.call("odd", {renamed: "x"})).failure is not None
        assert (await rest.call("odd", {"a b/c": "x"})).failure is None


def _text(answer: Any) -> str:
    content = answer["content"]
    while not isinstance(content, str):
        content = content[0].get("content", content[0].get("text"))
    return str(content)

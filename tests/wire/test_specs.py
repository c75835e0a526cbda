from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from toolrest.errors import ToolDefinitionError
from toolrest.gate.tool.tool import Grammar, Tool
from toolrest.gate.tool.wire_names import is_legal
from toolrest.items import WIRES, CustomToolCall, FunctionCall, JSONObject, Wire
from toolrest.wire.items.decode import calls_in
from toolrest.wire.items.encode import dumps
from toolrest.wire.specs import FUNCTION_FORM, SpecSource, render


@dataclass
class Source:
    name: str
    description: str = "Does a thing."
    kind: str = "function"
    parameters: JSONObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    grammar: Grammar | None = None
    hosted: JSONObject | None = None
    mcp: tuple[str, str] | None = None
    annotations: JSONObject | None = None


PARAMETERS = {
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "description": "Where."},
        "limit": {"type": "integer", "minimum": 1, "default": 2000},
        "mode": {"type": "string", "enum": ["slice", "indentation"]},
    },
    "required": ["file_path"],
    "additionalProperties": False,
}
READ = Source(
    "read_file",
    "Read a file.",
    parameters=PARAMETERS,
)
PATCH = Source("apply_patch", "Edit files.", "custom", grammar=Grammar("lark", 'start: "x"'))
NOTE = Source("note", "Take a note.", "custom")
SHELL = Source("local_shell", "", "local_shell")
SEARCH = Source("web_search", "", "web_search", hosted={"external_web_access": False})
TOOLS: list[SpecSource] = [SHELL, READ, PATCH, NOTE, SEARCH]

TEXT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}
QUERY = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What to look for."}},
    "required": ["query"],
    "additionalProperties": False,
}


def specs(tools: Iterable[SpecSource], wire: Wire, **more: Any) -> list[JSONObject]:
    listed = list(tools)
    taken = {tool.name for tool in listed}
    return [render(tool, wire, taken=taken, **more) for tool in listed]


def test_responses() -> None:
    assert specs(TOOLS, "responses") == [
        {"type": "local_shell"},
        {
            "type": "function",
            "name": "read_file",
            "description": "Read a file.",
            "strict": False,
            "parameters": PARAMETERS,
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Edit files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'},
        },
        {
            "type": "custom",
            "name": "note",
            "description": "Take a note.",
            "format": {"type": "text"},
        },
        {"type": "web_search", "external_web_access": False},
    ]


def test_responses_for_models_that_prefer_functions() -> None:
    rendered = specs(TOOLS, "responses", as_functions=True)
    assert [(spec["type"], spec["name"]) for spec in rendered] == [
        ("function", "shell"),
        ("function", "read_file"),
        ("function", "apply_patch"),
        ("function", "note"),
        ("function", "web_search"),
    ]
    assert rendered[3]["parameters"] == TEXT
    assert rendered[4] == {
        "type": "function",
        "name": "web_search",
        "description": "Searches the web.",
        "strict": False,
        "parameters": QUERY,
    }
    assert render(PATCH, "responses", as_functions=True, subset="codex")["type"] == "function"


def test_chat() -> None:
    shell, read, patch, note, search = specs(TOOLS, "chat")
    assert read == {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file.",
            "strict": False,
            "parameters": PARAMETERS,
        },
    }
    assert note["function"]["parameters"] == TEXT
    assert 'start: "x"' in patch["function"]["parameters"]["properties"]["input"]["description"]
    assert search["function"]["name"] == "web_search"
    assert search["function"]["parameters"] == QUERY
    assert shell["function"]["name"] == "shell"
    assert shell["function"]["parameters"]["required"] == ["command"]
    assert all(spec["function"]["description"] for spec in (shell, search))


def test_the_hosted_shell_as_a_function_has_the_documented_arguments() -> None:
    (shell,) = specs([SHELL], "chat", subset="codex")
    found = shell["function"]["parameters"]
    assert {name: sub["type"] for name, sub in found["properties"].items()} == {
        "command": "array",
        "description": "string",
        "justification": "string",
        "prefix_rule": "array",
        "sandbox_permissions": "string",
        "timeout_ms": "number",
        "workdir": "string",
    }
    assert found["properties"]["command"]["items"] == {"type": "string"}
    assert found["additionalProperties"] is False


def test_codex_on_chat_names_a_tool_twice() -> None:
    (read,) = specs([READ], "chat", subset="codex")
    assert list(read) == ["type", "name", "function"]
    assert read["name"] == read["function"]["name"] == "read_file"
    assert read["function"]["parameters"]["properties"] == {
        "file_path": {"type": "string", "description": "Where."},
        "limit": {"type": "number"},
        "mode": {"type": "string", "description": "One of: slice, indentation."},
    }


def test_anthropic() -> None:
    rendered = specs(TOOLS, "anthropic")
    assert [spec["name"] for spec in rendered] == [
        "shell",
        "read_file",
        "apply_patch",
        "note",
        "web_search",
    ]
    assert rendered[1] == {
        "name": "read_file",
        "description": "Read a file.",
        "input_schema": PARAMETERS,
    }


def test_mcp() -> None:
    hinted = Source("f", annotations={"readOnlyHint": True})
    assert specs([hinted, NOTE], "mcp") == [
        {
            "name": "f",
            "description": "Does a thing.",
            "inputSchema": {"type": "object", "properties": {}},
            "annotations": {"readOnlyHint": True},
        },
        {"name": "note", "description": "Take a note.", "inputSchema": TEXT},
    ]


def test_the_shell_function_does_not_take_anothers_name() -> None:
    both = specs([SHELL, Source("shell")], "chat")
    assert [spec["function"]["name"] for spec in both] == ["local_shell", "shell"]


def test_hosted_tools_with_arguments_keep_them() -> None:
    own = {"type": "object", "properties": {"q": {"type": "string"}}}
    (search,) = specs([Source("web_search", kind="web_search", parameters=own)], "anthropic")
    assert search["input_schema"] == own


def test_extra_keys_never_replace_ours() -> None:
    extra = {"type": "evil", "name": "other", "defer_loading": True}
    (spec,) = specs([Source("f", hosted=extra)], "responses")
    assert (spec["type"], spec["name"], spec["defer_loading"]) == ("function", "f", True)


def test_a_bad_tool_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="bad: its schema is unusable: "):
        specs([Source("bad", parameters={"$ref": "https://example.com/schema"})], "responses")
    with pytest.raises(ToolDefinitionError, match="not a name that wires take"):
        specs([Source("not legal")], "responses")


def test_a_tool_can_be_offered_under_another_name() -> None:
    assert render(READ, "responses", name="mcp__fs__read")["name"] == "mcp__fs__read"


def test_words_of_other_servers_are_cleaned_and_cut() -> None:
    words = "Good\u200b tool. \u202e" + "x" * 10_000
    foreign = render(Source("f", words, mcp=("s", "f")), "anthropic")["description"]
    assert foreign.startswith("Good tool. x")
    assert len(foreign) == 4096
    assert len(render(Source("f", words), "anthropic")["description"]) == 10_011


@pytest.mark.parametrize("wire", WIRES)
def test_nothing_is_dropped_and_every_name_is_legal(wire: Wire) -> None:
    rendered = specs(TOOLS, wire)
    assert len(rendered) == len(TOOLS)
    for spec in rendered:
        assert is_legal(spec.get("name") or spec.get("function", spec).get("name") or spec["type"])


def test_calls_of_function_forms_come_back() -> None:
    """What a model answers to a function form carries what the tool takes."""
    (note,) = specs([NOTE], "chat")
    name = note["function"]["name"]
    field_ = note["function"]["parameters"]["required"][0]
    arguments = json.dumps({field_: "raw text"})
    reply = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    (call,) = calls_in({"role": "assistant", "tool_calls": [reply]})
    assert isinstance(call, FunctionCall)
    assert json.loads(str(call.arguments)) == {"input": "raw text"}
    assert FUNCTION_FORM["custom"].parameters["required"] == ["input"]
    assert FUNCTION_FORM["local_shell"].name == "shell"
    assert calls_in({"type": "custom_tool_call", "call_id": "c", "name": name, "input": "t"}) == [
        CustomToolCall("c", name, "t")
    ]


def test_the_gates_own_tools_are_sources() -> None:
    class Mine(Tool):
        name = "mine"
        description = "Mine."
        kind = "custom"
        grammar = Grammar("regex", "[a-z]+")

    source: SpecSource = Mine()
    assert render(source, "responses")["format"] == {
        "type": "grammar",
        "syntax": "regex",
        "definition": "[a-z]+",
    }


PROGRAM = """
from toolrest.wire.items.encode import dumps
from toolrest.wire.specs import render
class T:
    name, description, kind, grammar, hosted = "t", "T.", "function", None, None
    parameters = {"properties": {k: {"enum": sorted({"b", "a", "c"})} for k in ("z", "y", "x")},
                  "required": sorted({"x", "z"})}
print(dumps([render(T(), wire) for wire in ("responses", "chat", "anthropic", "mcp")]))
"""


def test_bytes_are_the_same_in_every_run() -> None:
    runs = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(runs) == 1, "the order is the author's own"
    assert dumps(specs(TOOLS, "chat")) == dumps(specs(list(TOOLS), "chat"))

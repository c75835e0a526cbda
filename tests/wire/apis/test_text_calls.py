from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.wire.apis.calls_in_text import text_calls

SCHEMAS: dict[str, dict[str, Any]] = {
    "read": {"properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}},
    "run": {"properties": {"cmd": {"type": "string"}, "args": {"type": "array"}}},
}
HERMES = '<tool_call>\n{"name": "read", "arguments": {"path": "a", "limit": 3}}\n</tool_call>'
QWEN = (
    "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n"
    "<parameter=limit>\n3\n</parameter>\n</function>\n</tool_call>"
)
INVOKE = (
    '<function_calls>\n<invoke name="read">\n<parameter name="path">a</parameter>\n'
    '<parameter name="limit">3</parameter>\n</invoke>\n</function_calls>'
)
FENCED = '```json\n{"name": "read", "arguments": {"path": "a", "limit": 3}}\n```'
BARE = '{"name": "read", "parameters": {"path": "a", "limit": 3}}'
BARE_XML = QWEN.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>")


@pytest.mark.parametrize("text", [HERMES, QWEN, INVOKE, FENCED, BARE, BARE_XML])
def test_every_form_is_read(text: str) -> None:
    found = text_calls(text, SCHEMAS)
    assert [(c.name, json.loads(c.arguments)) for c in found.calls] == [
        ("read", {"path": "a", "limit": 3})
    ]
    assert found.text == ""


@pytest.mark.parametrize("text", [HERMES, QWEN, INVOKE])
def test_text_before_the_calls_stays(text: str) -> None:
    found = text_calls(f"I will look.\n\n{text}\n{text}\n", SCHEMAS)
    assert found.text == "I will look."
    assert len(found.calls) == 2


def test_a_last_tag_may_be_missing() -> None:
    assert len(text_calls(HERMES.removesuffix("</tool_call>"), SCHEMAS).calls) == 1
    assert len(text_calls(QWEN.removesuffix("</tool_call>"), SCHEMAS).calls) == 1


def test_several_lines_stay_as_written() -> None:
    inside = "<parameter=cmd>\nif x:\n    y &amp;\n\n</parameter>"
    text = f"<tool_call><function=run>{inside}</function></tool_call>"
    (call,) = text_calls(text, SCHEMAS).calls
    assert json.loads(call.arguments) == {"cmd": "if x:\n    y &amp;\n"}


def test_values_have_the_types_of_the_schema() -> None:
    text = '<function=run><parameter=args>[1, "a"]</parameter></function>'
    (call,) = text_calls(text, SCHEMAS).calls
    assert json.loads(call.arguments) == {"args": [1, "a"]}


@pytest.mark.parametrize(
    "text",
    [
        HERMES.replace("read", "unknown"),
        QWEN.replace("=read", "=unknown"),
        f"{HERMES}\nThat is how a call looks.",
        f"Use this:\n{FENCED}",
        f"{FENCED}\nand so on",
        '{"name": "read"',
        '{"path": "a"}',
        "<tool_call>rm -rf /</tool_call>",
        "plain words",
        HERMES + HERMES.replace("read", "unknown"),
        "",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert text_calls(text, SCHEMAS) == (text, [])


def test_nothing_is_a_call_when_no_tool_was_offered() -> None:
    assert text_calls(HERMES, {}).calls == []


pieces = st.sampled_from(
    [HERMES, QWEN, INVOKE, FENCED, BARE, "<tool_call>", "</tool_call>", "<function=read>", "{", "x"]
)


@given(st.lists(pieces | st.text(max_size=4), max_size=6))
def test_calls_are_always_of_offered_tools(parts: list[str]) -> None:
    found = text_calls("".join(parts), SCHEMAS)
    for call in found.calls:
        assert call.name in SCHEMAS
        assert isinstance(json.loads(call.arguments), dict)


@pytest.mark.parametrize(
    "text",
    [
        " " * 900_000 + "x",
        "<tool_call>" * 80_000,
        "<function=" * 80_000,
        '<invoke name="' * 60_000,
        "```" * 300_000,
        "<parameter=a>" * 70_000,
    ],
)
def test_long_nonsense_is_quick(text: str) -> None:
    assert_effort(lambda: text_calls(text, SCHEMAS), below=250)

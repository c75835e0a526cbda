"""Raw text is checked before a tool sees it, in bounded time and with a place for the problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.clock import assert_effort

from toolrest import Context, Effects, ToolDefinitionError, Toolrest, tool
from toolrest.errors import RespondToModel
from toolrest.gate.tool.freeform import (
    CHECKED_CHARACTERS,
    EARLEY_CHARACTERS,
    check_freeform,
    compile_grammar,
)
from toolrest.gate.tool.tool import Grammar, Tool

LINES = """
start: line+
line: WORD (" " WORD)* NL
WORD: /[a-z]+/
NL: "\\n"
"""
AMBIGUOUS = 'start: a\na: a a | b b | "x"\nb: a | "x"'


def takes(grammar: Grammar | str) -> Tool:
    @tool(grammar=grammar, mutating=False)
    def freeform(text: str) -> str:
        return text

    return freeform


def refusal(grammar: Grammar | str, text: str) -> str:
    with pytest.raises(RespondToModel) as caught:
        check_freeform(takes(grammar), text)
    assert caught.value.kind == "input_invalid"
    assert caught.value.fields == ("input",)
    return caught.value.message


@pytest.mark.parametrize(
    ("grammar", "text", "words"),
    [
        (LINES, "ab cd\nef 5\n", "does not follow the grammar at line 2 column 4"),
        (LINES, "ab", "line 1 column"),
        (Grammar("regex", r"(?:[a-z]+\n)+"), "ab\ncd\n5", "at line 3 column 1"),
        (Grammar("regex", r"[a-z]+\d"), "5", "at line 1 column 1"),
        (LINES, "\ud800", "not valid UTF-8 at line 1 column 1"),
    ],
)
def test_a_problem_has_a_place(grammar: Grammar | str, text: str, words: str) -> None:
    assert words in refusal(grammar, text)


def test_a_text_is_not_refused_for_a_shortcut_of_the_parser() -> None:
    check_freeform(takes('start: "a"* "a"'), "aaa")
    assert "line 1 column 2" in refusal('start: "a"* "a"', "ab")


@pytest.mark.parametrize(
    ("grammar", "unit", "limit"),
    [
        (LINES, "hello you\n", CHECKED_CHARACTERS),
        (Grammar("regex", r"[a-z \n]*"), "hello you\n", CHECKED_CHARACTERS),
        (AMBIGUOUS, "x", EARLEY_CHARACTERS),
    ],
)
def test_what_is_too_long_to_check_is_refused_with_the_limit(
    grammar: Grammar | str, unit: str, limit: int
) -> None:
    message = refusal(grammar, unit * (limit // len(unit) + 1))
    assert f"up to {limit} characters" in message
    if limit == CHECKED_CHARACTERS:
        check_freeform(takes(grammar), unit * (limit // len(unit)))


@pytest.mark.slow
def test_a_grammar_with_endless_readings_gives_up_in_time() -> None:
    check_freeform(takes(AMBIGUOUS), "x" * 5)
    said: list[str] = []
    assert_effort(lambda: said.append(refusal(AMBIGUOUS, "x" * 2000)), below=400)
    assert "too many readings" in said[0]


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        (Grammar("regex", "(a"), "bad pattern"),
        (Grammar("regex", "(a+)+b"), "repeats a repeat"),
        (Grammar("regex", "a*a*a*b"), "has too many ways"),
        (Grammar("lark", "start: (((("), "bad Lark grammar"),
        (Grammar("lark", "start: /(a/"), "bad Lark grammar"),
        (Grammar("lark", "start: A+\nA: /(x+)+y/"), "bad Lark grammar: A repeats a repeat"),
        (Grammar("lark", "nothing: WHERE"), "bad Lark grammar"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_a_definition_error(grammar: Grammar, words: str) -> None:
    with pytest.raises(ToolDefinitionError, match=words.replace("(", ".")) as caught:
        compile_grammar(grammar)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wire", ["responses", "chat", "anthropic", "mcp"])
async def test_a_bad_definition_is_set_aside_when_tools_are_offered(
    tmp_path: Path, wire: Any
) -> None:
    bad = takes("start: ((((")

    @tool(parameters={"type": "object", "$ref": "http://127.0.0.1:9/x"}, mutating=False)
    def remote(**values: Any) -> str:
        return str(values)

    async with Toolrest(tmp_path, tools=[bad, remote, "files"]) as rest:
        specs = rest.specs(wire)
        assert specs
        assert not {spec.get("name") for spec in specs} & {"freeform", "remote"}
        assert "bad Lark grammar" in rest.quarantined["freeform"]
        assert "remote" in rest.quarantined
        output = await rest.call("freeform", {"input": "x"})
        assert "set aside: freeform: bad Lark grammar" in output.text


class Shouting(Tool):
    """Takes capitals only."""

    name = "shout"
    description = "Say it loudly."
    kind = "custom"
    typical = Effects.none()
    max_input_bytes = 20

    def check(self, text: str) -> str | None:
        return None if text.isupper() else "line 1 column 1: expected capitals"

    async def run(self, args: Any, ctx: Context) -> str:
        return f"{args}!"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("HEY", "HEY!"),
        ("hey", "line 1 column 1: expected capitals"),
        ("A" * 21, "20"),
        ("Ü" * 11, "20"),
        ("A\ud800", "UTF-8"),
    ],
)
async def test_text_is_checked_before_it_runs(tmp_path: Path, text: str, answer: str) -> None:
    async with Toolrest(tmp_path, tools=[Shouting]) as rest:
        item = {"type": "custom_tool_call", "call_id": "1", "name": "shout", "input": text}
        (output,) = await rest.answer(item)
    assert answer in output["output"]
    assert ("!" in output["output"]) is (text == "HEY")

"""Whatever a tool returns becomes an output that every wire can send, or says why not."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

import toolrest
from toolrest import Toolrest, tool
from toolrest.errors import RespondToModel
from toolrest.gate.output.result import to_output

# As a tool's author has them who does not check types.
ToolOutput: Any = toolrest.ToolOutput
Text: Any = toolrest.Text
Image: Any = toolrest.Image


@dataclass
class Pair:
    left: float
    right: list[float]


class Point(Struct):
    x: float
    pairs: list[Pair]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (math.nan, None),
        ({"a": [math.inf, -math.inf, 1.5]}, {"a": [None, None, 1.5]}),
        (Pair(math.nan, [2.0]), {"left": None, "right": [2.0]}),
        (Point(1.0, [Pair(2.0, [])]), {"x": 1.0, "pairs": [{"left": 2.0, "right": []}]}),
        ({"NaN": "Infinity"}, {"NaN": "Infinity"}),
    ],
)
def test_what_json_has_no_number_for_is_null(value: Any, wanted: Any) -> None:
    def refuse(name: str) -> Any:
        raise AssertionError(name)

    assert json.loads(to_output(value, "t").text, parse_constant=refuse) == wanted


def circle() -> list[Any]:
    around: list[Any] = [math.nan]
    around.append(around)
    return around


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (ToolOutput(content=["a"]), "`content[0]` must be a Text or an Image of a string, not str"),
        (ToolOutput(content=[Text("a"), {"type": "text"}]), "`content[1]`"),
        (ToolOutput(content=[Text(5)]), "`content[0]`"),
        (ToolOutput(content=[Image(b"x")]), "`content[0]`"),
        (ToolOutput(content=None), "`content` must be text or a list"),
        (ToolOutput(content={"a": 1}), "not dict"),
        (ToolOutput(notes=[1]), "`notes` must be a list of strings"),
        (ToolOutput(metadata=[]), "`metadata` must be a dict"),
        (ToolOutput(failure="bad"), "`failure` must be a Failure"),
        ([Text(None)], "`content[0]`"),
        (object(), "a object is not a JSON value"),
        (circle(), "ircular"),
    ],
)
async def test_what_cannot_be_sent_is_a_failure_that_says_why(
    tmp_path: Path, value: Any, words: str
) -> None:
    with pytest.raises(RespondToModel):
        to_output(value, "odd")

    @tool(mutating=False)
    def odd() -> Any:
        return value

    async with Toolrest(tmp_path, tools=[odd]) as rest:
        output = await rest.call("odd")
        assert output.failure is not None
        assert output.failure.kind == "execution_failed"
        assert output.text.startswith("odd ran, but what it returned cannot be sent: ")
        assert words in output.text
        item = {"type": "function_call", "call_id": "1", "name": "odd", "arguments": "{}"}
        (answer,) = await rest.answer([item])
        assert words in answer["output"]

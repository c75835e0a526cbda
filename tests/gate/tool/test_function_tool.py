"""Tools as users write them: what the signature, the docstring and the options turn into."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, BaseModel, Field

from toolrest import Context, Effects, Risk, ToolDefinitionError, tool
from toolrest.errors import RespondToModel
from toolrest.gate.tool.decorator import as_tool
from toolrest.gate.tool.tool import Tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


class Aliased(BaseModel):
    seconds: int = Field(validation_alias=AliasChoices("seconds", "timeout"))


@tool
async def everything(
    name: str,
    count: int,
    ratio: float = 0.5,
    colour: Colour = Colour.RED,
    mode: Literal["fast", "slow"] = "fast",
    where: Point | None = None,
    tags: list[str] | None = None,
    note: Annotated[str, Field(description="Said with Field.")] = "",
) -> str:
    """Do everything.

    It has a second paragraph.

    Args:
        name: Who it is for.
        count: How many times.
        note: Said in the docstring.
    """
    return f"{name} {count} {ratio} {colour} {mode} {where} {tags} {note}"


def test_schema_comes_from_the_signature_and_words_from_the_docstring() -> None:
    assert everything.name == "everything"
    assert everything.description == "Do everything.\n\nIt has a second paragraph."
    schema = everything.parameters
    properties = schema["properties"]
    assert schema["required"] == ["name", "count"]
    assert schema["additionalProperties"] is False
    assert properties["name"] == {"type": "string", "description": "Who it is for."} | {
        key: value for key, value in properties["name"].items() if key == "title"
    }
    assert properties["count"]["type"] == "integer"
    assert properties["mode"]["enum"] == ["fast", "slow"]
    assert properties["colour"]["enum"] == ["red", "blue"]
    assert properties["ratio"]["default"] == 0.5
    assert properties["where"]["properties"]["x"]["type"] == "integer"
    assert properties["tags"]["items"] == {"type": "string"}
    assert properties["note"]["description"] == "Said with Field."


def problem(raw: Any, of: Tool = everything) -> RespondToModel:
    with pytest.raises(RespondToModel) as caught:
        of.decode(raw)
    assert caught.value.kind == "input_invalid"
    assert caught.value.message.startswith("failed to parse function arguments: ")
    return caught.value


def test_every_wrong_field_is_named_with_what_was_expected() -> None:
    error = problem(
        '{"count": "3", "colour": "green", "where": {"y": null}, "tags": [1], "mode": 5}'
    )
    assert set(error.fields) == {"name", "count", "colour", "where.x", "where.y", "tags[0]", "mode"}
    assert "missing field `name`" in error.message
    assert '`count`: expected an integer, got string "3"' in error.message
    assert "`colour`: expected one of 'red' or 'blue', got string \"green\"" in error.message
    assert "missing field `where.x`" in error.message
    assert "`where.y`: expected an integer, got null" in error.message
    assert "`tags[0]`: expected a string, got number 1" in error.message


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"name": "a",', "not valid JSON"),
        ("[]", "expected a JSON object, got an array of 0"),
        ('"text"', 'expected a JSON object, got string "text"'),
        ("null", "expected a JSON object, got null"),
        ("{" * 100_000, "not valid JSON"),
        ('{"name": "a", "count": 1.5}', "expected an integer, got number 1.5"),
        ('{"name": "a", "count": true}', "expected an integer, got true"),
        ('{"name": "a", "count": null}', "expected an integer, got null"),
        ('{"name": 1, "count": 1}', "expected a string, got number 1"),
        ('{"name": "a", "count": 1, "ratio": "0.1"}', "expected a number"),
    ],
)
def test_what_is_no_argument_object_is_said_plainly(raw: str, words: str) -> None:
    assert words in problem(raw).message


def test_nothing_is_coerced_but_a_float_without_fraction_is_an_integer() -> None:
    args = everything.decode('{"name": "a", "count": 2.0, "where": {"x": 1.0}}').args
    assert (args.count, type(args.count)) == (2, int)
    assert args.where == Point(x=1)


def test_unknown_fields_are_ignored_and_named() -> None:
    decoded = everything.decode('{"name": "a", "count": 1, "colr": "red", "x": 2}')
    assert decoded.unknown == ("colr", "x")


def test_unknown_fields_are_named_however_deep() -> None:
    @tool(mutating=False)
    def deep(points: list[Point], by_name: dict[str, Point] | None = None, plain: int = 0) -> str:
        return f"{points} {by_name} {plain}"

    decoded = deep.decode(
        '{"points": [{"x": 1}, {"x": 1, "z": 2}], "by_name": {"a": {"x": 1, "zz": 1}}, "top": 1}'
    )
    assert set(decoded.unknown) == {"points[1].z", "by_name.a.zz", "top"}
    assert everything.decode('{"name": "a", "count": 1, "where": {"x": 1, "foo": 1}}').unknown == (
        "where.foo",
    )


def test_a_field_under_its_other_name_is_known() -> None:
    class Takes(Tool):
        name = "takes"

        class Args(BaseModel):
            inner: Aliased | None = None
            outer: int = Field(default=0, alias="out")

    made = Takes()
    assert made.decode('{"inner": {"timeout": 1}, "out": 2}').unknown == ()
    assert made.decode('{"inner": {"time": 1, "seconds": 1}}').unknown == ("inner.time",)


def test_optional_takes_null_and_a_mere_default_does_not() -> None:
    assert everything.decode('{"name": "a", "count": 1, "where": null}').args.where is None
    assert problem('{"name": "a", "count": 1, "ratio": null}').fields == ("ratio",)


def test_blank_arguments_are_an_empty_object() -> None:
    assert problem("").fields == ("name", "count")
    assert problem("  \n").fields == ("name", "count")


def test_local_classes_can_be_used_in_hints() -> None:
    class Local(BaseModel):
        value: int

    @tool(mutating=False)
    def takes_local(local: Local) -> str:
        return str(local.value)

    assert takes_local.decode('{"local": {"value": 3}}').args.local.value == 3


@pytest.mark.parametrize(
    ("options", "risk", "mutating", "alone", "serial_parallel"),
    [
        ({}, Risk.EXECUTE, True, True, False),
        ({"mutating": False}, Risk.READ, False, False, True),
        ({"mutating": True}, Risk.EXECUTE, True, True, False),
        ({"reads": "path"}, Risk.READ, False, False, True),
        ({"writes": "path"}, Risk.WRITE, True, False, False),
        ({"connects": "path"}, Risk.WRITE, True, False, True),
        ({"effects": Effects.none(), "parallel": False}, Risk.READ, False, True, False),
        ({"parallel": True}, Risk.EXECUTE, True, False, True),
        ({"reads": "path", "mutating": True}, Risk.EXECUTE, True, True, False),
        ({"writes": "path", "mutating": True}, Risk.WRITE, True, False, False),
        ({"writes": "path", "mutating": False}, Risk.WRITE, True, False, False),
        ({"reads": "path", "effects": Effects(runs=(("rm",),))}, Risk.EXECUTE, True, True, False),
        ({"mutating": False, "risk": "critical"}, Risk.CRITICAL, False, False, True),
    ],
)
def test_what_the_options_declare(
    options: dict[str, Any], risk: Risk, mutating: bool, alone: bool, serial_parallel: bool
) -> None:
    def touch(path: str) -> str:
        return path

    made = tool(**options)(touch)
    assert made.level(made.typical) == risk
    assert made.typical.mutating is mutating
    assert made.typical.runs_alone is alone
    assert made.parallel is serial_parallel


def test_a_risk_override_never_lowers() -> None:
    made = tool(risk="read")(lambda: "x")
    assert made.level(made.typical) == Risk.EXECUTE


def no_hint(path) -> str:  # type: ignore[no-untyped-def]
    return str(path)


def starred(*paths: str) -> str:
    return str(paths)


def positional(path: str, /) -> str:
    return path


@pytest.mark.parametrize(
    ("function", "options", "words"),
    [
        (no_hint, {}, "`path` has no type hint"),
        (starred, {}, "`paths` cannot be given by name"),
        (positional, {}, "`path` cannot be given by name"),
        (lambda: "", {"reads": "nope"}, "`nope`, which is not one of its parameters"),
        (lambda: "", {"risk": "huge"}, "risk must be one of read, write, execute, critical"),
        (lambda: "", {"input_format": "freeform"}, "exactly one parameter"),
        (lambda: "", {"parameters": []}, "parameters must be a JSON Schema"),
    ],
)
def test_a_tool_that_cannot_work_is_refused_with_the_reason(
    function: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=words.replace("`", ".")):
        tool(**options)(function)


def test_unresolvable_hints_are_refused() -> None:
    def broken(value: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
        return str(value)

    with pytest.raises(ToolDefinitionError, match="cannot read its type hints"):
        tool(broken)


def test_the_function_can_still_be_called_directly() -> None:
    @tool(mutating=False)
    def double(number: int) -> int:
        """Twice."""
        return 2 * number

    assert double(4) == 8


def test_as_tool_takes_functions_classes_and_tools() -> None:
    class Mine(Tool):
        name = "mine"

    assert as_tool(Mine).name == "mine"
    assert as_tool(Mine()).name == "mine"
    assert as_tool(positional_free).name == "positional_free"
    with pytest.raises(ToolDefinitionError, match="not int"):
        as_tool(3)


def positional_free(path: Path, ctx: Context) -> str:
    """A path."""
    return f"{path} {ctx.cwd}"


def test_a_raw_schema_replaces_the_signature() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}, "s": {"type": "string"}},
        "required": ["n"],
    }

    @tool(parameters=schema, mutating=False)
    def raw(**arguments: Any) -> Any:
        """Raw."""
        return arguments

    assert raw.parameters["properties"]["n"]["minimum"] == 1
    assert raw.decode('{"n": 2}').args == {"n": 2}
    error = problem('{"n": 0, "s": 5}', raw)
    assert set(error.fields) == {"n", "s"}


def test_a_nullable_parameter_may_be_left_out() -> None:
    @tool(mutating=False)
    def nullable(required: int | None, point: Point | None, name: str) -> str:
        """Nullable."""
        return f"{required} {point} {name}"

    assert nullable.parameters["required"] == ["name"]
    args = nullable.decode('{"name": "x"}').args
    assert (args.required, args.point) == (None, None)
    assert problem("{}", nullable).fields == ("name",)


def test_a_missing_field_of_a_raw_schema_is_named_by_its_own_path() -> None:
    inner = {"type": "object", "properties": {"z": {"type": "string"}}, "required": ["z"]}
    schema = {"type": "object", "properties": {"n": {}, "o": inner}, "required": ["n"]}

    @tool(parameters=schema, mutating=False)
    def raw(**arguments: Any) -> Any:
        """Raw."""
        return arguments

    assert set(problem('{"o": {}}', raw).fields) == {"n", "o.z"}


def test_a_long_string_is_never_shown_in_part() -> None:
    secret = "s3cr3t" * 10
    error = problem({"name": "a", "count": secret})
    assert "got a string of 60 characters" in error.message
    assert "s3cr3t" not in error.message

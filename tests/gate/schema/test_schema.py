from __future__ import annotations

import copy
import json
import os
from typing import Any, Literal

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests.clock import assert_effort

from toolrest.errors import ToolDefinitionError
from toolrest.gate.schema.for_wire import argument_names, clean_text, for_wire, normalise
from toolrest.gate.schema.optional_nulls import fill_nulls
from toolrest.items import WIRES, JSONObject, Wire

FULL = os.environ.get("TOOLREST_TEST_FULL") == "1"
thorough = settings(max_examples=3000 if FULL else 300)


def one(schema: object) -> Any:
    """The normal form of a schema in the place of one property."""
    normal = normalise({"type": "object", "properties": {"x": schema}})
    return normal["properties"].get("x")


# What one property becomes


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, {}),
        ({}, {}),
        (False, None),
        ({"description": "anything"}, {"description": "anything"}),
        ({"type": "integer"}, {"type": "integer"}),
        ({"type": ["string", "null"]}, {"type": "string"}),
        ({"type": ["integer", "number"]}, {"type": "number"}),
        ({"type": ["string", "bogus"]}, {"type": "string"}),
        ({"type": "null"}, None),
        ({"type": ["null"]}, None),
        ({"type": "string", "nullable": True}, {"type": "string"}),
        (
            {"type": ["string", "integer"], "minLength": 1, "minimum": 2, "description": "d"},
            {
                "description": "d",
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "integer", "minimum": 2},
                ],
            },
        ),
    ],
)
def test_types(schema: object, expected: object) -> None:
    assert one(schema) == expected


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({"properties": {}}, "object"),
        ({"required": []}, "object"),
        ({"additionalProperties": False}, "object"),
        ({"items": {}}, "array"),
        ({"prefixItems": [{}]}, "array"),
        ({"format": "date"}, "string"),
        ({"pattern": "a"}, "string"),
        ({"minimum": 1}, "number"),
        ({"multipleOf": 2}, "number"),
        ({"enum": ["a", "b"]}, "string"),
        ({"enum": [1, 2]}, "integer"),
        ({"enum": [1, 2.5]}, "number"),
        ({"enum": [True, False]}, "boolean"),
        ({"enum": ["a", None]}, "string"),
        ({"const": "a"}, "string"),
        ({"const": 7}, "integer"),
        ({"enum": [{"a": 1}]}, "object"),
    ],
)
def test_missing_type_is_inferred(schema: JSONObject, type_: str) -> None:
    assert one(schema)["type"] == type_


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"type": "string", "enum": ["a", 1, None, "a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "string", "enum": [1]}, {"type": "string"}),
        ({"enum": [None]}, None),
        ({"enum": []}, {}),
        (
            {"enum": ["a", 1]},
            {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "integer", "enum": [1]}]},
        ),
        ({"enum": [1, True]}, {"anyOf": [{"type": "integer", "enum": [1]}]}),
        (
            {"oneOf": [{"const": "a"}, {"const": "b"}, {"const": "a"}]},
            {"type": "string", "enum": ["a", "b"]},
        ),
    ],
)
def test_values(schema: JSONObject, expected: Any) -> None:
    if schema == {"enum": [1, True]}:
        expected = {
            "anyOf": [{"type": "integer", "enum": [1]}, {"type": "boolean", "enum": [True]}]
        }
    assert one(schema) == expected


def test_described_constants_stay_apart() -> None:
    branches = [{"const": "a", "description": "first"}, {"const": "b", "title": "Second"}]
    assert one({"oneOf": branches}) == {
        "anyOf": [
            {"type": "string", "description": "first", "enum": ["a"]},
            {"type": "string", "description": "Second", "enum": ["b"]},
        ]
    }


def test_keywords_that_survive() -> None:
    kept = {
        "type": "integer",
        "description": "d",
        "enum": [1, 2],
        "format": "int32",
        "minimum": 0,
        "maximum": 9,
        "multipleOf": 1,
        "default": 1,
        "examples": [1],
        "deprecated": True,
    }
    assert one({**kept, "$comment": "c", "readOnly": True, "x-order": 1, "not": {}}) == kept


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "number", "minimum": "1"}, {"type": "number"}),
        ({"type": "number", "minimum": float("nan")}, {"type": "number"}),
        ({"type": "number", "minimum": 10**5000}, {"type": "number"}),
        ({"type": "string", "minLength": -1}, {"type": "string"}),
        ({"type": "string", "minLength": True}, {"type": "string"}),
        ({"type": "string", "pattern": 5, "format": []}, {"type": "string"}),
        ({"type": "string", "minimum": 3}, {"type": "string"}),
        (
            {"type": "number", "minimum": 3, "exclusiveMinimum": True},
            {"type": "number", "exclusiveMinimum": 3},
        ),
        ({"type": "string", "description": 5, "default": None}, {"type": "string"}),
        ({"type": "string", "default": {1: 2}}, {"type": "string"}),
        ({"type": "string", "default": b"x"}, {"type": "string"}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"type": "array", "items": False}, {"type": "array", "items": {}}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": None}, {"type": "object", "properties": {}}),
    ],
)
def test_odd_values_are_dropped_not_passed_on(schema: JSONObject, expected: JSONObject) -> None:
    assert one(schema) == expected


def test_titles_count_only_when_they_say_something() -> None:
    assert one({"type": "string", "title": "X"}) == {"type": "string"}
    assert one({"type": "string", "title": "Real words"})["description"] == "Real words"
    assert one({"type": "string", "title": "T", "description": "d"})["description"] == "d"


# Optional, alternatives, all of


def test_null_becomes_optional() -> None:
    normal = normalise(
        {
            "type": "object",
            "properties": {
                "a": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "outer"},
                "b": {"type": ["integer", "null"]},
                "c": {"oneOf": [{"$ref": "#/$defs/C"}, {"type": "null"}]},
                "d": {"type": "string"},
            },
            "required": ["a", "b", "c", "d"],
            "$defs": {"C": {"type": "string", "description": "inner", "enum": ["x"]}},
        }
    )
    assert normal == {
        "type": "object",
        "properties": {
            "a": {"type": "string", "description": "outer"},
            "b": {"type": "integer"},
            "c": {"type": "string", "description": "inner", "enum": ["x"]},
            "d": {"type": "string"},
        },
        "required": ["d"],
    }


def test_no_required_list_when_nothing_is_required() -> None:
    assert "required" not in normalise({"type": "object", "required": []})


def test_required_names_are_declared() -> None:
    normal = normalise({"properties": {"b": {"type": "string"}}, "required": ["z", "b", "z", 4]})
    assert normal["properties"] == {"b": {"type": "string"}, "z": {}}
    assert normal["required"] == ["z", "b"]


def test_all_of_is_merged_and_the_first_wins_where_parts_differ() -> None:
    schema = {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
            {"properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "string"}}},
            {"properties": {"a": {"minimum": 5}}, "required": ["b"]},
        ],
        "description": "both",
    }
    assert one(schema) == {
        "type": "object",
        "description": "both",
        "properties": {"a": {"type": "number", "minimum": 5}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }


def test_reference_with_siblings() -> None:
    schema = {
        "properties": {"x": {"$ref": "#/definitions/D", "description": "mine", "default": "q"}},
        "definitions": {"D": {"type": "string", "description": "theirs", "title": "D"}},
    }
    expected = {"type": "string", "description": "mine", "default": "q"}
    assert normalise(schema)["properties"]["x"] == expected


def test_object_with_alternative_requirements_is_one_object() -> None:
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "url": {"type": "string"}},
        "required": ["path"],
        "anyOf": [{"required": ["url"]}, {"properties": {"depth": {"type": "integer"}}}],
    }
    assert normalise(schema) == {
        "type": "object",
        "properties": {
            "depth": {},  # the first alternative lets it be anything
            "path": {"type": "string"},
            "url": {"type": "string"},
        },
        "required": ["path"],
    }


def test_the_tool_speaks_for_the_whole() -> None:
    words = {"title": "Args", "description": "d", "default": {}, "examples": [{}], "enum": [{}]}
    assert normalise({"type": "object", **words}) == {"type": "object", "properties": {}}


def test_top_level_alternatives_become_one_object() -> None:
    schema = {
        "oneOf": [
            {
                "type": "object",
                "properties": {"op": {"const": "add"}, "n": {"type": "integer"}},
                "required": ["op", "n"],
            },
            {
                "type": "object",
                "properties": {"op": {"const": "drop"}, "n": {"type": "string"}},
                "required": ["op"],
            },
            {"type": "string"},
        ]
    }
    assert normalise(schema) == {
        "type": "object",
        "properties": {
            "n": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "op": {"type": "string", "enum": ["add", "drop"]},
        },
        "required": ["op"],
    }


def test_tuples_keep_their_places() -> None:
    old = {"type": "array", "items": [{"type": "string"}], "additionalItems": False}
    expected = {
        "type": "array",
        "maxItems": 1,
        "prefixItems": [{"type": "string"}],
        "items": {},
    }
    assert one(old) == expected
    assert one(expected) == expected


def test_pattern_properties_are_not_forbidden() -> None:
    patterned = {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}
    assert one(patterned) == {"type": "object", "properties": {}}


# Recursion and references


def test_recursion_is_cut_with_a_note() -> None:
    schema = {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "value": {"type": "integer"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
                },
                "required": ["value"],
            }
        },
    }
    children = normalise(schema)["properties"]["children"]["items"]
    assert children == {
        "type": "object",
        "description": "Recursive: Node again.",
        "properties": {},
    }


def test_references_in_a_circle_say_nothing() -> None:
    schema = {
        "properties": {"x": {"$ref": "#/$defs/A"}, "self": {"$ref": "#"}},
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
    }
    normal = normalise(schema)
    assert normal["properties"]["x"] == {"description": "Recursive: A again."}
    assert normal["properties"]["self"]["type"] == "object"


def test_escaped_pointers() -> None:
    schema = {
        "properties": {"x": {"$ref": "#/$defs/a~1b%20c~0"}, "y": {"$ref": "#/$defs/l/1"}},
        "$defs": {"a/b c~": {"type": "boolean"}, "l": [{"type": "string"}, {"type": "integer"}]},
    }
    found = normalise(schema)["properties"]
    assert found == {"x": {"type": "boolean"}, "y": {"type": "integer"}}


# What is refused


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "not null"),
        (False, "no arguments"),
        ("string", "not str"),
        ([], "not list"),
        ({"type": "string"}, "value of string"),
        ({"type": "array"}, "value of array"),
        ({"enum": ["a"]}, "value of string"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "none of its alternatives"),
        ({"properties": []}, "`properties` is an object, not list"),
        ({"properties": {"x": 5}}, "#/properties/x: a schema is an object"),
        ({"properties": {"x": {"type": "int"}}}, "'int' is not a JSON type"),
        ({"properties": {"x": {"$ref": 5}}}, "$ref must be a string"),
        ({"properties": {"x": {"$ref": "#/$defs/None"}}}, "not in the schema"),
        ({"properties": {"x": {"$ref": "#anchor"}}}, "not a path inside"),
        ({"properties": {"x": {"$ref": "https://example.com/s.json"}}}, "points outside"),
        ({"properties": {"x": {"$ref": "other.json#/a"}}}, "points outside"),
        ({"properties": {5: {}}}, "property name is a string"),
        ({"properties": {"a\u200bb": {}}}, "invisible"),
        ({"properties": {"a" * 300: {}}}, "too long"),
        ({"properties": {"x": False}, "required": ["x"]}, "no value is allowed"),
    ],
)
def test_unusable_schemas_say_why(schema: object, words: str) -> None:
    with pytest.raises(ToolDefinitionError) as caught:
        normalise(schema, tool="weather")
    assert str(caught.value).startswith("weather: its schema is unusable: ")
    assert words in str(caught.value)


def _nested(levels: int) -> JSONObject:
    schema: JSONObject = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def _doubling(levels: int) -> JSONObject:
    definitions: JSONObject = {"L0": {"type": "string"}}
    for level in range(levels):
        ref = {"$ref": f"#/$defs/L{level}"}
        definitions[f"L{level + 1}"] = {"type": "object", "properties": {"a": ref, "b": ref}}
    return {"$ref": f"#/$defs/L{levels}", "$defs": definitions}


def _doubling_arrays(levels: int) -> JSONObject:
    schema: JSONObject = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema, "anyOf": [{"minItems": 1}, {"maxItems": 2}]}
    return {"type": "object", "properties": {"x": schema}}


def _product(width: int, parts: int) -> JSONObject:
    unions = [
        {"anyOf": [{"properties": {f"p{part}": {"const": n}}} for n in range(width)]}
        for part in range(parts)
    ]
    return {"type": "object", "properties": {"x": {"allOf": unions}}}


def _cyclic() -> JSONObject:
    schema: JSONObject = {"type": "object", "properties": {}}
    schema["properties"]["x"] = schema
    return schema


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(100_000)}},
        {"properties": {"x": {"enum": [str(n) for n in range(100_000)]}}},
        {"required": [str(n) for n in range(100_000)]},
        {"anyOf": [{"type": "object"}] * 100_000},
        {"properties": {"x": {"type": "string", "default": [[n] for n in range(100_000)]}}},
        {"properties": {f"p{n}": {"description": "x" * 5000} for n in range(500)}},
        _nested(40),
        _nested(5000),
        _doubling(40),
        _cyclic(),
    ],
    ids=lambda _: "",
)
def test_hostile_schemas_are_refused_quickly(schema: JSONObject) -> None:
    def attempt() -> None:
        with pytest.raises(ToolDefinitionError, match=r"make it (smaller|flatter)"):
            normalise(schema)

    assert_effort(attempt, below=250)


@pytest.mark.parametrize("schema", [_doubling_arrays(30), _product(10, 20)], ids=lambda _: "")
def test_products_of_alternatives_are_not_multiplied_out(schema: JSONObject) -> None:
    made: list[JSONObject] = []
    assert_effort(lambda: made.append(normalise(schema)), below=250)
    assert len(json.dumps(made[0])) <= len(json.dumps(schema))


def test_a_large_honest_schema_is_taken() -> None:
    schema = {"properties": {f"p{n}": {"type": "string", "minLength": n} for n in range(1000)}}
    assert len(normalise(schema)["properties"]) == 1000
    assert normalise(_nested(25)) == _nested(25)


def test_unused_definitions_cost_nothing() -> None:
    definitions = {f"d{n}": {"type": "object"} for n in range(200_000)}
    assert normalise({"type": "object", "$defs": definitions}) == {
        "type": "object",
        "properties": {},
    }


# Words for the model


def test_hidden_characters_are_stripped_from_words() -> None:
    hidden = "read\u200b \u202ethis\u202c\U000e0041\U000e0042 \ud800now\x07\r\nnext\ufe0f"
    assert one({"type": "string", "description": hidden})["description"] == "read this now\nnext"


def test_values_with_hidden_characters_are_left_out() -> None:
    schema = {"type": "string", "enum": ["ok", "o\u200bk"], "default": "\u202e", "examples": ["\n"]}
    assert one(schema) == {"type": "string", "enum": ["ok"], "examples": ["\n"]}


def test_long_words_are_cut() -> None:
    assert len(one({"type": "string", "description": "x" * 10_000})["description"]) == 4096
    assert clean_text("abc def", 5) == "abc…"


# Wires


class Point(BaseModel):
    """A place."""

    x: int
    label: str | None = None
    next: Point | None = None


class Arguments(BaseModel):
    mode: Literal["fast", "exact"] = "fast"
    where: Point
    pair: tuple[int, str] = Field((1, "a"), description="two things")
    limits: dict[str, int] = {}
    count: int | str = Field(1, description="how many")


POINT = {
    "type": "object",
    "description": "A place.",
    "properties": {
        "label": {"type": "string"},
        "next": {"type": "object", "description": "Recursive: Point again.", "properties": {}},
        "x": {"type": "integer"},
    },
    "required": ["x"],
}


def test_pydantic_schema_on_responses() -> None:
    assert for_wire(Arguments.model_json_schema(), "responses") == {
        "type": "object",
        "properties": {
            "count": {
                "description": "how many",
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "default": 1,
            },
            "limits": {
                "type": "object",
                "properties": {},
                "additionalProperties": {"type": "integer"},
                "default": {},
            },
            "mode": {"type": "string", "enum": ["fast", "exact"], "default": "fast"},
            "pair": {
                "type": "array",
                "description": "two things",
                "minItems": 2,
                "maxItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": {},
                "default": [1, "a"],
            },
            "where": POINT,
        },
        "required": ["where"],
    }


def test_chat_knows_no_places() -> None:
    pair = for_wire(Arguments.model_json_schema(), "chat")["properties"]["pair"]
    assert "prefixItems" not in pair
    assert pair["items"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}


def test_codex_subset() -> None:
    assert for_wire(Arguments.model_json_schema(), "responses", subset="codex") == {
        "type": "object",
        "properties": {
            "count": {"type": "number", "description": "how many"},
            "limits": {
                "type": "object",
                "properties": {},
                "additionalProperties": {"type": "number"},
            },
            "mode": {"type": "string", "description": "One of: fast, exact."},
            "pair": {"type": "array", "description": "two things", "items": {"type": "number"}},
            "where": {
                "type": "object",
                "properties": {
                    "label": {"type": "string"},
                    "next": {"type": "object", "properties": {}},
                    "x": {"type": "number"},
                },
                "required": ["x"],
            },
        },
        "required": ["where"],
    }


def test_closed_objects_stay_closed_on_every_wire() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    for wire in WIRES:
        assert for_wire(schema, wire) == schema
        assert for_wire(schema, wire, subset="codex") == schema


def test_anthropic_takes_only_some_property_names() -> None:
    schema = normalise(
        {
            "properties": {
                "$top": {"type": "integer"},
                "_top": {"type": "string"},
                "filter[id]": {"type": "string"},
                "long" * 30: {"type": "string"},
                "fine.name-1": {"type": "string"},
            },
            "required": ["$top", "fine.name-1"],
        }
    )
    sent = for_wire(schema, "anthropic")
    names = argument_names(schema)
    assert {names.get(name, name) for name in sent["properties"]} == set(schema["properties"])
    assert all(len(name) <= 64 and name.isascii() for name in sent["properties"])
    assert names["filter_id_"] == "filter[id]"
    assert [names.get(name, name) for name in sent["required"]] == ["$top", "fine.name-1"]
    assert "_top" not in names
    assert for_wire(schema, "responses") == schema


# Null comes back


def test_absent_nullable_arguments_are_put_back() -> None:
    schema = {
        "properties": {
            "a": {"type": ["string", "null"]},
            "b": {"$ref": "#/$defs/B"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/B"}},
        },
        "required": ["a", "b"],
        "$defs": {
            "B": {
                "anyOf": [
                    {
                        "type": "object",
                        "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                        "required": ["n"],
                    },
                    {"type": "null"},
                ]
            }
        },
    }
    given_ = {"b": {}, "list": [{"n": 1}, {}], "extra": {}}
    assert fill_nulls(schema, given_) == {
        "a": None,
        "b": {"n": None},
        "list": [{"n": 1}, {"n": None}],
        "extra": {},
    }
    assert given_ == {"b": {}, "list": [{"n": 1}, {}], "extra": {}}


def test_asking_for_null_in_a_circle_ends() -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]}
    schema = {
        "properties": {"x": {"$ref": "#/$defs/A"}},
        "required": ["x"],
        "$defs": {"A": loop, "B": loop},
    }
    assert fill_nulls(schema, {}) == {}


def test_most_tools_need_no_nulls() -> None:
    assert fill_nulls({"required": ["a"]}, {}) == {}


# For any input at all

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=True)
    | st.sampled_from(
        ["a", "b", "", "object", "array", "string", "number", "null", "#", "#/$defs/d"]
    )
    | st.text(max_size=3)
)
keywords = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "prefixItems",
        "anyOf",
        "oneOf",
        "allOf",
        "enum",
        "const",
        "$ref",
        "$defs",
        "definitions",
        "description",
        "title",
        "default",
        "format",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "pattern",
        "patternProperties",
        "nullable",
        "not",
        "a",
        "b",
        "d",
    ]
)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keywords, inner, max_size=5),
    max_leaves=25,
)


def schemas(*, typed: bool = False) -> st.SearchStrategy[Any]:
    """Schemas that mean something: each keyword has a value of the right shape."""
    kind = {"type": "object"} if typed else {}
    names = st.sampled_from(["a", "b", "c"])
    values = st.sampled_from(["x", "y", 1, 2.5, True, None, [1], {"a": 1}])
    leaves = (
        st.booleans()
        | st.just({"$ref": "#/$defs/d"})
        | st.just({"$ref": "#/$defs/r"})
        | st.builds(lambda v: {"enum": v}, st.lists(values, min_size=1, max_size=3))
        | st.builds(lambda v: {"const": v}, values)
        | st.fixed_dictionaries(
            {"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])},
            optional={"minimum": st.integers(-2, 2), "maxLength": st.integers(0, 3)},
        )
        | st.builds(
            lambda t, d: {"type": t, "description": d},
            st.lists(
                st.sampled_from(["string", "null", "integer", "array"]), min_size=1, unique=True
            ),
            st.text(max_size=4),
        )
    )

    def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        listed = st.lists(inner, min_size=1, max_size=3)
        objects = st.fixed_dictionaries(
            {key: st.just(value) for key, value in kind.items()},
            optional={
                "properties": st.dictionaries(names, inner, max_size=3),
                "required": st.lists(names, max_size=2, unique=True),
                "additionalProperties": inner,
                "anyOf": listed,
                "description": st.just("d"),
            },
        )
        arrays = st.fixed_dictionaries(
            {"type": st.just("array")},
            optional={"items": inner, "prefixItems": listed, "maxItems": st.integers(0, 3)},
        )
        unions = st.builds(
            lambda key, of: {key: of}, st.sampled_from(["anyOf", "oneOf", "allOf"]), listed
        )
        return objects | arrays | unions

    trees = st.recursive(leaves, grow, max_leaves=8)
    return st.builds(
        lambda props, need, d: {
            "type": "object",
            "properties": props,
            "required": need,
            "$defs": {"d": d, "r": {**kind, "properties": {"a": {"$ref": "#/$defs/r"}}}},
        },
        st.dictionaries(names, trees, max_size=3),
        st.lists(names, max_size=2, unique=True),
        trees,
    )


def attempt(schema: object) -> JSONObject | None:
    try:
        return normalise(schema)
    except ToolDefinitionError:
        return None


def has_reference(value: Any) -> bool:
    if isinstance(value, dict):
        inside = value.get("properties", {})
        return "$ref" in value or any(map(has_reference, [*value.values(), *inside.values()]))
    return isinstance(value, list) and any(map(has_reference, value))


@pytest.mark.slow
@thorough
@given(junk | schemas())
def test_any_input_is_normalised_or_refused(schema: Any) -> None:
    before = copy.deepcopy(schema)
    normal = attempt(schema)
    assert repr(schema) == repr(before)
    if normal is None:
        return
    text = json.dumps(normal, allow_nan=False)
    assert normal["type"] == "object"
    assert normalise(normal) == normal
    assert json.dumps(normalise(normal)) == text
    assert json.dumps(normalise(schema)) == text
    text.encode()
    for wire in WIRES:
        sent = for_wire(schema, wire)
        assert not has_reference(sent)
        assert sent["type"] == "object"
        assert "anyOf" not in sent
        jsonschema_rs.Draft202012Validator(sent)
    plain = for_wire(schema, "chat", subset="codex")
    assert for_wire(plain, "chat", subset="codex") == plain


instances = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.recursive(
        st.sampled_from(["x", "y", "", 1, 2.5, 0, True]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=2)
        ),
        max_leaves=5,
    ),
    max_size=3,
)


def has_alternative_objects(value: Any) -> bool:
    """Those are read as if each forbade what it does not name, which is narrower."""
    if isinstance(value, dict):
        parts = [*value.values(), *value.get("properties", {}).values()]
        named = value.keys() & {"type", "properties", "required", "additionalProperties"}
        return ("anyOf" in value and bool(named)) or any(map(has_alternative_objects, parts))
    return isinstance(value, list) and any(map(has_alternative_objects, value))


@pytest.mark.slow
@thorough
@given(schemas(typed=True), instances)
def test_what_the_tool_accepts_is_never_forbidden(schema: JSONObject, value: JSONObject) -> None:
    normal = attempt(schema)
    if normal is None or has_alternative_objects(schema):
        return
    if jsonschema_rs.Draft202012Validator(schema).is_valid(value):
        assert jsonschema_rs.Draft202012Validator(normal).is_valid(value)


@pytest.mark.slow
@thorough
@given(schemas(), instances)
def test_what_became_optional_is_put_back(schema: JSONObject, value: JSONObject) -> None:
    normal = attempt(schema)
    if normal is None:
        return
    gone = set(schema["required"]) - set(normal.get("required", ()))
    gone &= {name for name in schema["properties"] if _simple(schema["properties"][name])}
    filled = fill_nulls(schema, value)
    assert gone <= filled.keys()
    assert value.keys() <= filled.keys()


def _simple(schema: Any) -> bool:
    return "allOf" not in json.dumps(schema) and "$ref" not in json.dumps(schema)


@pytest.mark.parametrize("wire", WIRES)
def test_a_missing_items_becomes_string(wire: Wire) -> None:
    schema = {
        "type": "object",
        "properties": {"any": {"type": "array", "items": {}}, "some": {"type": "array"}},
    }
    properties = for_wire(schema, wire)["properties"]
    assert properties["some"] == {"type": "array", "items": {"type": "string"}}
    assert properties["any"] == {"type": "array", "items": {}}
    assert for_wire(schema, wire, subset="codex")["properties"]["some"] == properties["some"]


@pytest.mark.parametrize("wire", WIRES)
def test_properties_keep_the_order_they_were_written_in(wire: Wire) -> None:
    names = ["zeta", "alpha", "$odd", "mid"]
    inner: JSONObject = {"type": "object", "properties": {key: {"type": "string"} for key in names}}
    schema = {**inner, "properties": {**inner["properties"], "inner": inner}, "required": ["more"]}
    subsets: tuple[Literal["codex"] | None, ...] = (None, "codex")
    for subset in subsets:
        made = for_wire(schema, wire, subset=subset)["properties"]
        assert [name.lstrip("$_") for name in made] == [
            *("zeta", "alpha", "odd", "mid", "inner", "more")
        ]
        assert list(made["inner"]["properties"]) == names

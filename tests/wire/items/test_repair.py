from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import assert_effort

from toolrest.wire.items.repair_json import repaired

SCHEMA = {
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "list": {"type": "array"},
        "table": {"type": "object"},
        "flag": {"type": ["boolean", "null"]},
        "text": {"type": "string"},
        "either": {"type": ["string", "number"]},
        "any": {"anyOf": [{"type": "array"}, {"type": "null"}]},
        "choice": {"type": "integer", "enum": [1]},
    }
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"n": 1,}', {"n": 1}),
        ('{"list": [1, 2, ], }', {"list": [1, 2]}),
        ('{"text": "a, }"}  }', {"text": "a, }"}),
        ('{"n": 1}</tool_call>', {"n": 1}),
        ('{"n": 1}\n```', {"n": 1}),
        ('{"n": 1}}', {"n": 1}),
        ('{"text": "C:\\Users\\d"}', {"text": "C:\\Users\\d"}),
        ('{"text": "\\u12 x"}', {"text": "\\u12 x"}),
        ('{"text": "two\nlines"}', {"text": "two\nlines"}),
        ('"{\\"n\\": 1}"', {"n": 1}),
        ('{"list": "[1, 2]"}', {"list": [1, 2]}),
        ('{"table": "{\\"a\\": 1}"}', {"table": {"a": 1}}),
        ('{"n": "3", "x": "1.5", "flag": "true"}', {"n": 3, "x": 1.5, "flag": True}),
        ('{"any": "[1]"}', {"any": [1]}),
    ],
)
def test_what_is_meant_is_understood_and_labelled(text: str, value: Any) -> None:
    (made,) = repaired(text, SCHEMA)
    assert json.loads(made.text) == value
    assert made.notes


@pytest.mark.parametrize(
    "text",
    [
        '{"text": "[1]"}',
        '{"either": "5"}',
        '{"choice": "1"}',
        '{"n": "many"}',
        '{"list": "{}"}',
        '{"n": "1.5"}',
        '{"n": "true"}',
        '{ "n" : 1 }',
        '{"unknown": "[1]"}',
    ],
)
def test_what_is_exact_stays_as_it_is(text: str) -> None:
    (made,) = repaired(text, SCHEMA)
    assert made == (text, ())


@pytest.mark.parametrize("text", ["", "  ", "null"])
def test_nothing_is_an_empty_object(text: str) -> None:
    assert repaired(text) == [("{}", ())]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1',
        '{"a": "unfinished',
        '{"a": 1} and then {"b": 2}',
        "rm -rf /",
        "[1]",
        "5",
        "{'a': 1}",
        '{"a": 1} <script>alert(1)</script>x',
        "{" * 5000,
    ],
)
def test_what_would_be_guessed_is_not_repaired(text: str) -> None:
    assert repaired(text) == []


def test_objects_run_together_are_several() -> None:
    made = repaired('{"a": 1} {"a": 2}{"a": 3}')
    assert [json.loads(one.text)["a"] for one in made] == [1, 2, 3]
    assert all(one.notes for one in made)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.integers())))
def test_valid_objects_are_never_touched(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert repaired(text, {"properties": {}}) == [(text, ())]


@given(st.text(alphabet='{}[]",:\\u1a \n'))
def test_whatever_comes_out_is_an_object(text: str) -> None:
    for made in repaired(text, SCHEMA):
        assert isinstance(json.loads(made.text), dict)


@pytest.mark.parametrize(
    "text", ['"\\"' * 100_000, '{"' + "\\" * 200_001, "{" + '"a",' * 100_000, " " * 500_000 + "x"]
)
def test_long_nonsense_is_quick(text: str) -> None:
    assert_effort(lambda: repaired(text), below=250)

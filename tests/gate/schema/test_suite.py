"""The normal form is not narrower than the schema, by the cases of JSON-Schema-Test-Suite.

What the original takes, the normal form takes: as it is, or without its nulls, which may be left
out. The types that a model is told where a schema has none are guesses, and left out here.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from toolrest.errors import ToolDefinitionError
from toolrest.gate.schema.normalise import normalise

DATA = Path(__file__).parents[2] / "data" / "json_schema_suite.json"
"""From draft 2020-12: name, schema, what it takes; without what needs other documents."""
DRAFTS = ("draft3", "draft4", "draft6", "draft7", "draft2019-09", "draft2020-12")
PACKAGE = "jsonschema==4.25.1"
"""Its source distribution has the suite."""
NOT_READ = {
    "vocabulary": "keywords switched off by a schema of schemas of one's own",
    "ref: ref overrides any sibling keywords": "older drafts do not read what is beside it",
    "type: types can include schemas": "draft 3 only",
    "type: applies a nested schema": "draft 3 only",
}


def takes(normal: Any, value: Any) -> bool:
    validator = jsonschema_rs.validator_for(normal)
    return validator.is_valid(value) or validator.is_valid(_without_nulls(value))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return [_without_nulls(part) for part in value] if isinstance(value, list) else value


def _has_null_items(value: Any) -> bool:
    """Whether a list has a null, which the normal form cannot say."""
    if isinstance(value, dict):
        return any(map(_has_null_items, value.values()))
    return isinstance(value, list) and any(part is None or _has_null_items(part) for part in value)


def _moved(schema: Any) -> Any:
    """The schema for the place of a property, with its references."""
    if isinstance(schema, list):
        return [_moved(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: v if key in ("enum", "const") else _moved(v) for key, v in schema.items()}
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#") and ref[1:2] in ("", "/"):
        moved["$ref"] = f"#/properties/x{ref[1:]}"
    return moved


def narrower(name: str, schema: Any, values: list[Any]) -> Iterator[str]:
    """What the schema takes and its normal form does not, as arguments and as one of them."""
    inside = {"type": "object", "properties": {"x": _moved(schema)}, "required": ["x"]}
    forms = [(inside, [{"x": value} for value in values])]
    if isinstance(schema, dict):
        forms.append((schema, [value for value in values if isinstance(value, dict)]))
    for form, given in forms:
        try:
            normal = normalise(form, guesses=False)
        except ToolDefinitionError:
            continue  # a model cannot be told; the tool is set aside
        for value in given:
            if not _has_null_items(value) and not takes(normal, value):
                yield f"{name}: {json.dumps(value)} fits {json.dumps(form)}, not {normal}"


def test_the_normal_form_takes_what_the_schema_takes() -> None:
    cases = json.loads(DATA.read_text())
    assert len(cases) > 200
    assert [line for case in cases for line in narrower(*case)] == []


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suite")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:"]
    done = subprocess.run([*command, "-d", str(folder), PACKAGE], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip download {PACKAGE}: {done.stderr.splitlines()[-1]}")
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("draft", DRAFTS)
def test_the_whole_suite(draft: str, suite: Path) -> None:
    found: list[str] = []
    for file in sorted(suite.glob(f"*/json/tests/{draft}/*.json")):
        for case in json.loads(file.read_text()):
            name = f"{file.stem}: {case['description']}"
            values = [test["data"] for test in case["tests"] if test["valid"]]
            if file.stem not in NOT_READ and name not in NOT_READ:
                found += narrower(name, case["schema"], values)
    assert found == []


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"enum": [[1, 2], ["a"]]}, [1, 2]),
        ({"type": "array", "enum": [[1]]}, [1]),
        ({"allOf": [{"prefixItems": [{}]}, {"prefixItems": [{}, {"type": "string"}]}]}, [1, "a"]),
    ],
)
def test_lists_of_values_and_of_places(schema: Any, value: Any) -> None:
    """Here a model's guesses count, too: what nothing fits no model can give."""
    normal = normalise({"type": "object", "properties": {"x": schema}})
    assert takes(normal, {"x": value})


def test_a_property_that_one_alternative_names_is_open() -> None:
    schema = {
        "type": "object",
        "anyOf": [
            {"properties": {"a": {"type": "integer", "description": "how many"}}},
            {"properties": {"b": {"type": "string"}}, "additionalProperties": False},
        ],
    }
    normal = normalise(schema)
    assert takes(normal, {"a": 1, "b": 7})
    assert normal["properties"] == {"a": {"description": "how many", "type": "integer"}, "b": {}}

"""The parameters of the tools that models know from Codex: their names, and which are required."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest

ASKING = ("justification", "prefix_rule", "sandbox_permissions")
REQUIRED: dict[str, tuple[str, ...]] = {
    "shell": ("command",),
    "shell_command": ("command",),
    "exec_command": ("cmd",),
    "write_stdin": ("session_id",),
    "list_mcp_resources": (),
    "list_mcp_resource_templates": (),
    "read_mcp_resource": ("server", "uri"),
    "update_plan": ("plan",),
    "request_user_input": ("questions",),
    "apply_patch": ("input",),
    "grep_files": ("pattern",),
    "read_file": ("file_path",),
    "list_dir": ("dir_path",),
    "view_image": ("path",),
    "spawn_agent": ("message",),
    "send_input": ("id", "message"),
    "wait": ("ids",),
    "close_agent": ("id",),
    "resume_agent": ("id",),
}
OPTIONAL: dict[str, tuple[str, ...]] = {
    "shell": (*ASKING, "timeout_ms", "workdir"),
    "shell_command": (*ASKING, "login", "timeout_ms", "workdir"),
    "exec_command": (
        *ASKING, "login", "max_output_tokens", "shell", "tty", "workdir", "yield_time_ms",
    ),
    "write_stdin": ("chars", "max_output_tokens", "yield_time_ms"),
    "list_mcp_resources": ("cursor", "server"),
    "list_mcp_resource_templates": ("cursor", "server"),
    "update_plan": ("explanation",),
    "grep_files": ("include", "limit", "path"),
    "read_file": ("indentation", "limit", "mode", "offset"),
    "list_dir": ("depth", "limit", "offset"),
    "spawn_agent": ("agent_type",),
    "send_input": ("interrupt",),
    "wait": ("timeout_ms",),
}  # fmt: skip
OURS = {"shell": {"description"}, "grep_files": {"context", "offset", "output_mode"}}
"""What Toolrest adds, always optional."""
FAMILIES = (None, "gpt-5", "gpt-5.1-codex")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found: dict[str, Any] = {}
    folder: Path = tmp_path_factory.mktemp("schemas")
    for model in FAMILIES:
        registry = Toolrest(folder, model=model).session.registry
        for name in REQUIRED:
            if (tool := registry.get(name)) is not None:
                found[name] = tool.parameters
    return found


@pytest.mark.parametrize("name", REQUIRED)
def test_names_and_what_is_required(schemas: dict[str, Any], name: str) -> None:
    schema = schemas[name]
    wanted = {*REQUIRED[name], *OPTIONAL.get(name, ())}
    assert set(schema["properties"]) == wanted | OURS.get(name, set())
    assert set(schema.get("required", ())) == set(REQUIRED[name])
    assert ("required" in schema) is bool(REQUIRED[name])
    assert schema["additionalProperties"] is False


def below(schema: Any) -> Iterator[tuple[str, Any]]:
    for name, inner in schema.get("properties", {}).items():
        yield name, inner
        yield from below(inner)
        yield from below(inner.get("items", {}))


def test_counts_are_integers_and_choices_are_listed(schemas: dict[str, Any]) -> None:
    for name, schema in schemas.items():
        for field, inner in below(schema):
            assert inner.get("type") != "number", (name, field)
    choices = {"shell": "sandbox_permissions", "read_file": "mode", "grep_files": "output_mode"}
    for name, field in choices.items():
        assert len(schemas[name]["properties"][field]["enum"]) > 1, (name, field)
    steps = dict(below(schemas["update_plan"]))
    assert steps["status"]["enum"] == ["pending", "in_progress", "completed"]

"""The schemas made beforehand are those that would be made now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from toolrest import Toolrest
from toolrest.agent.subagents.delegation import delegate
from toolrest.gate.tool.args_class import (
    FILE,
    Parameters,
    _rows,
    fingerprint,
    is_noted,
    made_schema,
    name_of,
    param,
    prepared,
)
from toolrest.testing import ScriptedModel

MODELS = ("gpt-5.5", "gpt-5.2", "gpt-5", "o3", "claude-x", "qwen-x", "codex-mini-latest", "unknown")


def built_in(folder: Path) -> dict[str, type[Parameters]]:
    found: dict[str, type[Parameters]] = {}
    for model in MODELS:
        rest = Toolrest(folder, model=model)
        delegate(rest, lambda config: ScriptedModel([]), environ={})
        registry = rest.gate.registry
        for tool in registry.listed():
            if tool.Args is not None and is_noted(tool.Args):
                found[name_of(tool.Args)] = tool.Args
    return found


def test_what_is_prepared_is_what_would_be_made(tmp_path: Path) -> None:
    models = built_in(tmp_path)
    if os.environ.get("WRITE_SCHEMAS") == "1":
        rows = {
            name: {"of": fingerprint(model), "schema": made_schema(model)}
            for name, model in sorted(models.items())
        }
        Path(FILE).write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
        _rows.cache_clear()
    fresh = 0
    for name, model in models.items():
        ready = prepared(model)
        if ready is not None:
            fresh += 1
            assert list(ready["properties"]) == list(made_schema(model)["properties"]), name
            assert ready == made_schema(model), name
    assert fresh == len(models), "run: WRITE_SCHEMAS=1 pytest tests/tools/test_prepared.py"


class Inner(Parameters):
    """Inside."""

    a: int = param(default=1, description="a")


class OtherInner(Parameters):
    """Inside."""

    a: int = param(default=2, description="a")


class One(Parameters):
    """Outside."""

    x: list[Inner] = param(default=[], description="d")


class Two(Parameters):
    """Outside."""

    x: list[OtherInner] = param(default=[], description="d")


class Three(Parameters):
    """Outside."""

    x: list[Inner] = param(default=[], description="other")


class Four(Parameters, extra="forbid"):
    """Outside."""

    x: list[Inner] = param(default=[], description="d")


def test_any_change_has_another_fingerprint() -> None:
    OtherInner.__qualname__ = Inner.__qualname__
    for args in (Two, Three, Four):
        args.__qualname__ = One.__qualname__
    assert len({fingerprint(args) for args in (One, Two, Three, Four)}) == 4
    assert fingerprint(One) == fingerprint(One)
    assert prepared(One) is None


def test_starting_a_session_and_offering_its_tools_does_not_import_pydantic() -> None:
    code = """
import sys
from toolrest import Toolrest
for tool in Toolrest(".").gate.registry.listed():
    assert tool.parameters["type"] == "object"
print([name for name in sys.modules if name.startswith("pydantic")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

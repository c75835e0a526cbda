"""The schemas made beforehand are those that would be made now."""

from __future__ import annotations

import json
import os
from pathlib import Path

from pydantic import BaseModel, Field

from toolrest import Toolrest
from toolrest.agent.delegation import delegate
from toolrest.gate.arguments import made_schema
from toolrest.gate.prepared import FILE, fingerprint, name_of, prepared
from toolrest.testing import ScriptedModel

MODELS = ("gpt-5.5", "gpt-5.2", "gpt-5", "o3", "claude-x", "qwen-x", "codex-mini-latest", "unknown")


def built_in(folder: Path) -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for model in MODELS:
        rest = Toolrest(folder, model=model)
        delegate(rest, lambda config: ScriptedModel([]), environ={})
        registry = rest.gate.registry
        for tool in registry.listed():
            if tool.Args is not None and tool.Args.__module__.startswith("toolrest.tools."):
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
    fresh = 0
    for name, model in models.items():
        ready = prepared(model)
        if ready is not None:
            fresh += 1
            assert list(ready["properties"]) == list(made_schema(model)["properties"]), name
            assert ready == made_schema(model), name
    # A tool that was just changed is made as ever; most should not have to be.
    assert fresh >= len(models) * 0.7, "run: WRITE_SCHEMAS=1 pytest tests/tools/test_prepared.py"


def test_any_change_has_another_fingerprint() -> None:
    class Inner(BaseModel):
        a: int = 1

    class OtherInner(BaseModel):
        a: int = 2

    OtherInner.__name__, OtherInner.__qualname__ = Inner.__name__, Inner.__qualname__

    class One(BaseModel):
        x: list[Inner] = Field(default=[], description="d")

    class Two(BaseModel):
        x: list[OtherInner] = Field(default=[], description="d")

    class Three(BaseModel):
        x: list[Inner] = Field(default=[], description="other")

    for model in (Two, Three):
        model.__name__, model.__qualname__ = One.__name__, One.__qualname__
    assert len({fingerprint(model) for model in (One, Two, Three)}) == 3
    assert fingerprint(One) == fingerprint(One)
    assert prepared(One) is None

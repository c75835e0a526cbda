from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.items import Wire


def offered(tmp_path: Path, wire: Wire, settings: dict[str, Any]) -> list[dict[str, Any]]:
    return Toolrest(tmp_path, tools=["all"], settings=settings).specs(wire)


@pytest.mark.parametrize("wire", ["responses", "chat", "anthropic"])
@pytest.mark.parametrize(
    "model", ["qwen3-coder", "ollama:gpt-oss:20b", "gpt-5.5", "llama3", "claude-x"]
)
def test_a_small_window_gets_a_small_set(tmp_path: Path, model: str, wire: Wire) -> None:
    specs = offered(tmp_path, wire, {"model": model, "model_context_window": 8192})
    names = {json.dumps(spec) for spec in specs}
    assert 4 <= len(specs) <= 8
    assert len(json.dumps(specs, separators=(",", ":"))) / 4 < 2000
    for wanted in ("read_file", "grep_files", "apply_patch"):
        assert any(wanted in name for name in names)


def test_the_setting_decides_over_the_window(tmp_path: Path) -> None:
    small = {"model_context_window": 8192}
    many = len(offered(tmp_path, "chat", {}))
    assert many > 8
    assert len(offered(tmp_path, "chat", {"tools.small_context": True})) <= 8
    assert len(offered(tmp_path, "chat", {**small, "tools.small_context": False})) == many
    named = offered(tmp_path, "chat", {**small, "tools.enabled": ["update_plan"]})
    assert [spec["function"]["name"] for spec in named] == ["update_plan"]


async def test_what_is_not_offered_still_answers(tmp_path: Path) -> None:
    async with Toolrest(tmp_path, settings={"tools.small_context": True}) as rest:
        output = await rest.call("update_plan", {"plan": []})
    assert output.text == "Plan updated"

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from toolrest.config import import_codex
from toolrest.errors import ConfigError

CODEX = """
model = "gpt-5.2-codex"
model_provider = "corp"
model_reasoning_effort = "high"
approval_policy = "on-request"
sandbox_mode = "workspace-write"
notify = ["say", "done"]
tool_output_token_limit = 5000
made_up = 1

[sandbox_workspace_write]
writable_roots = ["/data", "cache"]
network_access = true
new_thing = 3

[features]
unified_exec = true
goals = false

[tools]
view_image = false
web_search = true

[model_providers.corp]
base_url = "https://corp.invalid"
experimental_bearer_token = "sk-verysecret-token"
http_headers = { Authorization = "Bearer verysecret" }

[mcp_servers.db]
command = "db-mcp"
env = { DB_PASSWORD = "verysecret" }

[projects."/home/me/repo"]
trust_level = "trusted"

[profiles.fast]
model = "gpt-5-mini"
model_reasoning_effort = "low"
approval_policy = { granular = { rules = true } }
"""


@pytest.fixture
def codex(tmp_path: Path) -> Path:
    folder = tmp_path / "codex"
    folder.mkdir()
    (folder / "config.toml").write_text(CODEX)
    (folder / "auth.json").write_text('{"key": "verysecret"}')
    (folder / "night.config.toml").write_text('sandbox_mode = "read-only"\nhooks = {}\n')
    return folder


def test_what_can_be_taken_over_is(codex: Path, desk: Any) -> None:
    text, _ = import_codex(codex)
    assert tomllib.loads(text) == {
        "model": "gpt-5.2-codex",
        "notify": ["say", "done"],
        "model_provider": "corp",
        "model_providers": {"corp": {"base_url": "https://corp.invalid"}},
        "model_reasoning_effort": "high",
        "approval_policy": "on-request",
        "sandbox_mode": "workspace-write",
        "tool_output_token_limit": 5000,
        "sandbox_workspace_write": {
            "writable_roots": ["/data", f"{codex}/cache"],
            "network_access": True,
        },
        "tools": {"shell_type": "unified_exec", "include_view_image_tool": False},
        "mcp_servers": {"db": {"command": "db-mcp"}},
        "profiles": {
            "fast": {"model": "gpt-5-mini", "model_reasoning_effort": "low"},
            "night": {"sandbox_mode": "read-only"},
        },
    }
    desk.user(text)
    config = desk.load(profile="fast")
    assert config.value.model == "gpt-5-mini"
    assert config.value.sandbox_workspace_write.network_access is True


def test_what_is_left_out_is_named_with_the_reason(codex: Path) -> None:
    _, skipped = import_codex(codex)
    reasons = dict(line.split(": ", 1) for line in skipped)
    assert reasons.keys() == {
        "made_up",
        "sandbox_workspace_write.new_thing",
        "features.goals",
        "tools.web_search",
        "model_providers.corp.experimental_bearer_token",
        "model_providers.corp.http_headers",
        "mcp_servers.db.env.DB_PASSWORD",
        "projects",
        "profiles.fast.approval_policy",
    }
    assert "env_vars" in reasons["mcp_servers.db.env.DB_PASSWORD"]
    assert reasons["made_up"] == "Toolrest has no such setting"
    assert "toolrest trust" in reasons["projects"]


def test_no_secret_comes_along(codex: Path) -> None:
    text, skipped = import_codex(codex)
    assert "verysecret" not in text + "\n".join(skipped)


def test_codexs_side_is_not_touched(codex: Path) -> None:
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in codex.iterdir()}
    import_codex(codex)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in codex.iterdir()}
    assert after == before


def test_the_folder_comes_from_the_environment(
    codex: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", os.fspath(codex))
    assert import_codex()[0] == import_codex(codex)[0]


def test_a_value_that_cannot_be_used_is_left_out_and_the_rest_taken(codex: Path) -> None:
    (codex / "config.toml").write_text('model = 3\nsandbox_mode = "read-only"\n')
    text, skipped = import_codex(codex)
    assert 'sandbox_mode = "read-only"' in text
    assert skipped == ["model: expected a text in quotes, got 3"]


@pytest.mark.parametrize("text", [None, "broken ["])
def test_nothing_to_import_is_an_error(codex: Path, text: str | None) -> None:
    (codex / "config.toml").unlink()
    if text is not None:
        (codex / "config.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"config\.toml"):
        import_codex(codex)

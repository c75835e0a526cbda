"""Settings taken over from Memo Code, and its names for ours."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolrest import ConfigError, Toolrest, load_config
from toolrest.cli.app import app
from toolrest.config import import_memo

MEMO = """
current_provider = "deepseek"
active_mcp_servers = ["db"]

[[providers]]
name = "deepseek"
env_api_key = "DEEPSEEK_API_KEY"

[mcp_servers.db]
command = "db-server"
args = ["--read-only"]
env = { DB_PASSWORD = "verysecret" }

[mcp_servers.docs]
type = "streamable_http"
url = "https://docs.example/mcp"
bearer_token_env_var = "DOCS_TOKEN"
"""


@pytest.fixture
def memo(tmp_path: Path) -> Path:
    home = tmp_path / "memo"
    home.mkdir()
    (home / "config.toml").write_text(MEMO)
    return home


def test_servers_and_which_are_active_come_over(memo: Path, tmp_path: Path) -> None:
    text, skipped = import_memo(memo)
    found = tomllib.loads(text)
    assert found["active_mcp_servers"] == ["db"]
    assert found["mcp_servers"]["db"] == {"command": "db-server", "args": ["--read-only"]}
    assert found["mcp_servers"]["docs"]["bearer_token_env_var"] == "DOCS_TOKEN"
    assert "verysecret" not in text + "\n".join(skipped)
    reasons = dict(line.split(": ", 1) for line in skipped)
    assert "env_vars" in reasons["mcp_servers.db.env.DB_PASSWORD"]
    assert reasons["current_provider"] == "Toolrest has no such setting"
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "config.toml").write_text(text)
    assert load_config(home=ours).value.active_mcp_servers == ("db",)


def test_the_command(memo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMO_HOME", os.fspath(memo))
    ran = CliRunner().invoke(app, ["config", "import-memo"])
    assert ran.exit_code == 0
    assert ran.stdout == import_memo(memo)[0]
    assert "not taken over: current_provider" in ran.stderr
    (memo / "config.toml").unlink()
    with pytest.raises(ConfigError, match="there is no such file to import"):
        import_memo(memo)


TOOL_CONFIG = """
[tool_config]
approval_policy = "required"
sandbox_policy = "docker"
include_plan_tool = false
include_apply_patch_tool = false
include_view_image_tool = false
tools_web_search_request = true
use_experimental_streamable_shell_tool = true
"""


def test_tool_config_takes_all_seven_fields(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(TOOL_CONFIG)
    settings = load_config(home=tmp_path).value
    tools = settings.tools
    assert (settings.approval_policy, settings.sandbox_policy) == ("strict", "docker")
    assert (tools.include_plan_tool, tools.include_apply_patch_tool) == (False, False)
    assert (tools.include_view_image_tool, tools.tools_web_search_request) == (False, True)
    assert tools.shell_type == "unified_exec"


def test_chroot_without_a_root_file_system_is_an_error_when_settings_are_loaded(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text('sandbox_policy = "chroot"\n')
    wanted = r'config\.toml: sandbox_policy = "chroot" needs sandbox\.rootfs'
    with pytest.raises(ConfigError, match=wanted):
        load_config(home=tmp_path)
    with pytest.raises(ConfigError, match=r"needs sandbox\.rootfs"):
        Toolrest(tmp_path, settings={"sandbox_policy": "chroot"})


def test_tools_of_the_home_are_there_with_its_settings(tmp_path: Path) -> None:
    own = tmp_path / "home" / "tools"
    own.mkdir(parents=True)
    (own / "mine.py").write_text(
        'from toolrest import tool\n\n\n@tool\ndef mine(x: int) -> str:\n    "M."\n    return ""\n'
    )
    own.chmod(0o755)
    (own / "mine.py").chmod(0o644)
    rest = Toolrest(tmp_path, config=load_config(home=tmp_path / "home"))
    assert "mine" in {each.name for each in rest.tools}
    assert not rest.warnings

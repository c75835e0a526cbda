from __future__ import annotations

from typing import Any

import pytest

from toolrest.agent.rest import Toolrest
from toolrest.config import default_config
from toolrest.config.schema.providers import BUILT_IN_PROVIDERS
from toolrest.config.secrets import key_values, key_variables
from toolrest.errors import ConfigError
from toolrest.wire.presets import BUILT_IN

ROW = """
model_provider = "corp"
[model_providers.corp]
base_url = "http://127.0.0.1:9/v1"
env_key = "CORP_ACCESS"
wire_api = "chat"
experimental_bearer_token = "bearer-0123456789"
http_headers = { "X-Auth" = "header-0123456789", "HTTP-Referer" = "https://example.org" }
env_http_headers = { "X-Team" = "CORP_TEAM_ID" }
query_params = { "api-version" = "2026-01-01" }
[model_providers.corp.capabilities]
tool_images = "inline"
"""


def test_a_provider_row_is_read_as_codex_writes_it(desk: Any) -> None:
    desk.user(ROW)
    settings = desk.load().value
    row = settings.model_providers["corp"]
    assert (settings.model_provider, row.wire_api, row.env_key) == ("corp", "chat", "CORP_ACCESS")
    assert row.query_params == {"api-version": "2026-01-01"}
    assert row.capabilities.tool_images == "inline"


def test_keys_of_providers_are_never_shown(desk: Any) -> None:
    desk.user(ROW)
    shown = "\n".join(f"{row.key}={row.text}" for row in desk.load().rows())
    assert "0123456789" not in shown
    assert "CORP_ACCESS" in shown


def test_what_holds_keys_is_known(desk: Any) -> None:
    desk.user(ROW)
    settings = desk.load().value
    assert key_variables(settings) == ("CORP_ACCESS", "CORP_TEAM_ID")
    assert set(key_values(settings).values()) == {"bearer-0123456789", "header-0123456789"}


def test_secrets_in_the_body_of_requests(desk: Any) -> None:
    """They are redacted; what only sounds alike is not, or half of every output would be."""
    token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    lines = [
        "[model_providers.corp.request.extra_body]",
        'tokenizer = "llama-three"',
        'author = "someone"',
        'guardrail = { api_key = "body-0123456789" }',
        '[model_providers.corp.models."m".extra_body]',
        'Authorization = "Bearer model-0123456789"',
        f'ids = ["{token}"]',
    ]
    desk.user(ROW + "\n".join(lines))
    config = desk.load()
    values = set(key_values(config.value).values())
    assert values == {
        "bearer-0123456789",
        "header-0123456789",
        "body-0123456789",
        "model-0123456789",
        token,
    }
    shown = "\n".join(f"{row.key}={row.text}" for row in config.rows())
    assert "body-0123456789" not in shown
    assert "model-0123456789" not in shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('wire_api = "soap"', "wire_api"),
        ("request_max_retries = -1", "request_max_retries"),
        ('bas_url = "x"', "base_url"),
    ],
)
def test_a_wrong_row_is_named(desk: Any, line: str, words: str) -> None:
    desk.user(f"[model_providers.corp]\n{line}\n")
    with pytest.raises(ConfigError, match=words):
        desk.load()


async def test_no_tool_gives_away_a_providers_key(tmp_path: Any) -> None:
    secret = "value-of-an-odd-name-42"
    (tmp_path / "notes.txt").write_text(f"the key is {secret} and bearer-0123456789\n")
    env = {"PATH": "/usr/bin:/bin", "CORP_ACCESS": secret, "HOME": str(tmp_path)}
    provider = {"env_key": "CORP_ACCESS", "experimental_bearer_token": "bearer-0123456789"}
    config = default_config(
        {
            "model_providers.corp": provider,
            "approval_policy": "never",
            "sandbox_mode": "danger-full-access",
        },
        workspace=tmp_path,
        home=tmp_path / "home",
        env=env,
    )
    async with Toolrest(tmp_path, config=config, env=env) as rest:
        read = await rest.call("read_file", {"file_path": str(tmp_path / "notes.txt")})
        assert secret not in read.text
        assert "bearer-0123456789" not in read.text
        ran = await rest.call("exec_command", {"cmd": "echo got=$CORP_ACCESS.", "login": False})
        assert "got=." in ran.text


@pytest.mark.parametrize(
    ("lines", "provider", "model"),
    [
        ("model = 'ollama:qwen3:8b'", "ollama", "qwen3:8b"),
        ("model_provider = 'ollama'\nmodel = 'qwen3:8b'", "ollama", "qwen3:8b"),
        ("model_provider = 'ollama'\nmodel = 'llama3:8b'", "ollama", "llama3:8b"),
        ("model_provider = 'ollama'\nmodel = 'codellama:7b'", "ollama", "codellama:7b"),
        ("model_provider = 'ollama'\nmodel = 'anthropic:m'", "anthropic", "m"),
        ("model_provider = 'openrouter'\nmodel = 'x/y:free'", "openrouter", "x/y:free"),
        ("model_provider = 'openai'\nmodel = 'ft:gpt-5:me::1'", "openai", "ft:gpt-5:me::1"),
        ("model = 'openai:ft:gpt-5:me::1'", "openai", "ft:gpt-5:me::1"),
        ("model = 'corp:m'\n[model_providers.corp]\nbase_url = 'http://127.0.0.1:9'", "corp", "m"),
        ("model = 'gpt-5.5'", "openai", "gpt-5.5"),
    ],
)
def test_a_known_provider_before_the_first_colon_is_the_provider(
    desk: Any, lines: str, provider: str, model: str
) -> None:
    desk.user(lines)
    settings = desk.load().value
    assert (settings.model_provider, settings.model) == (provider, model)


@pytest.mark.parametrize("provider", ["", "model_provider = 'ollama'\n"])
@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("antropic:claude-5", "anthropic:claude-5"),
        ("opneai:gpt-5.5", "openai:gpt-5.5"),
        ("OpenAI:gpt-5.5", "openai:gpt-5.5"),
        ("corpp:m", "corp:m"),
    ],
)
@pytest.mark.parametrize("place", ["model = ", "[agents.roles.helper]\nmodel = "])
def test_a_misspelt_provider_is_an_error_in_any_case(
    desk: Any, provider: str, model: str, meant: str, place: str
) -> None:
    desk.user(
        f"{provider}{place}'{model}'\n[model_providers.corp]\nbase_url = 'http://127.0.0.1:9'"
    )
    word = model.partition(":")[0]
    with pytest.raises(ConfigError, match=f"called '{word}'; did you mean {meant}?"):
        desk.load()


def test_a_colon_without_any_provider_is_an_error_that_says_how_to_write_it() -> None:
    with pytest.raises(ConfigError, match=r"there are anthropic, .* PROVIDER:qwen3:8b"):
        default_config({"model": "qwen3:8b"})


def test_the_providers_that_settings_may_name_are_those_that_there_are() -> None:
    assert set(BUILT_IN_PROVIDERS) == set(BUILT_IN)


def test_a_project_does_not_choose_where_prompts_go(desk: Any) -> None:
    desk.trusting("model = 'gpt-5.5'")
    desk.project("model = 'openrouter:gpt-5.5'")
    with pytest.raises(ConfigError, match="the provider is yours to choose"):
        desk.load()

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolrest.agent.open_session import open_session
from toolrest.config import Config, default_config
from toolrest.errors import ConfigError
from toolrest.secret import SafeUrl, Secret
from toolrest.testing import Fail, ScriptedServer
from toolrest.wire.apis.anthropic import AnthropicModel
from toolrest.wire.apis.chat import ChatModel
from toolrest.wire.apis.responses import ResponsesModel
from toolrest.wire.model import ModelError, ModelRequest
from toolrest.wire.model_list import ListedModel, models_in
from toolrest.wire.presets import BUILT_IN
from toolrest.wire.provider import Provider
from toolrest.wire.providers import client_for, list_models, model_for, provider_for


def config(settings: Mapping[str, Any], home: Path = Path("/nonexistent")) -> Config:
    return default_config(settings, home=home, env={})


def row(name: str = "corp", **values: Any) -> dict[str, Any]:
    base = {"base_url": "http://127.0.0.1:9/v1", **values}
    return {"model": "m", "model_provider": name, "model_providers": {name: base}}


@pytest.mark.parametrize(
    ("name", "env", "url", "kind"),
    [
        ("openai", {"OPENAI_API_KEY": "k"}, "https://api.openai.com/v1", ResponsesModel),
        ("anthropic", {"ANTHROPIC_API_KEY": "k"}, "https://api.anthropic.com/v1", AnthropicModel),
        ("ollama", {}, "http://localhost:11434/v1", ChatModel),
        ("lmstudio", {}, "http://localhost:1234/v1", ChatModel),
        ("vllm", {}, "http://localhost:8000/v1", ChatModel),
        ("openrouter", {"OPENROUTER_API_KEY": "k"}, "https://openrouter.ai/api/v1", ChatModel),
        (
            "gemini",
            {"GEMINI_API_KEY": "k"},
            "https://generativelanguage.googleapis.com/v1beta/openai",
            ChatModel,
        ),
        ("xai", {"XAI_API_KEY": "k"}, "https://api.x.ai/v1", ResponsesModel),
        ("deepseek", {"DEEPSEEK_API_KEY": "k"}, "https://api.deepseek.com/v1", ChatModel),
        ("mistral", {"MISTRAL_API_KEY": "k"}, "https://api.mistral.ai/v1", ChatModel),
        ("moonshot", {"MOONSHOT_API_KEY": "k"}, "https://api.moonshot.ai/v1", ChatModel),
        ("groq", {"GROQ_API_KEY": "k"}, "https://api.groq.com/openai/v1", ChatModel),
        (
            "openai-compatible",
            {"OPENAI_COMPATIBLE_BASE_URL": "http://10.0.0.7:9000/v1"},
            "http://10.0.0.7:9000/v1",
            ChatModel,
        ),
        ("llamacpp", {}, "http://localhost:8080/v1", ChatModel),
        ("litellm", {}, "http://localhost:4000/v1", ChatModel),
        (
            "azure",
            {
                "AZURE_OPENAI_API_KEY": "k",
                "AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/",
            },
            "https://mine.openai.azure.com/openai/v1",
            ResponsesModel,
        ),
        (
            "bedrock",
            {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "eu-west-1"},
            "https://bedrock-runtime.eu-west-1.amazonaws.com/openai/v1",
            ChatModel,
        ),
        (
            "vertex",
            {"VERTEX_ACCESS_TOKEN": "k", "GOOGLE_CLOUD_PROJECT": "my-project"},
            "https://aiplatform.googleapis.com/v1/projects/my-project/locations/global"
            "/endpoints/openapi",
            ChatModel,
        ),
    ],
)
def test_built_in_providers(name: str, env: dict[str, str], url: str, kind: type) -> None:
    model = model_for(config({"model": "m", "model_provider": name}), env)
    assert model.provider.base_url.reveal() == url
    assert isinstance(model, kind)


@pytest.mark.parametrize(
    ("name", "env", "words"),
    [
        ("azure", {"AZURE_OPENAI_API_KEY": "k"}, "Set AZURE_OPENAI_ENDPOINT"),
        ("bedrock", {"AWS_BEARER_TOKEN_BEDROCK": "k"}, "Set AWS_REGION"),
        ("vertex", {"VERTEX_ACCESS_TOKEN": "k"}, "Set GOOGLE_CLOUD_PROJECT"),
        ("openai-compatible", {}, "Set OPENAI_COMPATIBLE_BASE_URL"),
        (
            "bedrock",
            {"AWS_BEARER_TOKEN_BEDROCK": "k", "AWS_REGION": "evil.example/#"},
            "AWS_REGION is no part of the address",
        ),
    ],
)
def test_what_a_preset_lacks_is_named(name: str, env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        provider_for(config({"model": "m", "model_provider": name}), env)


@pytest.mark.parametrize(
    ("url", "wire"),
    [
        ("https://x.openai.azure.com/openai/v1", "responses"),
        ("https://openrouter.ai/api/v1", "chat"),
        ("https://api.anthropic.com/v1", "anthropic"),
        ("https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1", "chat"),
        ("https://eu-aiplatform.googleapis.com/v1/projects/p/locations/eu", "chat"),
        ("https://balancer.us-west-2.elb.amazonaws.com/v1", "responses"),  # anything at all
        ("https://openrouter.ai.evil.example/v1", "responses"),
    ],
)
def test_a_row_of_ones_own_is_known_by_its_address(url: str, wire: str) -> None:
    provider = provider_for(config(row(base_url=url)), {})
    assert provider.wire == wire
    assert not provider.key  # a key goes only where its owner sends it
    assert provider_for(config(row(base_url=url, wire_api="chat")), {}).wire == "chat"


@pytest.mark.parametrize(
    ("address", "text_calls", "nine"),
    [
        ("http://10.0.0.7:9000/v1", True, False),
        ("https://models.example/v1", False, False),
        ("https://api.mistral.ai/v1", False, True),
    ],
)
def test_any_address_has_what_is_usual_there(address: str, text_calls: bool, nine: bool) -> None:
    env = {"OPENAI_COMPATIBLE_BASE_URL": address, "OPENAI_COMPATIBLE_API_KEY": "k"}
    provider = provider_for(config({"model_provider": "openai-compatible"}), env)
    assert (provider.wire, provider.key) == ("chat", Secret("k"))
    assert (provider.profile.text_calls, provider.profile.nine_char_ids) == (text_calls, nine)


def test_every_preset_is_in_the_manual() -> None:
    text = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    for name, preset in BUILT_IN.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| `{name}`"))
        assert preset.base_url in line
        assert f"`{preset.env_key}`" in line
        assert f"| {preset.wire} |" in line


def test_a_claude_needs_no_provider() -> None:
    model = model_for(config({"model": "claude-sonnet-4-5"}), {"ANTHROPIC_API_KEY": "k"})
    assert isinstance(model, AnthropicModel)
    assert model.context_window == 200_000
    newer = model_for(config({"model": "claude-sonnet-5-5"}), {"ANTHROPIC_API_KEY": "k"})
    assert newer.context_window == 1_000_000


@pytest.mark.parametrize(
    ("name", "env", "url"),
    [
        ("ollama", {"OLLAMA_HOST": "box"}, "http://box:11434/v1"),
        ("ollama", {"OLLAMA_HOST": "0.0.0.0:9000"}, "http://127.0.0.1:9000/v1"),
        ("ollama", {"OLLAMA_HOST": "https://box:1/"}, "https://box:1/v1"),
        ("openai", {"OPENAI_BASE_URL": "http://x/v2/", "OPENAI_API_KEY": "k"}, "http://x/v2"),
        ("anthropic", {"ANTHROPIC_BASE_URL": "http://x", "ANTHROPIC_API_KEY": "k"}, "http://x/v1"),
    ],
)
def test_addresses_from_the_environment(name: str, env: dict[str, str], url: str) -> None:
    assert provider_for(config({"model_provider": name}), env).base_url.reveal() == url


def test_a_row_changes_a_built_in_only_where_it_says() -> None:
    given = config({"model_providers.openai": {"request_max_retries": 1}})
    provider = provider_for(given, {"OPENAI_API_KEY": "k"})
    assert provider.base_url == SafeUrl("https://api.openai.com/v1")
    assert provider.request_max_retries == 1
    assert provider.key.reveal() == "k"


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(ConfigError, match="Missing environment variable: `OPENAI_API_KEY`"):
        provider_for(config({}), {})
    given = config(row(env_key="CORP", env_key_instructions="Ask Bob."))
    with pytest.raises(ConfigError, match=r"Missing environment variable: `CORP`\. Ask Bob\."):
        provider_for(given, {"CORP": "  "})


def test_keys_have_an_order() -> None:
    both = row(env_key="CORP", experimental_bearer_token="literal")
    assert provider_for(config(both), {"CORP": "from-env"}).key == Secret("from-env")
    assert provider_for(config(row(experimental_bearer_token="literal")), {}).key == Secret(
        "literal"
    )
    assert provider_for(config(row()), {}).key == Secret()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model_provider": "nobody"}, "no provider is called 'nobody'; there are anthropic,"),
        (row(base_url="ftp://x"), "base_url: expected an http"),
        (row(base_url="http://"), "base_url: expected an http"),
        (row(base_url="http://a b/"), "base_url: expected an http"),
        (
            {"model_provider": "x", "model_providers": {"x": {"name": "x"}}},
            "model_providers.x.base_url",
        ),
        (row(requires_openai_auth=True), "there is no login here"),
        (row(http_headers={"X": "a\nb"}), "HTTP header"),
        (row(request={"seed": 1}), r"request\.seed: the responses API has no such field"),
        (
            row(wire_api="anthropic", models={"m": {"seed": 1}}),
            r"models\.m\.seed: the anthropic API has no such field",
        ),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        provider_for(config(settings), {})


def test_no_model_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match="no model is set"):
        model_for(config({}), {"OPENAI_API_KEY": "k"})


def test_patience_headers_and_capabilities_are_taken_over() -> None:
    given = row(
        wire_api="chat",
        request_max_retries=1000,
        stream_max_retries=7,
        stream_idle_timeout_ms=1500,
        http_headers={"X-A": "1"},
        env_http_headers={"X-B": "TEAM", "X-C": "UNSET"},
        query_params={"v": "1"},
        capabilities={"tool_images": "inline", "text_calls": False},
    )
    provider = provider_for(config(given), {"TEAM": "blue"})
    assert (provider.request_max_retries, provider.stream_max_retries) == (100, 7)
    assert provider.idle_timeout == 1.5
    assert provider.headers == {"X-A": Secret("1"), "X-B": Secret("blue")}
    assert provider.url("x") == "http://127.0.0.1:9/v1/x?v=1"
    assert provider.profile.tool_images == "inline"
    assert not provider.profile.text_calls


@pytest.mark.parametrize(
    ("given", "is_openai"),
    [
        ({"base_url": "https://api.openai.com/v1"}, True),
        ({"base_url": "https://mine.openai.azure.com/openai/v1"}, True),
        ({"base_url": "https://api.example.com/v1"}, False),
    ],
)
def test_openais_own_chat_api_has_its_names_of_fields(given: Any, is_openai: bool) -> None:
    """Its reasoning models refuse `max_tokens`."""
    model = client_for(provider_for(config(row(wire_api="chat", **given)), {}), "gpt-5")
    model.max_output_tokens = 99
    body = json.loads(model.body(ModelRequest("gpt-5", [], "be brief")))
    assert ("max_completion_tokens" in body, "max_tokens" in body) == (is_openai, not is_openai)
    assert body["messages"][0]["role"] == ("developer" if is_openai else "system")


def test_calls_in_text_count_only_near_by() -> None:
    near = provider_for(config(row(wire_api="chat", base_url="http://192.168.1.5:8080/v1")), {})
    far = provider_for(config(row(wire_api="chat", base_url="https://api.example.com/v1")), {})
    assert near.profile.text_calls
    assert not far.profile.text_calls


def test_context_window_and_its_setting() -> None:
    env = {"OPENAI_API_KEY": "k"}
    assert model_for(config({"model": "gpt-5"}), env).context_window == 272_000
    assert model_for(config({"model": "made-up"}), env).context_window is None
    own = config({"model": "made-up", "model_context_window": 9000})
    assert model_for(own, env).context_window == 9000


async def test_models_are_listed() -> None:
    async with ScriptedServer([], models=("b", "gpt-5.5"), key="k1234567") as server:
        found = await list_models(Provider("x", SafeUrl(server.url), key=Secret("k1234567")))
        assert found == [ListedModel("b"), ListedModel("gpt-5.5")]
        claude = Provider("x", SafeUrl(server.url), "anthropic", key=Secret("k1234567"))
        assert len(await list_models(claude)) == 2
        assert server.listings[1].headers["x-api-key"] == "k1234567"
        with pytest.raises(ModelError) as caught:
            await list_models(Provider("x", SafeUrl(server.url)))
    assert caught.value.kind == "auth"


@pytest.mark.parametrize(
    ("row", "window"),
    [
        ({"meta": {"n_ctx": 4096, "n_ctx_train": 131072}}, 4096),  # llama.cpp
        ({"context_length": 8192}, 8192),  # OpenRouter
        ({"max_model_len": 8192}, 8192),  # vLLM
        ({"max_context_length": 131072, "loaded_context_length": 4096}, 4096),  # LM Studio
        ({"context_length": 0, "meta": None}, None),
        ({"context_length": "8192"}, None),
        ({"context_length": True}, None),
    ],
)
def test_the_window_in_a_list_of_models(row: dict[str, Any], window: int | None) -> None:
    assert models_in({"data": [{"id": "m", **row}]}) == [ListedModel("m", window)]


def test_a_model_that_is_listed_twice() -> None:
    rows: list[Any] = [{"id": "m", "n_ctx": 5}, {"id": "m"}, {"id": "a"}, None, {"id": 7}]
    assert models_in({"data": rows}) == [
        ListedModel("a"), ListedModel("m", 5), ListedModel("m"),
    ]  # fmt: skip


async def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scripted server plays the proxy: it is asked for another host's address."""
    async with ScriptedServer(["by proxy", Fail(500)]) as server:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, server.url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        provider = Provider("x", SafeUrl("http://model.invalid/v1"), request_max_retries=0)
        model = ResponsesModel(provider, "m")
        events = [event async for event in model.stream(ModelRequest("m", []))]
        await model.aclose()
        assert events
        assert server.requests[0].path == "http://model.invalid/v1/responses"
        monkeypatch.setenv("NO_PROXY", "model.invalid")
        monkeypatch.setenv("no_proxy", "model.invalid")
        direct = ResponsesModel(provider, "m")
        with pytest.raises(ModelError) as caught:
            await anext(direct.stream(ModelRequest("m", [])))
        await direct.aclose()
    assert caught.value.kind == "unreachable"
    assert len(server.requests) == 1


def test_options_of_requests() -> None:
    given = row(
        wire_api="chat",
        request={"temperature": 0.5, "context_window": "auto"},
        models={"m": {"context_window": 8192}},
    )
    provider = provider_for(config(given), {})
    assert provider.options("m") == {"temperature": 0.5, "context_window": 8192}
    assert client_for(provider, "m").context_window == 8192
    assert client_for(provider, "other").context_window is None


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
@pytest.mark.parametrize("models", [("other", "m"), ("only",)])
async def test_a_near_server_is_asked_for_the_window(wire: str, models: tuple[str, ...]) -> None:
    """As llama.cpp answers: the window that it was started with, not the model's own.

    It takes any name for the one model that it has.
    """
    async with ScriptedServer(["ok"], models=models, context_window=4096) as server:
        given = row(wire_api=wire, base_url=server.url)
        model = client_for(provider_for(config(given), {}), "m")
        assert model.context_window is None
        async with asyncio.timeout(30):
            async for _ in model.stream(ModelRequest("m", [], "be brief")):
                pass
            while model.context_window is None:
                await asyncio.sleep(0.01)
        await model.aclose()
    assert model.context_window == 4096


async def test_a_server_is_asked_for_the_window_even_where_a_table_knows_it(
    tmp_path: Path,
) -> None:
    async with ScriptedServer(["ok"] * 50, models=("gpt-4.1",), context_window=4096) as server:
        given = row(wire_api="chat", base_url=server.url, request={"context_window": "auto"})
        settings = default_config({**given, "model": "gpt-4.1"}, workspace=tmp_path, home=tmp_path)
        async with open_session(settings, ephemeral=True) as session:
            assert session.accounting.window not in (None, 4096)
            async with asyncio.timeout(30):
                while session.accounting.window != 4096:
                    await session.run("go")


def test_the_users_row_of_a_family_chooses_the_wire() -> None:
    kinds = {"responses": ResponsesModel, "chat": ChatModel, "anthropic": AnthropicModel}
    for wire, kind in kinds.items():
        families = {"mine": {"prefixes": ["m"], "wire": wire}}
        for provider in (row(), row(wire_api="chat"), {"model": "m", "model_provider": "openai"}):
            settings = config({**provider, "model_families": families})
            model = model_for(settings, {"OPENAI_API_KEY": "k"})
            assert (model.wire, type(model)) == (wire, kind)
    # Other models, and rows that leave it open, have their provider's.
    others = {"mine": {"prefixes": ["x"], "wire": "anthropic"}, "m": {"parallel": True}}
    for provider, kind in ((row(), ResponsesModel), (row(wire_api="chat"), ChatModel)):
        assert isinstance(model_for(config({**provider, "model_families": others}), {}), kind)
    with pytest.raises(ConfigError, match=r"model_families\.mine\.wire"):
        config({**row(), "model_families": {"mine": {"wire": "mcp"}}})

"""`toolrest models`: what is known of the models of every provider, asked for or offline."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from toolrest.wire.presets import BUILT_IN, placeholders

KEY = "sk-a-key-of-the-person-1"
NOWHERE = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
SUPPORTED = {"supported": True}
# A list in the form of each server, from its published schema; not recorded.
OPENAI_LIST = {"object": "list", "data": [{"id": "gpt-6.1-sol", "object": "model", "created": 1}]}
LISTS: dict[str, tuple[Any, dict[str, Any]]] = {
    "openai": (OPENAI_LIST, {"context_window": 272_000, "efforts": "none low medium high"}),
    "anthropic": (
        {
            "data": [
                {
                    "type": "model",
                    "id": "claude-sonnet-5-5",
                    "max_input_tokens": 900_000,
                    "max_tokens": 128_000,
                    "capabilities": {
                        "effort": {"supported": True, "low": SUPPORTED, "max": SUPPORTED}
                    },
                }
            ],
            "has_more": False,
        },
        {"context_window": 900_000, "efforts": "low max"},
    ),
    "openrouter": (
        {
            "data": [
                {
                    "id": "qwen/qwen3-max",
                    "context_length": 262_144,
                    "pricing": {
                        "prompt": "0.0000012",
                        "completion": "0.000006",
                        "input_cache_read": "0.00000024",
                    },
                }
            ]
        },
        {"context_window": 262_144, "price": {"input": 1.2, "cached_input": 0.24, "output": 6}},
    ),
    "ollama": ({"data": [{"id": "qwen3:8b", "owned_by": "library"}]}, {"context_window": None}),
    "llamacpp": (
        {"data": [{"id": "qwen3", "meta": {"n_ctx": 32_768, "n_ctx_train": 131_072}}]},
        {"context_window": 32_768, "price": None},
    ),
    "lmstudio": (
        {"data": [{"id": "qwen3", "max_context_length": 131_072, "loaded_context_length": 4096}]},
        {"context_window": 4096},
    ),
    "vllm": ({"data": [{"id": "qwen3", "max_model_len": 65_536}]}, {"context_window": 65_536}),
    "litellm": ({"data": [{"id": "team-model", "object": "model"}]}, {"price": None}),
    "azure": ({"data": [{"id": "my-deployment"}]}, {"context_window": None, "price": None}),
    "bedrock": ({"data": [{"id": "openai.gpt-oss-120b-1:0"}]}, {"price": None}),
    "vertex": ({"data": [{"id": "google/gemini-4-argon"}]}, {"price": None}),
    "gemini": (
        {"object": "list", "data": [{"id": "models/gemini-4-argon", "owned_by": "google"}]},
        {"price": None, "efforts": ""},
    ),
    "xai": ({"data": [{"id": "grok-4.7", "object": "model"}]}, {"price": None}),
    "deepseek": (
        {"object": "list", "data": [{"id": "deepseek-v4-pro", "owned_by": "deepseek"}]},
        {"efforts": "low high max"},
    ),
    "mistral": (
        {"data": [{"id": "mistral-large-4", "max_context_length": 1_048_576}]},
        {"price": None},
    ),
    "moonshot": (
        {"data": [{"id": "kimi-k3.1-pro", "context_length": 262_144}]},
        {"context_window": 262_144},
    ),
    "groq": (
        {"data": [{"id": "openai/gpt-oss-120b", "context_window": 131_000}]},
        {"context_window": 131_000, "efforts": "low medium high"},
    ),
    "openai-compatible": (
        {"data": [{"id": "corp-model", "max_model_len": 40_000}]},
        {"context_window": 40_000, "price": None},
    ),
}


class Server:
    """A server whose list of models can be set; it counts how often it is asked."""

    def __init__(self) -> None:
        self.body: Any = {"data": []}
        self.asked = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked += 1
                given = server.body
                body = given if isinstance(given, bytes) else json.dumps(given).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def at_server(desk: Any, server: Server) -> Callable[..., Server]:
    """Makes the server the address of a built-in provider."""

    def place(name: str, more: str = "") -> Server:
        text = f'[model_providers.{name}]\nbase_url = "{server.url}"\n{more}'
        (desk.home / "config.toml").write_text(text)
        return server

    return place


def environment(name: str) -> dict[str, str]:
    """The key of a provider, and the variables that its address needs."""
    row = BUILT_IN[name]
    named = dict.fromkeys(placeholders(row.base_url), "place")
    if row.base_url.startswith("{"):
        address = "https://place.openai.azure.com" if name == "azure" else "http://127.0.0.1:9/v1"
        named[placeholders(row.base_url)[0]] = address
    return {row.env_key or "": KEY, **named}


def asked(desk: Any, name: str, **env: str) -> list[dict[str, Any]]:
    ran = desk.run("models", name, "--json", env=environment(name) | env)
    assert ran.code == 0, ran.err
    return list(json.loads(ran.out))


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_every_provider_is_asked_and_its_answer_counts_first(
    desk: Any, at_server: Callable[..., Server], name: str
) -> None:
    server = at_server(name)
    server.body, expected = LISTS[name]
    (row,) = asked(desk, name)
    assert row["id"] == server.body["data"][0]["id"]
    if "efforts" in expected:
        assert " ".join(row["efforts"]).startswith(expected.pop("efforts"))
    if wanted := expected.get("price"):
        expected["price"] = wanted | dict.fromkeys(("cache_write", "long_above", "long"))
    assert {key: row[key] for key in expected} == expected
    server.close()
    assert asked(desk, name) == [row], "without a network the list that was kept counts"


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT_IN)
def test_offline_the_newest_models_have_prices_where_they_are_public(desk: Any, name: str) -> None:
    preset = BUILT_IN[name]
    ran = desk.run("models", name, "--json", env=environment(name) | NOWHERE)
    if preset.prices is None:
        assert ran.code == 1
        assert "cannot reach" in ran.err
        return
    assert ran.code == 0, ran.err
    assert f"{name}: from genai-prices" in ran.err
    rows = {row["id"]: row for row in json.loads(ran.out)}
    newest = {
        "openai": ("gpt-6.1-sol", "gpt-6.1-terra"),
        "anthropic": ("claude-opus-5-5", "claude-sonnet-5-5"),
        "openrouter": ("openai/gpt-6.1-sol", "anthropic/claude-sonnet-5.5"),
        "azure": ("gpt-6.1-sol", "gpt-6.1-terra"),
        "bedrock": ("global.anthropic.claude-sonnet-5-5", "openai.gpt-oss-120b-1:0"),
        "vertex": ("gemini-4-argon", "gemini-3.8-flash"),
        "gemini": ("gemini-4-argon", "gemini-3.8-flash"),
        "xai": ("grok-4.7", "grok-4.6"),
        "deepseek": ("deepseek-v4-pro", "deepseek-flash"),
        "mistral": ("mistral-large-4", "mistral-medium-3-5"),
        "moonshot": ("kimi-k3.1-pro", "kimi-k3"),
        "groq": ("openai/gpt-oss-120b", "qwen/qwen3.8-27b"),
    }
    for model in newest[name]:
        price = rows[model]["price"]
        assert 0 < price["input"] < price["output"]
        assert rows[model]["sources"]["price"] == "data"
        assert rows[model]["context_window"] >= 128_000


def test_the_table_says_where_its_figures_come_from(
    desk: Any, at_server: Callable[..., Server]
) -> None:
    more = '[model_prices."qwen3"]\ninput = 1\noutput = 2.5\n'
    at_server("llamacpp", more).body = LISTS["llamacpp"][0]
    ran = desk.run("models", "llamacpp")
    head, line, *notes = ran.out.splitlines()
    assert head.split() == ["model", "window", "$", "in", "/", "cached", "/", "out", "effort"]
    assert line.split() == ["qwen3", "33k²", "1", "/", "–", "/", "2.5¹", "–"]
    assert notes[-1].startswith("¹ your settings  ² the provider's list, 0 s ago")


def test_a_model_of_which_nothing_is_known(desk: Any, serve: Any) -> None:
    serve([])
    ran = desk.run("models")
    assert ran.code == 0
    assert ran.out.splitlines()[1:] == ["  scripted  –       –                    –"]


def test_the_kept_list_has_no_key_and_is_private(
    desk: Any, at_server: Callable[..., Server]
) -> None:
    server = at_server("vllm", 'query_params = { token = "sk-in-the-address-1" }\n')
    server.body = {"data": [{"id": "m", "max_model_len": 5000, "key": KEY}]}
    asked(desk, "vllm")
    (kept,) = (desk.home / "cache" / "models").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert (desk.home / "cache" / "models").stat().st_mode & 0o777 == 0o700
    assert "5000" in kept.read_text()
    assert "sk-" not in kept.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"[]",
        b'{"models": [{"id": "m", "context_window": -1}], "listed": 1}',
        b'{"models": [{"id": "\\u001b[31mred"}], "listed": 1}',
        b'{"models": [{"id": "m", "efforts": ["rm -rf"]}], "listed": 1}',
        b'{"models": [], "listed": 1, "more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"models": [{"id": "m"}], "listed": 1, "more": "' + b"x" * (4 << 20) + b'"}',
        None,
    ],
)
def test_a_broken_copy_is_ignored(
    desk: Any, at_server: Callable[..., Server], broken: bytes | None
) -> None:
    server = at_server("vllm")
    server.body = {"data": [{"id": "m", "max_model_len": 5000}]}
    asked(desk, "vllm")
    (kept,) = (desk.home / "cache" / "models").iterdir()
    kept.unlink()
    if broken is None:
        os.mkfifo(kept)
    else:
        kept.write_bytes(broken)
    server.close()
    ran = desk.run("models", "vllm")
    assert (ran.code, ran.out) == (1, "")
    assert "cannot reach" in ran.err
    assert "\x1b" not in ran.err


def test_what_a_server_lists_is_checked(desk: Any, at_server: Callable[..., Server]) -> None:
    server = at_server("openrouter")
    server.body = {
        "data": [
            {"id": "\x1b[31mred"},
            {"id": "n" * 201},
            {"id": "dear", "pricing": {"prompt": "1e99", "completion": "0.1"}},
            {"id": "auto", "pricing": {"prompt": "-1", "completion": "-1"}},
            {"id": "odd", "context_length": 10**12, "pricing": ["0.1"]},
            {"id": "words", "reasoning": {"supported_efforts": ["high", "evil\x1b", 7]}},
            {"id": "nan", "pricing": {"prompt": "nan", "completion": "inf"}},
        ]
    }
    rows = {row["id"]: row for row in asked(desk, "openrouter")}
    assert rows.keys() == {"dear", "auto", "words", "nan"}
    assert [row["price"] for row in rows.values()] == [None] * 4
    assert rows["words"]["efforts"] == ["high"]


@pytest.mark.slow
def test_only_a_command_that_asks_opens_a_connection(
    desk: Any, at_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = at_server("openai")
    for words in (("config", "show"), ("models", "--providers"), ("sessions",)):
        desk.run(*words, env=environment("openai"))
    assert server.asked == 0


@pytest.mark.slow
def test_a_projects_settings_change_no_price(desk: Any, at_server: Callable[..., Server]) -> None:
    at_server("llamacpp").body = LISTS["llamacpp"][0]
    folder = desk.workspace / ".toolrest"
    folder.mkdir()
    (folder / "config.toml").write_text('[model_prices."qwen3"]\ninput = 0\noutput = 0\n')
    assert desk.run("trust", str(desk.workspace)).code == 0
    ran = desk.run("models", "llamacpp")
    assert ran.code == 2
    assert "may not set model_prices.qwen3.input" in ran.err


def test_providers_are_listed_without_asking_them(desk: Any, serve: Any) -> None:
    server = serve([])
    ran = desk.run("models", "--providers")
    assert ran.code == 0
    lines = {line.strip("* ").split()[0]: line for line in ran.out.splitlines()}
    assert {"openai", "anthropic", "ollama", "lmstudio", "vllm", "openrouter"} < lines.keys()
    assert lines["scripted"].startswith("* ")
    assert server.url in lines["scripted"]
    assert server.requests == []


def test_a_list_that_nests_too_deep(desk: Any, at_server: Callable[..., Server]) -> None:
    """Failed before: a traceback."""
    at_server("vllm").body = b"[" * 100_000 + b"]" * 100_000
    ran = desk.run("models", "vllm")
    assert ran.code == 1
    assert "did not answer with JSON" in ran.err


@pytest.mark.slow
def test_an_endpoint_that_is_not_there(desk: Any, serve: Any) -> None:
    server = serve([])
    url = server.url
    server.__exit__()
    ran = desk.run("models")
    assert ran.code == 1
    assert f"cannot reach {url}/models" in ran.err
    assert desk.run("models", "nobody").code == 2

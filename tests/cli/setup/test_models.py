from __future__ import annotations

import json
from typing import Any


def test_models_of_the_configured_provider(desk: Any, serve: Any) -> None:
    serve([])
    ran = desk.run("models")
    assert (ran.code, ran.out.split()) == (0, ["scripted"])
    listed = json.loads(desk.run("models", "--json").out)
    assert listed == [{"id": "scripted", "context_window": None}]


def test_providers_are_listed_without_asking_them(desk: Any, serve: Any) -> None:
    server = serve([])
    ran = desk.run("models", "--providers")
    assert ran.code == 0
    lines = {line.strip("* ").split()[0]: line for line in ran.out.splitlines()}
    assert {"openai", "anthropic", "ollama", "lmstudio", "vllm", "openrouter"} < lines.keys()
    assert lines["scripted"].startswith("* ")
    assert server.url in lines["scripted"]
    assert server.requests == []


def test_an_endpoint_that_is_not_there(desk: Any, serve: Any) -> None:
    server = serve([])
    url = server.url
    server.__exit__()
    ran = desk.run("models")
    assert ran.code == 1
    assert f"cannot reach {url}/models" in ran.err
    assert desk.run("models", "nobody").code == 2

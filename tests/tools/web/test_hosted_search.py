"""The search of the model's own server: where it is offered, and that it counts as a call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolrest import Agent, Toolrest, events
from toolrest.testing import Call, Raw, ScriptedModel

GPT: dict[str, Any] = {"model": "gpt-5.1", "tools": ["web", "read"]}
LIVE = {"web_search": "live"}
SERVICE = {"search.backend": "searxng", "search.url": "https://search.example"}
OLD = {"tools.tools_web_search_request": True}
HOSTED = {"type": "web_search", "external_web_access": True}
DONE = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "tea prices"},
}


def form(rest: Toolrest) -> str:
    """How web_search is offered on the Responses wire."""
    found = [
        spec["type"]
        for spec in rest.specs("responses")
        if "web_search" in (spec["type"], spec.get("name"))
    ]
    return found[0] if found else "nothing"


@pytest.mark.parametrize(
    ("policy", "chosen", "old"),
    [
        ("untrusted", "function", "function"),
        ("auto", "function", "function"),
        ("strict", "function", "function"),
        ("on-request", "web_search", "function"),
        ("on-failure", "web_search", "function"),
        ("dangerous", "web_search", "function"),
    ],
)
def test_hosted_only_where_a_call_is_not_asked_about(
    tmp_path: Path, policy: str, chosen: str, old: str
) -> None:
    for setting, wanted in ((LIVE, chosen), (OLD, old)):
        with_service = {**setting, **SERVICE, "approval_policy": policy}
        assert form(Toolrest(tmp_path, settings=with_service, **GPT)) == wanted, setting
        without = {**setting, "approval_policy": policy}
        kept = wanted if wanted == "web_search" else "nothing"
        assert form(Toolrest(tmp_path, settings=without, **GPT)) == kept, setting


def test_the_users_own_overrides_count_for_it(tmp_path: Path) -> None:
    for say in ("ask", "deny"):
        settings = {**LIVE, "approvals.tools": {"web_search": say}}
        assert form(Toolrest(tmp_path, settings=settings, **GPT)) == "nothing"


@pytest.mark.parametrize(
    ("lists", "filters"),
    [
        ({}, None),
        ({"search.allowed_domains": ["a.example", "*.a.example"]}, ["a.example"]),
        ({"tool_security.allowed_network_domains": ["a.example", "*.a.example"]}, ["a.example"]),
        (
            {
                "search.allowed_domains": ["a.example", "*.a.example", "c.example", "*.c.example"],
                "tool_security.allowed_network_domains": ["b.a.example", "*.b.a.example"],
            },
            ["b.a.example"],
        ),
    ],
)
def test_lists_go_into_the_spec(
    tmp_path: Path, lists: dict[str, list[str]], filters: list[str] | None
) -> None:
    rest = Toolrest(tmp_path, settings={**LIVE, **lists}, **GPT)
    wanted = HOSTED if filters is None else {**HOSTED, "filters": {"allowed_domains": filters}}
    assert wanted in rest.specs("responses")


@pytest.mark.parametrize(
    "lists",
    [
        {"search.blocked_domains": ["a.example"]},
        {"search.allowed_domains": ["a.example"]},
        {"search.allowed_domains": ["*.a.example"]},
        {"tool_security.allowed_network_domains": []},
        {"tool_security.allowed_network_domains": ["10.0.0.0/8"]},
        {"tool_security.allowed_network_domains": ["a.example:443", "*.a.example:443"]},
        {
            "search.allowed_domains": ["a.example", "*.a.example"],
            "tool_security.allowed_network_domains": ["b.example", "*.b.example"],
        },
    ],
)
def test_a_list_that_the_server_cannot_hold_means_the_function(
    tmp_path: Path, lists: dict[str, list[str]]
) -> None:
    assert form(Toolrest(tmp_path, settings={**LIVE, **SERVICE, **lists}, **GPT)) == "function"
    assert form(Toolrest(tmp_path, settings={**LIVE, **lists}, **GPT)) == "nothing"


async def test_it_counts_as_a_call(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    home = tmp_path / "home"
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine.txt").write_text("private")
    async with Toolrest(tmp_path / "work", settings=LIVE, home=home, **GPT) as rest:
        rest.subscribe(lambda event: seen.append(event.to_json()))
        assert form(rest) == "web_search"
        assert await rest.answer([DONE]) == []
        assert form(rest) == "web_search"
        await rest.call("read_file", {"file_path": "mine.txt"})
        # What it found may want that file sent out, and a query could carry it.
        assert form(rest) == "nothing"
        audit = rest.session.audit
        assert audit is not None
        audit.sync()
        lines = [json.loads(line) for line in Path(audit.path or "").read_text().splitlines()]
    names = [event["type"] for event in seen if event.get("call_id") == "ws_1"]
    assert names == [
        "tool_call_begin",
        "tool_call_decision",
        "web_search_begin",
        "web_search_end",
        "tool_call_end",
    ]
    found = [line for line in lines if line.get("call_id") == "ws_1"]
    assert [line["type"] for line in found] == ["decision", "result"]
    assert found[0]["arguments"] == "tea prices"


async def test_the_items_of_a_models_reply_count(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("private")
    model = ScriptedModel([[Raw(DONE), Call("read_file", {"file_path": "mine.txt"})], "done"])
    agent = Agent(model, tools=["web", "read"], workspace=tmp_path, settings=LIVE)
    async with agent.stream("go") as run:
        ended = [event async for event in run if isinstance(event, events.WebSearchEnd)]
    assert [event.query for event in ended] == ["tea prices"]
    first, second = ([spec.get("type") for spec in r.tools] for r in model.requests)
    assert "web_search" in first
    assert "web_search" not in second


async def test_without_a_back_end_it_is_not_offered_and_one_line_says_so(tmp_path: Path) -> None:
    model = ScriptedModel(["done"], wire="chat")
    agent = Agent(model, tools=["web"], workspace=tmp_path, settings=LIVE)
    async with agent.stream("go") as run:
        warned = [event.message async for event in run if isinstance(event, events.Warning)]
    assert [line for line in warned if "web_search" in line] == [
        "web_search is not configured: set search.backend to searxng (with search.url), brave or "
        "tavily (with its key in the environment), or give a function to rest.use_search()"
    ]
    assert "web_search" not in json.dumps(model.requests[0].tools)


def test_tools_all_says_what_is_missing(tmp_path: Path) -> None:
    settings = {**LIVE, "model_provider": "anthropic"}
    rest = Toolrest(tmp_path, tools=["all"], settings=settings, model="claude-sonnet-4-5")
    [state] = [state for state in rest.tool_states() if state.name == "web_search"]
    assert (state.offered, state.callable) == (False, True)
    assert state.why.startswith("web_search is not configured: set search.backend")
    assert rest.specs("anthropic")
    assert "web_search" not in json.dumps(rest.specs("anthropic"))


async def test_a_search_that_the_user_chose_is_not_asked_about(tmp_path: Path) -> None:
    rest = Toolrest(tmp_path, settings={**LIVE, **SERVICE}, **GPT)
    assert str(rest.explain("web_search", {"query": "q"}).verdict) == "allow"
    older = Toolrest(tmp_path, settings={**OLD, **SERVICE}, **GPT)
    assert str(older.explain("web_search", {"query": "q"}).verdict) == "ask"


async def test_hosted_items_are_answered_by_their_own_kind(tmp_path: Path) -> None:
    search = {"type": "web_search_call", "call_id": "w1", "status": "in_progress"}
    image = {"type": "view_image_call", "call_id": "v1"}
    async with Toolrest(tmp_path) as rest:
        searched, viewed = await rest.answer([search, image])
    assert searched["type"] == "web_search_call_output"
    assert searched["results"] == []
    assert "`query`" in searched["error"]
    assert viewed["type"] == "view_image_call_output"
    assert viewed["image_data"] is None
    assert "image_path" in viewed["metadata"]["error"]

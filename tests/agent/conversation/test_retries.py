"""Requests that fail and are repeated: one counter, one sentence a time, no text twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.testing import Cut, Fail, Say
from toolrest.testing.server import ScriptedServer

WIRES = ("responses", "chat", "anthropic")
PAGE = (
    "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head>"
    "<body><center><h1>502 Bad Gateway</h1></center><hr>nginx</body></html>"
)
Open = Callable[..., Conversation]


@pytest.fixture
async def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """Opens sessions with a server, whose retries take no time."""
    made: list[Conversation] = []
    for module in ("agent.conversation.loop", "wire.http.endpoint"):
        monkeypatch.setattr(f"toolrest.{module}.retry_delay", lambda *_: 0.0)

    def make(server: ScriptedServer, wire: str, **more: Any) -> Conversation:
        row = {"base_url": server.url, "wire_api": wire, **more}
        given = {"model": "m", "model_provider": "p", "model_providers": {"p": row}}
        made.append(open_session(default_config(given, workspace=tmp_path), ephemeral=True))
        return made[-1]

    yield make
    for session in made:
        await session.aclose()


def heard(session: Conversation) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {"stream_error": [], "agent_message": [], "delta": []}

    def hear(event: Any) -> None:
        if event.type == "agent_message_content_delta":
            seen["delta"].append(event.delta)
        elif event.type in seen:
            seen[event.type].append(event.message)

    session.rest.subscribe(hear)
    return seen


@pytest.mark.parametrize("wire", WIRES)
async def test_retries_have_one_counter_and_are_stream_max_retries_in_all(
    opened: Open, wire: str
) -> None:
    with ScriptedServer([Fail(502, "x", "down")] * 50) as server:
        session = opened(server, wire, request_max_retries=4, stream_max_retries=6)
        seen = heard(session)
        result = await session.run("go")
    posts = [request for request in server.requests if request.body]
    assert (result.status, len(posts)) == ("failed", 7)
    assert [line.split(" (")[0] for line in seen["stream_error"]] == [
        f"Reconnecting... {number}/6" for number in range(1, 7)
    ]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_web_page_as_an_error_is_one_sentence(opened: Open, wire: str) -> None:
    with ScriptedServer([Fail(502, "x", PAGE), "fine"]) as server:
        session = opened(server, wire)
        seen = heard(session)
        assert (await session.run("go")).text == "fine"
    (line,) = seen["stream_error"]
    assert line.endswith(": a web page, '502 Bad Gateway')")
    assert "<" not in line


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("cut", [["the answer", Cut()], [Say("the answer"), Cut()]], ids=str)
async def test_a_cut_stream_does_not_print_its_partial_text_again(
    opened: Open, wire: str, cut: list[Any]
) -> None:
    with ScriptedServer([cut, "the answer is 42"]) as server:
        session = opened(server, wire)
        seen = heard(session)
        assert (await session.run("go")).text == "the answer is 42"
        history = [item for item in session.history if item.get("role") == "assistant"]
    assert "".join(seen["delta"]) == "the answer is 42"
    assert seen["agent_message"] == ["the answer is 42"]
    assert len(history) == 1

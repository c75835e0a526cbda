from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from toolrest.config.schema.families import ModelWire
from toolrest.secret import SafeUrl, Secret
from toolrest.testing import ScriptedServer
from toolrest.wire.client import HttpModel
from toolrest.wire.model import Completed, ItemDone, ModelEvent, ModelRequest
from toolrest.wire.provider import Provider

Connect: TypeAlias = Callable[..., HttpModel]


def make(server: ScriptedServer, wire: ModelWire, **more: Any) -> HttpModel:
    from toolrest.wire.providers import client_for

    settings = {"request_max_retries": 0, **more}
    if "key" in settings:
        settings["key"] = Secret(settings["key"])
    for name in ("headers", "query_params"):
        if name in settings:
            settings[name] = {key: Secret(value) for key, value in settings[name].items()}
    return client_for(Provider("scripted", SafeUrl(server.url), wire, **settings), "scripted")


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Makes models on a scripted server; they are closed in the end."""
    made: list[HttpModel] = []

    def connected(server: ScriptedServer, wire: ModelWire, **more: Any) -> HttpModel:
        made.append(make(server, wire, **more))
        return made[-1]

    yield connected
    for model in made:
        await model.aclose()


@pytest.fixture
def ask() -> Callable[..., Awaitable[list[ModelEvent]]]:
    """Asks and collects the events."""

    async def asked(model: HttpModel, items: Any = (), **more: Any) -> list[ModelEvent]:
        listed = list(items) or [user("hello")]
        request = ModelRequest("scripted", listed, **more)
        return [event async for event in model.stream(request)]

    return asked


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


@pytest.fixture
def done() -> Callable[[list[ModelEvent]], list[dict[str, Any]]]:
    """The whole items among some events; the last event must be the end."""

    def items(events: list[ModelEvent]) -> list[dict[str, Any]]:
        assert isinstance(events[-1], Completed)
        return [event.item for event in events if isinstance(event, ItemDone)]

    return items

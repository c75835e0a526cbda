"""Sessions with a scripted model, real tools and a journal in the test's own home."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.agent.conversation.conversation import Conversation
from toolrest.agent.open_session import open_session
from toolrest.config.loader import default_config
from toolrest.testing import ScriptedModel

Make = Callable[..., Conversation]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
async def agent(workspace: Path, toolrest_home: Path) -> AsyncIterator[Make]:
    """Makes sessions; each is closed after the test. `model` is a script or a model."""
    made: list[Conversation] = []

    def make(
        model: Any,
        *,
        resume: str | None = None,
        ephemeral: bool = False,
        on_ask: Any = None,
        tools: Any = (),
        trusted: bool | None = None,
        source: str = "exec",
        **settings: Any,
    ) -> Conversation:
        given = {key.replace("__", "."): value for key, value in settings.items()}
        given.setdefault("tool_security.audit_log_enabled", False)
        config = default_config(given, workspace=workspace)
        scripted = model if hasattr(model, "stream") else ScriptedModel(model)
        session = open_session(
            config,
            scripted,
            resume=resume,
            ephemeral=ephemeral,
            on_ask=on_ask,
            trusted=trusted,
            source=source,
        )
        for tool in tools:
            session.rest.add_tool(tool)
        made.append(session)
        return session

    yield make
    for session in made:
        await session.aclose()


@pytest.fixture
def lines() -> Callable[[Conversation | str], list[dict[str, Any]]]:
    """The lines of a session's rollout."""

    def read(session: Conversation | str) -> list[dict[str, Any]]:
        path = session if isinstance(session, str) else session.journal.path
        assert path is not None
        return [json.loads(line) for line in Path(path).read_text().splitlines()]

    return read


@pytest.fixture
def rest(workspace: Path) -> Toolrest:
    return Toolrest(workspace)

"""An editor for tests: the official client side of the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acp import connect_to_agent, run_agent, spawn_agent_process
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

from toolrest.cli.options import Choices
from toolrest.cli.servers.acp import editor_agent
from toolrest.serve.acp.lines import EditorLines
from toolrest.testing.server import ScriptedServer


class Editor:
    """Keeps what it is shown, and answers questions with one option."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.updates: list[Any] = []
        self.asked: list[Any] = []
        self.seen = asyncio.Event()
        self.asking, self.may_answer = asyncio.Event(), asyncio.Event()
        self.may_answer.set()
        self.capabilities: Any = None

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self.seen.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_: Any
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self.asking.set()
        await self.may_answer.wait()
        if self.answer == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = AllowedOutcome(outcome="selected", option_id=self.answer)
        return RequestPermissionResponse(outcome=chosen)

    def on_connect(self, conn: Any) -> None:
        pass

    async def wait_for(self, kind: str) -> Any:
        """The first update of a kind; it may come after the response."""
        async with asyncio.timeout(60):
            while not (found := self.of(kind)):
                self.seen.clear()
                await self.seen.wait()
        return found[0]

    def of(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    @property
    def said(self) -> str:
        return "".join(update.content.text for update in self.of("agent_message_chunk"))


Connect = Callable[..., Any]


def write_settings(server: ScriptedServer, home: Path, workspace: Path, more: str = "") -> None:
    """The settings of a user whose model is the scripted one, and who trusts the workspace."""
    settings = server.settings()
    row = settings["model_providers"]["scripted"]
    lines = [f"model = {json.dumps(settings['model'])}", 'model_provider = "scripted"', more]
    lines += ["[model_providers.scripted]", f"base_url = {json.dumps(row['base_url'])}"]
    lines += ['wire_api = "responses"', f"[projects.{json.dumps(str(workspace))}]"]
    lines += ['trust_level = "trusted"']
    (home / "config.toml").write_text("\n".join(lines))


def connector(workspace: Path, home: Path, *, stdio: bool = True) -> Connect:
    """Connects an editor to `toolrest acp`: the real process, or its agent over a socket."""

    @asynccontextmanager
    async def start(
        server: ScriptedServer, *arguments: str, answer: str = "approved", settings: str = ""
    ) -> AsyncIterator[tuple[Any, Editor]]:
        write_settings(server, home, workspace, settings)
        editor = Editor(answer)
        connecting = _process(editor, home, arguments) if stdio else _in_process(editor, arguments)
        async with connecting as agent:
            editor.capabilities = (await agent.initialize(protocol_version=1)).agent_capabilities
            yield agent, editor

    return start


@asynccontextmanager
async def _process(client: Any, home: Path, arguments: tuple[str, ...]) -> AsyncIterator[Any]:
    env = {"TOOLREST_HOME": str(home), "PATH": "/usr/bin:/bin"}
    command = (sys.executable, "-m", "toolrest", "acp", *arguments)
    async with spawn_agent_process(client, *command, env=env) as (agent, _):
        yield agent


@asynccontextmanager
async def _in_process(client: Any, arguments: tuple[str, ...]) -> AsyncIterator[Any]:
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    overrides = (given["-c"],) if "-c" in given else ()
    choices = Choices(None, given.get("-s"), given.get("-a"), overrides, None, None)
    agent: Any = editor_agent(choices)
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    lines: Any = EditorLines(reader, writer)
    serving = asyncio.ensure_future(run_agent(agent, lines, use_unstable_protocol=True))
    own_reader, own_writer = await asyncio.open_connection(sock=ours)
    connection = connect_to_agent(client, own_writer, own_reader)
    try:
        yield connection
    finally:
        await connection.close()
        own_writer.close()
        await serving
        await agent.aclose()
        writer.close()

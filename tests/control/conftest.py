"""Sessions with a control socket, and what is asked of them over it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.agent.conftest import Make, agent, workspace
from tests.chat.conftest import chat
from tests.cli.conftest import desk, serve

from toolrest.agent.conversation.conversation import Conversation
from toolrest.control import server as control_server
from toolrest.control.client import ask_session, watch_session
from toolrest.control.server import open_control
from toolrest.control.sockets import FOLDER
from toolrest.testing import Call

__all__ = ["agent", "chat", "desk", "serve", "workspace"]

PATCH = "*** Begin Patch\n*** Add File: made.txt\n+x\n*** End Patch"
QUESTION = {
    "id": "colour",
    "header": "Colour",
    "question": "Which one?",
    "options": [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}],
}
WRITE = Call("apply_patch", {"input": PATCH})


def adding(name: str) -> Call:
    """A call that makes a file."""
    return Call("apply_patch", {"input": PATCH.replace("made.txt", name)})


class Front:
    """The session's own front end: a question that stands until it is answered or closed."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.closed = False

    async def __call__(self, _: Any) -> Any:
        try:
            return await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.closed = True
            raise

    ask_user = __call__


class Controlled:
    """A session with a control socket, and what it is asked over that socket."""

    def __init__(self, session: Conversation, front: Front) -> None:
        self.session, self.front = session, front
        self.home = session.rest.config.home
        self.events: list[Any] = []
        session.rest.subscribe(self.events.append)
        self.server = open_control(session)

    async def ask(self, op: str, **fields: Any) -> Any:
        return await ask_session(self.home, self.session.id, op, **fields)

    async def waiting(self) -> Any:
        """The one request that waits, once it does."""
        async for message in watch_session(self.home, self.session.id):
            if message["event"] == "state" and message["waiting"]:
                return (await self.ask("waiting"))["waiting"][0]
        raise AssertionError("the session has ended")

    async def undoable(self, after: Any = None) -> Any:
        """The turn that can be taken back, once there is one, and another than `after`."""
        async for message in watch_session(self.home, self.session.id):
            turn = message.get("undo") if message["event"] == "state" else message.get("turn")
            if turn not in (None, after):
                return turn
        raise AssertionError("the session has ended")

    async def answer(self, request: Any, **fields: Any) -> Any:
        return await self.ask("answer", request=request["id"], pin=request["pin"], **fields)


Open = Callable[..., Controlled]


@pytest.fixture
def opened(agent: Make, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens a session that asks before it writes; approvals are armed at once."""
    monkeypatch.setattr(control_server, "INERT", 0.0)

    def make(script: Any, **settings: Any) -> Controlled:
        front = Front()
        given = {"approval_policy": "untrusted", **settings}
        return Controlled(agent(script, on_ask=front, **given), front)

    return make


async def finished(turn: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(turn, 60)


def socket_of(one: Controlled) -> socket.socket:
    folder = os.open(f"{one.home}/{FOLDER}", os.O_RDONLY)
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(f"/proc/self/fd/{folder}/{one.session.id}.sock")
    os.close(folder)
    return talk

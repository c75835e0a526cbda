"""A session that does not answer, as a suspended one: nothing is done later when it goes on."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from tests.control.conftest import WRITE, Open, finished, socket_of

from toolrest.control import client as control_client
from toolrest.control.client import NoAnswer, ask_session
from toolrest.control.sockets import listen
from toolrest.gate.approval.request import Review

CHANGES: dict[str, dict[str, Any]] = {
    "message": {"text": "too late"},
    "interrupt": {},
    "undo": {"turn": 1},
    "unqueue": {"at": 0, "text": "queued"},
    "model": {"name": "gpt-5.5"},
    "answer": {"request": "1", "approve": True},
}


@pytest.mark.parametrize("op", CHANGES)
async def test_what_was_sent_before_the_session_answered_is_not_done(opened: Open, op: str) -> None:
    """A suspended session finds it in its socket when it goes on."""
    one = opened([WRITE, "done"])
    turn = asyncio.ensure_future(one.session.run("go"))
    await one.waiting()
    done: list[str] = []
    assert one.server is not None
    one.server._controls = Noted(done)
    with socket_of(one) as talk:
        talk.sendall(json.dumps({"op": op, **CHANGES[op]}).encode() + b"\n")
        reader, writer = await asyncio.open_unix_connection(sock=talk.dup())
        assert "hello" in json.loads(await reader.readline())
        assert "nonce" in json.loads(await reader.readline())["error"]
        writer.close()
    assert done == []
    one.front.answer.set_result(Review("denied"))
    await finished(turn)


class Noted:
    """Controls that only note what they were asked for."""

    busy = True

    def __init__(self, done: list[str]) -> None:
        self._done = done

    def send(self, text: str, *, queued: bool) -> None:
        self._done.append(text)

    async def interrupt(self) -> None:
        self._done.append("interrupt")

    async def undo(self, turn: int) -> list[str]:
        self._done.append("undo")
        return []

    def queued(self) -> list[str]:
        return ["queued"]

    def unqueue(self, at: int, text: str) -> None:
        self._done.append("unqueue")

    def use_model(self, name: str) -> None:
        self._done.append("model")


async def test_what_was_asked_by_a_client_that_has_gone_is_not_done(opened: Open) -> None:
    one = opened(["done"])
    assert one.server is not None
    done: list[str] = []
    one.server._controls = Noted(done)
    with socket_of(one) as talk:
        greeting = json.loads(await asyncio.to_thread(talk.recv, 1000))
        asked = {"op": "message", "text": "too late", "nonce": greeting["hello"]}
        talk.sendall(json.dumps(asked).encode() + b"\n")
    while one.server._connections:
        await asyncio.wait(one.server._connections)
    assert done == []


@pytest.mark.slow
async def test_nothing_is_sent_to_a_session_that_does_not_answer(
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its socket takes connections until the queue is full; nothing comes out of them later."""
    monkeypatch.setattr(control_client, "_GREETING", 0.01)
    one = opened(["done"])
    with listen(one.home, "suspended") as suspended:
        for _ in range(80):
            with pytest.raises(NoAnswer, match="nothing was sent"):
                await ask_session(one.home, "suspended", "message", text="too late")
        found = []
        with suppress(BlockingIOError):
            while True:
                found.append(suspended.accept()[0])
        assert found
        for connection in found:
            connection.setblocking(False)
            assert await asyncio.get_running_loop().sock_recv(connection, 1000) == b""
            connection.close()

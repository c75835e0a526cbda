"""Attacks on the page by other users' processes and at unattended browsers."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.web_ui.conftest import HOST, Client, Recorded, log_in

from toolrest.control import sockets
from toolrest.control.sockets import connect, listen
from toolrest.serve import listening
from toolrest.web_ui.access import Logins
from toolrest.web_ui.server import WebPage

# Browsers that nobody is at


async def test_a_stream_ends_with_its_login(page: WebPage, session: Recorded) -> None:
    """By logging out, and by time."""
    now = [0.0]
    page.logins = Logins(60, lambda: now[0])
    async with asyncio.timeout(60):
        for by_time in (False, True):
            stream = Stream(page, f"/api/sessions/{session.id}/events")
            assert b"It is repaired." in await stream.until(b"event: state")
            if by_time:
                now[0] += 61
            else:
                page.logins.forget([stream.cookie])
            session.say("assistant", "a secret")
            assert b"a secret" not in await stream.until(None)
            session.path.write_text(session.path.read_text().replace("a secret", "no secret"))


class Stream:
    """One request to the page, as a server passes it on."""

    def __init__(self, page: WebPage, path: str) -> None:
        self.cookie, key = page.logins.open(page.logins.link()) or ("", "")
        self._sent: asyncio.Queue[Any] = asyncio.Queue()
        headers = {"host": HOST, "cookie": f"toolrest_8137={self.cookie}", "x-toolrest-key": key}
        scope = {
            "type": "http", "method": "GET", "path": path, "query_string": b"",
            "server": ("127.0.0.1", 8137), "asgi": {"version": "3.0", "spec_version": "2.3"},
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }  # fmt: skip
        app = page.application()
        self._task = asyncio.ensure_future(app(scope, self._receive, self._sent.put))

    async def _receive(self) -> Any:
        await asyncio.Event().wait()

    async def until(self, text: bytes | None) -> bytes:
        """What comes up to a text, or to the end."""
        found = b""
        while text is None or text not in found:
            message = await self._sent.get()
            assert message.get("status", 200) == 200
            found += bytes(message.get("body", b""))
            if message["type"] == "http.response.body" and not message.get("more_body"):
                await self._task
                return found
        return found


async def test_what_a_page_asks_for_by_itself_keeps_nobody_logged_in(
    home: Path, client_for: Callable[[WebPage], Client]
) -> None:
    now = [0.0]
    page = WebPage(str(home), Logins(60, lambda: now[0]), (HOST,))
    async with client_for(page) as one:
        await log_in(one, page.logins)
        for _ in range(2):
            now[0] += 40
            status = (await one.get("/api/sessions", headers={"x-toolrest-idle": "1"})).status_code
        assert status == 401


# Other users' processes


@pytest.mark.slow
def test_requests_that_do_not_come_whole_end(
    page: WebPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing at all, half a head, and half a body, which may not be large before the login."""
    monkeypatch.setattr(listening, "_PATIENCE", 1.0)
    monkeypatch.setattr(listening, "_MOST_CONNECTIONS", 4)
    sock = listening.listen("127.0.0.1", 0)
    port = sock.getsockname()[1]
    page.hosts = (f"127.0.0.1:{port}",)
    origin = f"http://127.0.0.1:{port}"
    head = f"POST /api/login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: {origin}\r\n"
    whole = f"{head}Content-Length: 100000\r\n\r\n"
    halves = ["", head, f"{whole}{{", f"{whole}{'x' * 5000}"]

    async def attack() -> list[bytes]:
        serving = asyncio.ensure_future(listening.serve(page.application(), sock))
        try:
            return await asyncio.to_thread(left_alone)
        finally:
            serving.cancel()
            await asyncio.wait({serving})
            sock.close()

    def left_alone() -> list[bytes]:
        made = [socket.create_connection(("127.0.0.1", port), 60) for _ in halves]
        for one, half in zip(made, halves, strict=True):
            one.sendall(half.encode())
        with socket.create_connection(("127.0.0.1", port), 60) as more:
            assert ended(more) == b"", "one too many"
        found = [ended(one) for one in made]
        for one in made:
            one.close()
        assert httpx.get(f"{origin}/").status_code == 200
        return found

    answers = asyncio.run(attack())
    assert answers[:3] == [b"", b"", b""]
    assert answers[3].startswith(b"HTTP/1.1 401"), "too large a body is read no further"


def ended(connection: socket.socket) -> bytes:
    """What comes before the other end closes the connection."""
    found = b""
    try:
        while piece := connection.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


async def test_files_of_other_kinds_and_users_are_no_sessions(
    client: Client, session: Recorded, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked, piped = (Recorded(home, number) for number in (1, 2))
    for one, put in ((linked, lambda path: path.symlink_to("/etc/passwd")), (piped, os.mkfifo)):
        one.path.unlink()
        put(one.path)

    async def seen() -> tuple[list[str], list[int]]:
        rows = (await client.get("/api/sessions")).json()["sessions"]
        asked = [f"/api/sessions/{one.id}/export" for one in (session, linked, piped)]
        return [row["id"] for row in rows], [(await client.get(at)).status_code for at in asked]

    assert await seen() == ([session.id], [200, 404, 404])
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert await seen() == ([], [404, 404, 404])


def test_nothing_is_sent_to_another_users_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen(str(tmp_path), "planted"):
        connect(str(tmp_path), "planted").close()
        monkeypatch.setattr(sockets, "_peer", lambda _: (1, os.geteuid() + 1))
        with pytest.raises(PermissionError, match="another user's"):
            connect(str(tmp_path), "planted")

"""The callback address of an OAuth login: on this machine, for one answer."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from mcp.shared.auth import AuthorizationCodeResult

from toolrest.mcp.errors import McpError

_DONE = "You are logged in. You can close this page and go back to the terminal."
_WRONG = "This is not the login that Toolrest waits for."
_LONGEST = 16_384


class Callback:
    """A listener on the loopback address only. Answers that do not carry the state are ignored."""

    def __init__(self, port: int | None = None) -> None:
        self._port = port or 0
        self._state: str | None = None
        self._answer: asyncio.Future[dict[str, str]] | None = None
        self._server: asyncio.Server | None = None
        self.uri = ""

    async def __aenter__(self) -> Self:
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(
                self._serve, "127.0.0.1", self._port, limit=_LONGEST
            )
        except OSError as error:
            raise McpError(f"cannot listen on port {self._port}: {error.strerror}") from None
        port = self._server.sockets[0].getsockname()[1]
        self.uri = f"http://127.0.0.1:{port}/callback"
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    def expect(self, state: str) -> None:
        """Set the state that the answer must carry."""
        self._state = state

    async def answer(self) -> Any:
        """Wait for the browser's answer; return it in the SDK's form."""
        if self._answer is None:
            raise McpError("nothing is listening for the login's answer")
        found = await self._answer
        if "error" in found:
            raise McpError(f"the login was refused: {found['error'][:200]}")
        return AuthorizationCodeResult(
            code=found.get("code", ""), state=found.get("state"), iss=found.get("iss")
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(10):
                line = await reader.readline()
                while (await reader.readline()).strip():
                    pass
            status, message = self._take(line.decode("latin-1").split(" "))
            writer.write(_page(status, message))
            await writer.drain()
        except (TimeoutError, ValueError, OSError):
            return  # not a browser, or one that went away
        finally:
            writer.close()

    def _take(self, request: list[str]) -> tuple[str, str]:
        parts = urlsplit(request[1] if len(request) > 1 else "")
        if request[0] != "GET" or parts.path != "/callback":
            return "404 Not Found", _WRONG
        found = {name: values[0] for name, values in parse_qs(parts.query).items()}
        expected = self._state or ""
        if not expected or not _same(found.get("state", ""), expected):
            return "400 Bad Request", _WRONG
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(found)
        return "200 OK", "The login was refused." if "error" in found else _DONE


def _same(given: str, expected: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _page(status: str, message: str) -> bytes:
    """A page with our own message only: nothing that came with the request is in it."""
    body = f"<!doctype html><meta charset=utf-8><title>Toolrest</title><p>{message}</p>".encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body

"""A scripted model server: real HTTP on loopback, three APIs, faults on demand."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic
from typing import Any, Final, Literal, Self, TypeAlias

from msgspec import Struct, field

from toolrest.items import JSONObject
from toolrest.testing.checks import problems
from toolrest.testing.documents import document
from toolrest.testing.frames import Frame, OutgoingReply, anthropic, chat
from toolrest.testing.frames_responses import responses
from toolrest.testing.script import Cut, Fail, Pause, Player, Reply, Script

ServerWire: TypeAlias = Literal["responses", "chat", "anthropic"]

_WIRES: Final[dict[str, ServerWire]] = {
    "/responses": "responses",
    "/chat/completions": "chat",
    "/messages": "anthropic",
}
_FRAMES_OF: Final[dict[ServerWire, Callable[[OutgoingReply], Iterator[Frame]]]] = {
    "responses": responses,
    "chat": chat,
    "anthropic": anthropic,
}
_CHUNKED: Final = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n%s\r\n"
)
_LONGEST_HEAD: Final = 1 << 20


class Recorded(Struct):
    """A recorded request: `wire` is None for anything but a request to the model."""

    path: str
    headers: Mapping[str, str]
    body: JSONObject
    size: int
    wire: ServerWire | None
    at: float = field(default_factory=monotonic)


class ScriptedServer:
    """A model server on loopback that replies from a script; each request takes the next reply.

    Requests that the real APIs would refuse (a call without its output, an output without its
    call, changed thinking) are answered 400 and noted in `refused`; they take no reply. Use
    `async with` inside a loop, or `with` to serve from a thread.
    """

    def __init__(
        self,
        script: Script,
        *,
        key: str | None = None,
        check: bool = True,
        models: tuple[str, ...] = ("scripted",),
        context_window: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.requests: list[Recorded] = []
        self.listings: list[Recorded] = []
        """Requests for the list of models."""
        self.refused: list[str] = []
        self.port = 0
        self._key = key
        self._check = check
        self._models = models
        self._window = context_window
        self._headers = dict(headers or {})
        self._player = Player(script)
        self._signed: set[tuple[str, str]] = set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: _Thread | None = None

    @property
    def url(self) -> str:
        """The `base_url` for a provider's row."""
        return f"http://127.0.0.1:{self.port}/v1"

    def settings(self, wire: ServerWire = "responses", **more: Any) -> JSONObject:
        """Settings that make this server the session's provider; `more` goes into its row."""
        row = {"name": "scripted", "base_url": self.url, "wire_api": wire, **more}
        return {
            "model": self._models[0],
            "model_provider": "scripted",
            "model_providers": {"scripted": row},
        }

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, limit=_LONGEST_HEAD
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        self._thread = _Thread(self)
        self._thread.begin()
        return self

    def __exit__(self, *exc: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.end()

    # One connection

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the client left, or spoke no HTTP
        except asyncio.CancelledError:
            pass  # the server is closing; asyncio would report this as an error of ours
        finally:
            with suppress(OSError):
                writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is not to be used again."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip("\r\n").split("\r\n")
        method, target, _ = line.split(" ", 2)
        pairs = (field.partition(":") for field in fields)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        path = target.split("?")[0]
        wire = next((w for end, w in _WIRES.items() if path.endswith(end)), None)
        body = _decoded(raw)
        asked = self.requests if method == "POST" else self.listings
        asked.append(
            Recorded(target, headers, body or {}, len(raw), wire if method == "POST" else None)
        )
        refusal = self._refusal(method, path, headers, body, wire)
        if refusal is not None:
            writer.write(_document(*refusal))
        elif wire is None:
            writer.write(_document(200, {"object": "list", "data": self._listed()}))
        else:
            return await self._answer(writer, wire, body or {})
        await writer.drain()
        return True

    def _listed(self) -> list[JSONObject]:
        more = {"meta": {"n_ctx": self._window}} if self._window else {}  # as llama.cpp says it
        return [{"id": name, "object": "model", "type": "model", **more} for name in self._models]

    def _refusal(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: JSONObject | None,
        wire: ServerWire | None,
    ) -> tuple[int, JSONObject] | None:
        sent = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if self._key is not None and sent != self._key:
            return 401, _error("authentication_error", "Incorrect API key provided.")
        if wire is None or method != "POST":
            listing = method == "GET" and path.endswith("/models")
            return None if listing else (404, _error("not_found_error", f"no {method} {path}"))
        if body is None:
            return 400, _error("invalid_request_error", "the body is not a JSON object")
        found = list(problems(wire, body)) if self._check else []
        if wire == "anthropic":
            if "anthropic-version" not in headers:
                found.append("anthropic-version: header is required")
            found += self._unsigned(body)
        self.refused += found
        return (400, _error("invalid_request_error", found[0])) if found else None

    def _unsigned(self, body: JSONObject) -> list[str]:
        """Problems of thinking that does not come back as it was sent."""
        found = []
        for message in body.get("messages", []):
            content = message.get("content")
            for block in content if isinstance(content, list) else []:
                if block.get("type") == "thinking":
                    shown = (block.get("thinking"), block.get("signature"))
                    if shown not in self._signed:
                        found.append("Invalid `signature` in `thinking` block")
        return found

    async def _answer(
        self, writer: asyncio.StreamWriter, wire: ServerWire, body: JSONObject
    ) -> bool:
        try:
            reply = self._player.next(body)
        except Exception as error:  # of the test's own function: the test should see it
            message = f"the script's function failed: {type(error).__name__}: {error}"
            self.refused.append(message)
            reply = Reply([Fail(400, "script_failed", message)])
        if reply is None:
            message = f"the script is over: it has {self._player.played} replies"
            reply = Reply([Fail(400, "script_over", message)])
        first = reply.parts[0] if reply.parts else None
        if isinstance(first, Fail):
            writer.write(_failed(first))
            await writer.drain()
            return True
        if isinstance(first, Cut):
            writer.transport.abort()
            return False
        outgoing = OutgoingReply(reply, self._player, str(body.get("model")), self._signed)
        more = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items())
        if body.get("stream") is not True:
            whole = document(wire, outgoing)
            if whole is None:
                writer.transport.abort()
                return False
            writer.write(_document(200, whole, more))
            await writer.drain()
            return True
        writer.write(_CHUNKED % more.encode())
        return await _send(writer, _FRAMES_OF[wire](outgoing))


async def _send(writer: asyncio.StreamWriter, frames: Iterator[Frame]) -> bool:
    waiting: list[bytes] = []
    for item in frames:
        if isinstance(item, bytes):
            waiting.append(item)
            continue
        _flush(writer, waiting)
        await writer.drain()
        if isinstance(item, Pause):
            await asyncio.sleep(item.seconds)
        else:
            # What was written is sent; then the connection ends without the stream's own end.
            writer.close()
            return False
    _flush(writer, waiting)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def _flush(writer: asyncio.StreamWriter, waiting: list[bytes]) -> None:
    if waiting:
        data = b"".join(waiting)
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        waiting.clear()


def _decoded(raw: bytes) -> JSONObject | None:
    try:
        body = json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _error(code: str, message: str) -> JSONObject:
    return {"type": "error", "error": {"type": code, "code": code, "message": message}}


def _failed(fault: Fail) -> bytes:
    wait = None if fault.retry_after is None else f"retry-after: {fault.retry_after}\r\n"
    return _document(fault.status, _error(fault.code, fault.message), wait or "")


def _document(status: int, body: JSONObject, more: str = "") -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{more}"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


class _Thread:
    """An event loop in a thread, for callers without one."""

    def __init__(self, server: ScriptedServer) -> None:
        self._server = server
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def begin(self) -> None:
        self._thread.start()
        self._ready.result(10)

    def end(self) -> None:
        self._ready.result(0).call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    async def _serve(self) -> None:
        async with self._server:
            self._ready.set_result(asyncio.get_running_loop())
            await self._stop.wait()

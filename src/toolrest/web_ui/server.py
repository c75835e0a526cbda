"""The web server of the page: what it may ask for, and what it may answer."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from toolrest.agent.history.journal import FOLDER as SESSIONS
from toolrest.agent.history.rollout import read_rollout
from toolrest.errors import ConfigError
from toolrest.gate.approval.pending import PendingApproval, PendingError
from toolrest.gate.approval.pending_store import FOLDER as APPROVALS
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.gate.approval.request import SCOPES as ANSWER_OF
from toolrest.items import JSONObject
from toolrest.policy.effects import Risk
from toolrest.private_files import make_private
from toolrest.timeline.approval import describe
from toolrest.timeline.stored import markdown, stored_cells
from toolrest.web_ui.access import LOGIN, Access, Logins, cookie_name, cookie_of
from toolrest.web_ui.feed import follow, read_events
from toolrest.web_ui.listing import SessionList, is_open
from toolrest.web_ui.page import content_policy, document
from toolrest.web_ui.watch import FileWatch

_MOST_ROWS = 200
_MOST_BODY = 64 * 1024
_NOT_FOUND = {"error": "there is no such session"}


class WebPage(Struct):
    """What the page shows and may do: the sessions and pending approvals of one home."""

    home: str
    logins: Logins
    hosts: tuple[str, ...]
    scheme: str = "http"
    read_only: bool = False
    pin: str = ""
    _sessions: SessionList | None = None
    _wrong_pins: int = 0

    def __repr__(self) -> str:
        return f"WebPage({self.home!r})"  # without the code

    @property
    def sessions(self) -> SessionList:
        """The list of sessions."""
        if self._sessions is None:
            self._sessions = SessionList(self.home)
        return self._sessions

    def application(self) -> ASGIApp:
        """The ASGI application, behind its access checks."""
        routes = [
            Route("/", self._page),
            Route(LOGIN, self._login, methods=["POST"]),
            Route("/api/logout", self._logout, methods=["POST"]),
            Route("/api/sessions", self._list),
            Route("/api/sessions/{id}/events", self._events),
            Route("/api/sessions/{id}/export", self._export),
            Route("/api/news", self._news),
            Route("/api/approvals", self._approvals),
            Route("/api/approvals/{id}", self._answer, methods=["POST"]),
        ]
        app = Starlette(routes=routes)
        return Access(app, self.logins, self.hosts, self.scheme, content_policy())

    # The page and its login

    async def _page(self, _: Request) -> Response:
        return Response(document(), media_type="text/html")

    async def _login(self, request: Request) -> Response:
        if self.logins.is_slowed():
            return JSONResponse({"error": "too many wrong links; wait a minute"}, 429)
        login = self.logins.open(str((await _body(request)).get("token", "")))
        if login is None:
            return JSONResponse({"error": "this link was used already or is not ours"}, 401)
        cookie, key = login
        response = JSONResponse({"key": key, "readOnly": self.read_only})
        response.set_cookie(
            cookie_name(request.scope),
            cookie,
            path="/api/",
            httponly=True,
            samesite="strict",
            secure=self.scheme == "https",
        )
        return response

    async def _logout(self, request: Request) -> Response:
        self.logins.forget(cookie_of(request.scope))
        return JSONResponse({})

    # Sessions

    async def _list(self, request: Request) -> Response:
        asked = request.query_params
        limit = asked.get("limit", "50")
        rows = await asyncio.to_thread(
            self.sessions.rows,
            min(_MOST_ROWS, int(limit[:4] or 1)) if limit.isascii() and limit.isdecimal() else 50,
            asked.get("q", ""),
            asked.get("before", ""),
        )
        return JSONResponse({"sessions": rows, "readOnly": self.read_only})

    async def _path(self, request: Request) -> str | None:
        try:
            return await asyncio.to_thread(self.sessions.path, request.path_params["id"])
        except ConfigError:
            return None

    async def _events(self, request: Request) -> Response:
        path = await self._path(request)
        if path is None:
            return JSONResponse(_NOT_FOUND, 404)
        after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        start = int(after) if after.isascii() and after.isdecimal() and len(after) < 16 else 0
        return StreamingResponse(_stream(path, start), media_type="text/event-stream")

    async def _export(self, request: Request) -> Response:
        path = await self._path(request)
        if path is None:
            return JSONResponse(_NOT_FOUND, 404)
        layout = request.query_params.get("format", "html")
        if layout not in _EXPORTS:
            return JSONResponse({"error": f"format is one of {', '.join(_EXPORTS)}"}, 400)
        media, write = _EXPORTS[layout]
        text = await asyncio.to_thread(write, path)
        name = f"toolrest-{request.path_params['id']}.{layout}"
        named = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(text, media_type=media, headers=named)

    async def _news(self, _: Request) -> Response:
        return StreamingResponse(_news(self.home), media_type="text/event-stream")

    # Approvals

    async def _approvals(self, _: Request) -> Response:
        return JSONResponse({"approvals": await asyncio.to_thread(self._waiting)})

    def _waiting(self) -> list[JSONObject]:
        store = PendingStore(self.home)
        return [_shown(one) for one in store.listed() if store.state(one) == "waiting"]

    async def _answer(self, request: Request) -> Response:
        if self.read_only:
            return JSONResponse({"error": "this page is read-only (web_ui.read_only)"}, 403)
        body = await _body(request)
        try:
            given = await asyncio.to_thread(self._give, request.path_params["id"], body)
        except PendingError as error:
            return JSONResponse({"error": str(error)}, 409)
        except PermissionError as error:
            return JSONResponse({"error": str(error)}, 403)
        except ValueError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"answer": given})

    def _give(self, identity: str, body: JSONObject) -> str:
        """Record an answer to exactly what the page showed."""
        store = PendingStore(self.home)
        pending = next((one for one in store.listed() if one.id == identity), None)
        if pending is None:
            raise PendingError(f"no pending approval has the id {identity}")
        if body.get("pin") != pending.pin:
            raise PendingError("the page showed another call; load it again")
        if body.get("approve") is not True:
            return store.answer(pending, "denied", str(body.get("note", ""))[:4000]).answer
        scope = body.get("scope", "once")
        if scope not in ("once", *(choice.scope for choice in pending.request.choices)):
            raise ValueError(f"the scope {scope!r} is not offered for this call")
        self._check_code(pending, body)
        return store.answer(pending, ANSWER_OF[scope]).answer

    def _check_code(self, pending: PendingApproval, body: JSONObject) -> None:
        """A critical call takes the code that is printed where the server runs."""
        if pending.request.risk < Risk.CRITICAL:
            return
        if self._wrong_pins >= 5:
            raise PermissionError("too many wrong codes: answer this one at the terminal")
        if not self.pin or body.get("code") != self.pin:
            self._wrong_pins += 1
            raise PermissionError("a critical call needs the code printed where toolrest web runs")
        self._wrong_pins = 0


async def _body(request: Request) -> JSONObject:
    """The JSON object of a request; an empty one for anything else."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > _MOST_BODY:
            return {}
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


async def _stream(path: str, start: int) -> AsyncIterator[bytes]:
    """A journal as server-sent events; a comment now and then finds closed connections."""
    known: bool | None = None
    try:
        async for events in follow(path, start):
            if events:
                yield b"".join(map(_message, events))
            elif (now := is_open(path)) != known:
                known = now
                yield f"event: state\ndata: {json.dumps({'open': now})}\n\n".encode()
            else:
                yield b": alive\n\n"
    except OSError:
        yield b'event: state\ndata: {"open": false, "gone": true}\n\n'


async def _news(home: str) -> AsyncGenerator[bytes, None]:
    """Says when approvals or sessions have changed, at most twice a second."""
    waiting = os.path.join(home, APPROVALS)
    make_private(waiting)
    news = b"event: news\ndata: {}\n\n"
    while True:
        today = time.strftime("%Y/%m/%d")
        sessions = os.path.join(home, SESSIONS)
        async with FileWatch([waiting, os.path.join(sessions, today), sessions]) as watch:
            yield news  # what came before the watch began
            while time.strftime("%Y/%m/%d") == today:
                if await watch.wait():
                    yield news
                    await asyncio.sleep(0.5)
                else:
                    yield b": alive\n\n"


def _message(event: JSONObject) -> bytes:
    return f"id: {event['at']}\ndata: {json.dumps(event)}\n\n".encode()


def _shown(pending: PendingApproval) -> JSONObject:
    """An approval request as a person sees it; its exact arguments may hold secrets and stay."""
    request = pending.request
    return {
        "id": pending.id,
        "pin": pending.pin,
        "tool": pending.tool,
        "session": pending.session_id,
        "workspace": pending.workspace,
        "sandbox": pending.sandbox_mode,
        "created": pending.created,
        "expires": pending.expires,
        "risk": request.risk.label,
        "critical": request.risk >= Risk.CRITICAL,
        "leaves": request.leaves,
        "lines": list(describe(request)),
        "choices": [choice.to_json() for choice in request.choices],
    }


def _all_events(path: str) -> list[JSONObject]:
    events: list[JSONObject] = []
    offset, size = 0, os.path.getsize(path)
    while offset < size:
        more, end = read_events(path, offset)
        if end == offset:
            break
        events, offset = events + more, end
    return events


def _as_html(path: str) -> str:
    meta = read_rollout(path).meta
    row = {"id": meta.get("id", ""), "cwd": meta.get("cwd", "")}
    return document({"session": row, "events": _all_events(path)})


def _as_markdown(path: str) -> str:
    rollout = read_rollout(path)
    blocks = (f"# Session {rollout.thread_id}", *markdown(stored_cells(rollout.items)))
    return "\n\n".join(blocks) + "\n"


def _as_json(path: str) -> str:
    rollout = read_rollout(path)
    return json.dumps({"meta": rollout.meta, "items": rollout.items}, ensure_ascii=False, indent=2)


_EXPORTS = {
    "html": ("text/html", _as_html),
    "md": ("text/markdown", _as_markdown),
    "json": ("application/json", _as_json),
}

"""The web server of the page: what it may ask for, and what it may answer."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from toolrest.agent.history.journal import FOLDER as SESSIONS
from toolrest.agent.history.rollout import read_rollout
from toolrest.control.sockets import FOLDER as CONTROL
from toolrest.errors import ConfigError
from toolrest.gate.approval.pending import PendingApproval, PendingError
from toolrest.gate.approval.pending_store import FOLDER as APPROVALS
from toolrest.gate.approval.pending_store import PendingStore
from toolrest.items import JSONObject
from toolrest.policy.effects import Risk
from toolrest.private_files import make_private
from toolrest.timeline.approval import request_json
from toolrest.timeline.stored import markdown, stored_cells
from toolrest.web_ui.access import (
    LOGIN,
    Access,
    CriticalCode,
    Json,
    Logins,
    cookie_name,
    cookies_of,
)
from toolrest.web_ui.batch_view import BatchView
from toolrest.web_ui.changes import session_changes
from toolrest.web_ui.control import SessionControl
from toolrest.web_ui.feed import read_events
from toolrest.web_ui.listing import Prices, SessionList
from toolrest.web_ui.page import content_policy, document
from toolrest.web_ui.streams import SessionStreams, priced
from toolrest.web_ui.watch import FileWatch

_MOST_ROWS = 200
_MOST_BODY = 1 << 20
_MOST_LOGIN = 4096
"""Bytes of a request before the login, for which anyone on this machine can ask."""
_NOT_FOUND = {"error": "there is no such session"}


class WebPage(Struct):
    """What the page shows and may do: the sessions and pending approvals of one home."""

    home: str
    logins: Logins
    hosts: tuple[str, ...]
    scheme: str = "http"
    read_only: bool = False
    pin: str = ""
    control: bool = True
    folder: str = ""
    """Where sessions can be started, beside the folders of earlier ones."""
    prices: Prices | None = None
    batch: BatchView | None = None
    _sessions: SessionList | None = None
    _streams: SessionStreams | None = None
    _code: CriticalCode | None = None
    _control: SessionControl | None = None

    def __repr__(self) -> str:
        return f"WebPage({self.home!r})"  # without the code

    @property
    def sessions(self) -> SessionList:
        """The list of sessions."""
        if self._sessions is None:
            self._sessions = SessionList(self.home, self.prices)
        return self._sessions

    @property
    def code(self) -> CriticalCode:
        """The code for approvals of critical calls."""
        if self._code is None:
            self._code = CriticalCode(self.pin)
        return self._code

    @property
    def controls(self) -> SessionControl:
        """Control of running sessions."""
        if self._control is None:
            self._control = SessionControl(self, _body)
        return self._control

    @property
    def streams(self) -> SessionStreams:
        """The sessions that are viewed."""
        if self._streams is None:
            self._streams = SessionStreams(self.prices)
        return self._streams

    def application(self) -> ASGIApp:
        """The ASGI application, behind its access checks."""
        routes = [
            Route("/", self._page),
            Route(LOGIN, self._login, methods=["POST"]),
            Route("/api/logout", self._logout, methods=["POST"]),
            Route("/api/seen", self._seen),
            Route("/api/sessions", self._list),
            Route("/api/sessions/{id}/events", self._events),
            Route("/api/sessions/{id}/export", self._export),
            Route("/api/sessions/{id}/changes", self._changes),
            Route("/api/batch", self._batch),
            Route("/api/news", self._news),
            Route("/api/approvals", self._approvals),
            Route("/api/approvals/{id}", self._answer, methods=["POST"]),
            *self.controls.routes(),
        ]
        app = Starlette(routes=routes, lifespan=self._lifespan)
        return Access(app, self.logins, self.hosts, self.scheme, content_policy())

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.controls.hosted.aclose()

    # The page and its login

    async def _page(self, _: Request) -> Response:
        return Response(document(), media_type="text/html")

    async def _login(self, request: Request) -> Response:
        body = await _body(request, _MOST_LOGIN)
        is_slowed = self.logins.is_slowed()
        login = self.logins.open(str(body.get("token", "")))
        if login is None and is_slowed:  # a right one counts whatever others on this machine try
            return Json({"error": "too many wrong links; wait a minute"}, 429)
        if login is None:
            return Json({"error": "this link was used already or is not ours"}, 401)
        cookie, key = login
        response = Json({"key": key, "readOnly": self.read_only})
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
        self.logins.forget(cookies_of(request.scope))
        return Json({})

    async def _seen(self, _: Request) -> Response:
        """Someone is at the page, which counts as a use of the login."""
        return Json({})

    # Sessions

    async def _list(self, request: Request) -> Response:
        asked = request.query_params
        given = asked.get("limit", "")
        limit = int(given[:4]) if given.isascii() and given.isdecimal() else 50
        rows = await asyncio.to_thread(
            self.sessions.rows,
            min(max(limit, 1), _MOST_ROWS),
            asked.get("q", ""),
            asked.get("before", ""),
            asked.get("state", ""),
        )
        states = await self.controls.states()
        deferred = await asyncio.to_thread(self._waiting) if rows else []
        states |= {one["session"]: "waiting" for one in deferred}
        return Json(
            {
                "sessions": [{**row, "state": _state(row, states)} for row in rows],
                "readOnly": self.read_only,
                "control": self.control and not self.read_only,
                "batch": self.batch is not None,
            }
        )

    async def _path(self, request: Request) -> str | None:
        try:
            return await asyncio.to_thread(self.sessions.path, request.path_params["id"])
        except ConfigError:
            return None

    async def _events(self, request: Request) -> Response:
        path = await self._path(request)
        if path is None:
            return Json(_NOT_FOUND, 404)
        after = request.headers.get("last-event-id") or request.query_params.get("after", "0")
        start = int(after) if after.isascii() and after.isdecimal() and len(after) < 16 else 0
        return StreamingResponse(self.streams.stream(path, start), media_type="text/event-stream")

    async def _export(self, request: Request) -> Response:
        path = await self._path(request)
        if path is None:
            return Json(_NOT_FOUND, 404)
        layout = request.query_params.get("format", "html")
        if layout not in _EXPORTS:
            return Json({"error": f"format is one of {', '.join(_EXPORTS)}"}, 400)
        media, write = _EXPORTS[layout]
        try:
            text = await asyncio.to_thread(write, self, path)
        except ConfigError:  # cut in its first line
            return Json(_NOT_FOUND, 404)
        # A model may write the half of a pair: in JSON this is how it is written, too.
        data = text.encode("utf-8", "backslashreplace")
        name = f"toolrest-{request.path_params['id']}.{layout}"
        named = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(data, media_type=media, headers=named)

    async def _changes(self, request: Request) -> Response:
        path = await self._path(request)
        if path is None:
            return Json(_NOT_FOUND, 404)
        try:
            return Json(await asyncio.to_thread(self.changes, path))
        except ConfigError:
            return Json(_NOT_FOUND, 404)

    def changes(self, path: str) -> JSONObject:
        """The diff of a whole session against its start."""
        meta = read_rollout(path).meta
        cwd, session = str(meta.get("cwd", "")), str(meta.get("id", ""))
        return session_changes(self.home, cwd, session)

    async def _batch(self, request: Request) -> Response:
        if self.batch is None:
            return Json({"error": "no batch is shown: toolrest web --batch STORE"}, 404)
        failure = request.query_params.get("failure", "")
        try:
            return Json(await asyncio.to_thread(self.batch.shown, failure))
        except (OSError, ValueError, TypeError) as error:  # a result may be no JSON, or no object
            return Json({"error": f"the store cannot be read: {error}"}, 502)

    async def _news(self, _: Request) -> Response:
        return StreamingResponse(_news(self.home), media_type="text/event-stream")

    # Approvals

    async def _approvals(self, _: Request) -> Response:
        stored = await asyncio.to_thread(self._waiting)
        return Json({"approvals": [*stored, *await self.controls.waiting()]})

    def _waiting(self) -> list[JSONObject]:
        store = PendingStore(self.home)
        return [_shown(one) for one in store.listed() if store.state(one) == "waiting"]

    async def _answer(self, request: Request) -> Response:
        if self.read_only:
            return Json({"error": "this page is read-only (web_ui.read_only)"}, 403)
        body = await _body(request)
        try:
            given = await asyncio.to_thread(self._give, request.path_params["id"], body)
        except PendingError as error:
            return Json({"error": str(error)}, 409)
        except PermissionError as error:
            return Json({"error": str(error)}, 403)
        except ValueError as error:
            return Json({"error": str(error)}, 400)
        return Json({"answer": given})

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
        answer = pending.request.answer_for(body.get("scope", "once"))
        if pending.request.risk >= Risk.CRITICAL:
            self.code.check(body.get("code"))
        return store.answer(pending, answer).answer


async def _body(request: Request, most: int = _MOST_BODY) -> JSONObject:
    """The JSON object of a request; an empty one for anything else."""
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > most:
            return {}
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


async def _news(home: str) -> AsyncGenerator[bytes, None]:
    """Says when approvals or sessions have changed, at most twice a second."""
    waiting = [os.path.join(home, name) for name in (APPROVALS, CONTROL)]
    for folder in waiting:
        make_private(folder)
    news = b"event: news\ndata: {}\n\n"
    while True:
        today = time.strftime("%Y/%m/%d")
        sessions = os.path.join(home, SESSIONS)
        async with FileWatch([*waiting, os.path.join(sessions, today), sessions]) as watch:
            yield news  # what came before the watch began
            while time.strftime("%Y/%m/%d") == today:
                if await watch.wait():
                    yield news
                    await asyncio.sleep(0.5)
                else:
                    yield b": alive\n\n"


def _state(row: JSONObject, states: dict[str, str]) -> str:
    """The state of a session: one that nobody can ask works until its last message is written."""
    if known := states.get(row["id"]):
        return known
    return "ended" if not row["open"] else "idle" if row["rests"] else "working"


def _shown(pending: PendingApproval) -> JSONObject:
    """An approval request as a person sees it; its exact arguments may hold secrets and stay."""
    return {
        "id": pending.id,
        "pin": pending.pin,
        "session": pending.session_id,
        "workspace": pending.workspace,
        "sandbox": pending.sandbox_mode,
        "created": pending.created,
        "expires": pending.expires,
        "kind": "approval",
        **request_json(pending.request, pending.workspace),
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


def _as_html(page: WebPage, path: str) -> str:
    meta = read_rollout(path).meta
    row = {"id": meta.get("id", ""), "cwd": meta.get("cwd", "")}
    return document(
        {
            "session": row,
            "events": priced(path, _all_events(path), page.prices),
            "changes": page.changes(path),
        }
    )


def _as_markdown(_: WebPage, path: str) -> str:
    rollout = read_rollout(path)
    blocks = (f"# Session {rollout.thread_id}", *markdown(stored_cells(rollout.items)))
    return "\n\n".join(blocks) + "\n"


def _as_json(_: WebPage, path: str) -> str:
    rollout = read_rollout(path)
    return json.dumps({"meta": rollout.meta, "items": rollout.items}, ensure_ascii=False, indent=2)


_EXPORTS = {
    "html": ("text/html", _as_html),
    "md": ("text/markdown", _as_markdown),
    "json": ("application/json", _as_json),
}

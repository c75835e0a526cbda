"""Control from the page: what waits in running sessions, messages, interrupt, undo."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from toolrest.control.client import NoAnswer, NoSession, ask_session, watch_session
from toolrest.control.controls import ControlError
from toolrest.control.sockets import sessions
from toolrest.errors import ConfigError
from toolrest.items import JSONObject
from toolrest.web_ui.access import Json
from toolrest.web_ui.file_names import FolderFiles
from toolrest.web_ui.hosted import HostedSessions, resumed
from toolrest.web_ui.markup import LiveMarkup

if TYPE_CHECKING:
    from toolrest.web_ui.access import CriticalCode
    from toolrest.web_ui.listing import SessionList

_ALIVE = 5.0
_SMALL = 2000
"""Characters of live text that are read as Markdown at once; more are read beside the loop."""
_SOON = 2.0
"""Seconds that the list of what waits, and the live view, give a session to answer."""
_REOPENING = 5.0
_MOST_ROWS = 500


class ControlPage(Protocol):
    """What control needs of the page."""

    home: str
    folder: str
    read_only: bool
    control: bool

    @property
    def sessions(self) -> SessionList:
        """The list of sessions."""

    @property
    def code(self) -> CriticalCode:
        """The code for approvals of critical calls."""


Body = Callable[[Request], Awaitable[JSONObject]]


class SessionControl:
    """The routes by which the page controls running sessions."""

    def __init__(self, page: ControlPage, body: Body) -> None:
        self._page = page
        self._body = body
        self.hosted = HostedSessions(page.home)
        self._files = FolderFiles(page.home)
        self._last: dict[str, list[JSONObject]] = {}
        self._reopened: dict[str, float] = {}
        """When sessions were opened anew: for a moment these have no socket."""

    def routes(self) -> list[Route]:
        """One route for each thing that can be done."""
        at = "/api/sessions/{id}"
        return [
            Route(f"{at}/live", self._live),
            Route("/api/folders", self._folders),
            Route("/api/files", self._guarded(self._matching), methods=["GET"]),
            Route("/api/sessions", self._guarded(self._start), methods=["POST"]),
            *(
                Route(f"{at}/{name}", self._guarded(act), methods=["POST"])
                for name, act in (
                    ("answer", self._answer),
                    ("message", self._message),
                    ("interrupt", self._interrupt),
                    ("undo", self._undo),
                    ("undo_plan", self._undo_plan),
                    ("unqueue", self._unqueue),
                    ("model", self._model),
                    ("rename", self._rename),
                    ("resume", self._resume),
                    ("end", self._end),
                )
            ),
        ]

    def _guarded(
        self, act: Callable[[str, JSONObject], Awaitable[JSONObject]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A route that does nothing on a page without control, and answers errors as JSON."""

        async def route(request: Request) -> Response:
            page = self._page
            if page.read_only:
                return Json({"error": "this page is read-only (web_ui.read_only)"}, 403)
            if not page.control:
                return Json({"error": _OFF}, 403)
            try:
                is_read = request.method == "GET"
                body = dict(request.query_params) if is_read else await self._body(request)
                return Json(await act(str(request.path_params.get("id", "")), body))
            except NoSession as error:
                return Json({"error": str(error)}, 404)
            except ControlError as error:
                return Json({"error": str(error)}, 409)
            except PermissionError as error:
                return Json({"error": str(error)}, 403)

        return route

    async def states(self) -> dict[str, str]:
        """The states of the sessions that can be asked: `waiting`, `working` or `idle`."""
        running = sessions(self._page.home)
        found = await asyncio.gather(*map(self._state_of, running))
        states = {one: state for one, state in zip(running, found, strict=True) if state}
        self._reopened = {
            one: at for one, at in self._reopened.items() if monotonic() - at < _REOPENING
        }
        return dict.fromkeys(self._reopened, "idle") | states

    async def _state_of(self, session_id: str) -> str | None:
        with suppress(TimeoutError, ControlError):
            async with asyncio.timeout(_SOON):
                state = await ask_session(self._page.home, session_id, "state")
            if state.get("waiting"):
                return "waiting"
            return "working" if state.get("busy") is True else "idle"
        return None

    async def waiting(self) -> list[JSONObject]:
        """What waits in the running sessions, oldest first."""
        if not self._page.control:
            return []
        running = sessions(self._page.home)
        self._last = {one: rows for one, rows in self._last.items() if one in running}
        found = zip(running, await asyncio.gather(*map(self._soon, running)), strict=True)
        # The session is the one that was asked, whatever the row says.
        rows = [{**row, "session": one, "live": True} for one, listed in found for row in listed]
        return sorted(rows, key=lambda row: row["created"])

    async def _soon(self, session_id: str) -> list[JSONObject]:
        """What waits in a session; in one that does not answer, as a suspended one, what did."""
        with suppress(TimeoutError, NoAnswer):
            async with asyncio.timeout(_SOON):
                self._last[session_id] = await self._waiting_in(session_id)
        return self._last.get(session_id, [])

    async def _waiting_in(self, session_id: str) -> list[JSONObject]:
        try:
            reply = await ask_session(self._page.home, session_id, "waiting")
        except NoAnswer:
            raise
        except ControlError:
            return []
        listed = reply.get("waiting")
        return [row for row in listed if _is_shown(row)] if isinstance(listed, list) else []

    async def _answer(self, session_id: str, body: JSONObject) -> JSONObject:
        """Answer a request; what is critical takes the code, as in the page's other list."""
        rows = await self._waiting_in(session_id)
        row = next((row for row in rows if row["id"] == body.get("request")), None)
        if row is None:
            raise ControlError("this was answered already, or its turn has ended")
        if body.get("approve") is True and row.get("critical", True) and row["kind"] == "approval":
            self._page.code.check(body.get("code"))
        fields = {name: body[name] for name in _ANSWER if name in body}
        reply = await ask_session(self._page.home, session_id, "answer", **fields)
        return {"answer": str(reply.get("answer"))}

    async def _message(self, session_id: str, body: JSONObject) -> JSONObject:
        fields = {"text": body.get("text"), "queued": body.get("queued") is True}
        await ask_session(self._page.home, session_id, "message", **fields)
        return {}

    async def _interrupt(self, session_id: str, _: JSONObject) -> JSONObject:
        await ask_session(self._page.home, session_id, "interrupt")
        return {}

    async def _unqueue(self, session_id: str, body: JSONObject) -> JSONObject:
        fields = {"at": body.get("at"), "text": body.get("text")}
        await ask_session(self._page.home, session_id, "unqueue", **fields)
        return {}

    async def _model(self, session_id: str, body: JSONObject) -> JSONObject:
        await ask_session(self._page.home, session_id, "model", name=body.get("name"))
        self._reopened[session_id] = monotonic()
        return {}

    async def _undo_plan(self, session_id: str, body: JSONObject) -> JSONObject:
        turn = body.get("turn")
        reply = await ask_session(self._page.home, session_id, "undo_plan", turn=turn)
        return {name: _rows(reply.get(name)) for name in ("files", "kept")}

    async def _undo(self, session_id: str, body: JSONObject) -> JSONObject:
        reply = await ask_session(self._page.home, session_id, "undo", turn=body.get("turn"))
        lines = reply.get("lines")
        return {"lines": [str(line) for line in lines] if isinstance(lines, list) else []}

    # Sessions of the page's own

    def _used_folders(self) -> list[str]:
        """The folder of the server, and those of recorded sessions that are still there."""
        rows = self._page.sessions.rows(_MOST_ROWS)
        used = dict.fromkeys((self._page.folder, *(str(row["cwd"]) for row in rows)))
        return [folder for folder in used if folder and os.path.isdir(folder)]

    def _known_folders(self) -> list[str]:
        """Those where a session can be started: they are still what they were called."""
        return [folder for folder in self._used_folders() if os.path.realpath(folder) == folder]

    async def _folders(self, _: Request) -> Response:
        can = self._page.control and not self._page.read_only
        return Json({"folders": await asyncio.to_thread(self._known_folders) if can else []})

    async def _start(self, _: str, body: JSONObject) -> JSONObject:
        """Start a session, in a folder that Toolrest was used in before."""
        folder, text = body.get("folder"), body.get("text")
        if folder not in await asyncio.to_thread(self._known_folders):
            raise ControlError(f"begin in the folder {folder!r} at a terminal first")
        used = await asyncio.to_thread(self._used_folders)
        return {"session": await self.hosted.start(str(folder), str(text or ""), used)}

    async def _rename(self, session_id: str, body: JSONObject) -> JSONObject:
        await asyncio.to_thread(self._path, session_id)
        names, name = self._page.sessions.names, str(body.get("title") or "")
        return {"title": await asyncio.to_thread(names.give, session_id, name)}

    async def _resume(self, session_id: str, body: JSONObject) -> JSONObject:
        """Resume an ended session in its folder, with its limits or narrower ones."""
        path = await asyncio.to_thread(self._path, session_id)
        folder, options = await asyncio.to_thread(
            resumed, path, session_id, str(body.get("sandbox") or "")
        )
        if folder not in await asyncio.to_thread(self._known_folders):
            raise ControlError(f"the folder {folder!r} is not what it was; resume at a terminal")
        used = await asyncio.to_thread(self._used_folders)
        text = str(body.get("text") or "")
        return {"session": await self.hosted.start(folder, text, used, options)}

    def _path(self, session_id: str) -> str:
        try:
            return self._page.sessions.path(session_id)
        except ConfigError as error:
            raise NoSession(str(error)) from None

    async def _matching(self, _: str, body: JSONObject) -> JSONObject:
        """The names of files behind an `@`, in a folder where sessions are begun."""
        folder = str(body.get("folder") or "")
        if folder not in await asyncio.to_thread(self._known_folders):
            raise ControlError("no session is in this folder")
        typed = str(body.get("typed") or "")
        return {"names": await asyncio.to_thread(self._files.matching, folder, typed)}

    async def _end(self, session_id: str, _: JSONObject) -> JSONObject:
        await self.hosted.end(session_id)
        return {}

    async def _live(self, request: Request) -> Response:
        """What the session writes now, as server-sent events; also for a read-only page."""
        session_id = request.path_params["id"]
        stream = watch_session(self._page.home, session_id)
        try:
            async with asyncio.timeout(_SOON):
                first = await anext(stream)
        except NoAnswer:
            return Json({"error": "this session does not answer"}, 404)
        except NoSession as error:
            return Json({"error": str(error)}, 404)
        except (ControlError, StopAsyncIteration, TimeoutError):
            return Json({"error": "this session is not running here, or does not answer"}, 404)
        can = self._page.control and not self._page.read_only
        live = _events({**first, "control": can, "hosted": session_id in self.hosted}, stream)
        return StreamingResponse(live, media_type="text/event-stream")


def _rows(value: Any) -> list[JSONObject]:
    rows = value if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, dict)]


def _is_shown(row: Any) -> bool:
    """Whether this is what a session sends: any program of this user can listen beside them."""
    texts = isinstance(row, dict) and all(
        isinstance(row.get(name), str) for name in ("id", "pin", "kind")
    )
    return texts and isinstance(row.get("created"), float | int)


_ANSWER = ("request", "pin", "approve", "scope", "note", "answers")
_OFF = "control is off on this page: it takes an address on loopback and web_ui.control = true"


async def _events(
    first: JSONObject, stream: AsyncGenerator[JSONObject, None]
) -> AsyncGenerator[bytes, None]:
    """A session's messages; a comment now and then finds closed connections."""
    yield _message(first)
    markup = LiveMarkup()
    coming: asyncio.Future[JSONObject] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(stream))
            done, _ = await asyncio.wait({coming}, timeout=_ALIVE)
            if not done:
                yield b": alive\n\n"
                continue
            try:
                message: Any = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            if message["event"] in ("text_end", "reset"):
                markup = LiveMarkup()
            if message["event"] == "text":
                message = {**message, **await _with_blocks(markup, message.get("text"))}
            yield _message(message)
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.wait({coming})
        await stream.aclose()


async def _with_blocks(markup: LiveMarkup, text: Any) -> JSONObject:
    """A piece of what the model writes, as blocks."""
    piece = text if isinstance(text, str) else ""
    if markup.size + len(piece) <= _SMALL:
        return markup.feed(piece)
    return await asyncio.to_thread(markup.feed, piece)


def _message(message: JSONObject) -> bytes:
    return f"event: {message['event']}\ndata: {json.dumps(message)}\n\n".encode()

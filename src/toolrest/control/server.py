"""The server behind a session's control socket."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import select
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolrest.agent.conversation.events import TaskComplete
from toolrest.control.answers import LONGEST_MESSAGE, answer_of, pin_of, waiting_json
from toolrest.control.controls import ControlError, Controls, TurnControls, own_models
from toolrest.control.live import LiveText, merged
from toolrest.control.sockets import is_own_peer, listen, path_of
from toolrest.errors import ToolrestError
from toolrest.gate.approval.request import Review
from toolrest.gate.threads import Abandoned
from toolrest.items import JSONObject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolrest.agent.conversation.conversation import Conversation

VERSION = 3
INERT = 0.5
"""Seconds in which nothing that has just appeared can be approved."""
_LONGEST_LINE = 1 << 20
_MOST_UNREAD = 8 << 20
_TOGETHER = 0.1
"""Seconds between two messages to viewers; what comes in between is sent together."""
_MOST_CONNECTIONS = 64
_NO_TURN = "turn is the number that `undo` of the session's state has"
_log = logging.getLogger("toolrest")


class ControlServer:
    """Answers the connections to one session; it ends with the session."""

    def __init__(self, conversation: Conversation, controls: Controls) -> None:
        self._conversation = conversation
        self._controls = controls
        self._home = conversation.rest.config.home
        self._waiting = conversation.rest.session.approvals.waiting
        self._unwatch = self._waiting.watch(self._waiting_changed)
        self._live = LiveText()
        self._viewers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._turn: int | None = None
        self._finding: asyncio.Task[None] | None = None
        self._unsent: list[JSONObject] = []
        self._sent = 0.0
        self._queued: list[str] = []
        self._listening = listen(self._home, conversation.id)
        self._inode = os.lstat(path_of(self._home, conversation.id)).st_ino
        self._events = conversation.rest.events()
        asyncio.get_running_loop().add_reader(self._listening, self._accept)
        self._following = asyncio.ensure_future(self._follow())
        if conversation.history:  # a new session has no turn yet
            self._find_turn()

    def close(self) -> None:
        """Close the socket and every connection; what still waits is the front end's alone."""
        asyncio.get_running_loop().remove_reader(self._listening)
        self._unwatch()
        self._listening.close()
        path = path_of(self._home, self._conversation.id)
        with suppress(OSError):
            if os.lstat(path).st_ino == self._inode:  # else the session is open once more
                os.unlink(path)
        for task in list(self._connections):
            task.cancel()
        self._following.cancel()
        if self._finding is not None:
            self._finding.cancel()

    async def _follow(self) -> None:
        """Send on what the session writes, until it is closed."""
        try:
            async for event in self._events:
                self._send(self._live.feed(event))
                if isinstance(event, TaskComplete):
                    end = {"status": event.status, "error": event.error}
                    self._send([{"event": "end", **end}])
                if event.type in ("user_message", "task_complete"):
                    self._send([{**self._state(), "busy": event.type == "user_message"}])
                    self._touch()
                elif self._controls.queued() != self._queued:
                    self._send([self._state()])
                if event.type == "files_changed":
                    self._find_turn()
        finally:
            if self._listening.fileno() >= 0:
                self.close()

    # Connections

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return
        if len(self._connections) >= _MOST_CONNECTIONS or not is_own_peer(connection):
            connection.close()
            return
        task = asyncio.ensure_future(self._serve(connection))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_LONGEST_LINE)
        nonce = secrets.token_hex(16)
        try:
            writer.write(_line({"hello": nonce, "version": VERSION}))
            while line := await reader.readline():
                writer.write(_line(await self._reply(line, nonce, writer)))
                await writer.drain()
        except (OSError, ValueError):
            pass  # it is gone, or sent too long a line
        finally:
            self._viewers.discard(writer)
            writer.close()

    async def _reply(self, line: bytes, nonce: str, writer: asyncio.StreamWriter) -> JSONObject:
        identity: Any = None
        try:
            request: Any = json.loads(line)
            if not isinstance(request, dict):
                raise ControlError("a request is a JSON object")
            identity = request.get("id")
            if request.get("op") == "subscribe":
                self._subscribe(writer)
                return {"id": identity, "ok": True}
            act = _OPS.get(str(request.get("op")))
            if act is None:
                raise ControlError(f"op is one of subscribe, {', '.join(_OPS)}")
            if request["op"] not in _LOOKING:
                _check_waiting(request, nonce, writer)
            return {"id": identity, "ok": True, **await act(self, request)}
        except (ToolrestError, ValueError, RecursionError) as error:
            return {"id": identity, "error": str(error)}
        except Exception as error:
            _log.exception("a request to the control socket failed")
            return {"id": identity, "error": f"an error in Toolrest itself: {error}"}

    # What can be asked for

    def _state(self) -> JSONObject:
        self._queued = self._controls.queued()
        return {
            "event": "state",
            "version": VERSION,
            "session": self._conversation.id,
            "busy": self._controls.busy,
            "waiting": len(self._waiting.listed()),
            "undo": self._turn,
            "queued": self._queued,
            "model": self._conversation.model.name,
            "models": own_models(self._conversation.rest.settings),
        }

    async def _get_state(self, _: JSONObject) -> JSONObject:
        return self._state()

    def _subscribe(self, writer: asyncio.StreamWriter) -> None:
        self._flush()  # the snapshot has these pieces
        writer.write(b"".join(map(_line, (self._state(), *self._live.snapshot()))))
        self._viewers.add(writer)

    async def _list(self, _: JSONObject) -> JSONObject:
        rest = self._conversation.rest
        around = {
            "session": self._conversation.id,
            "workspace": rest.workspace,
            "sandbox": rest.settings.sandbox_mode,
        }
        rows = [waiting_json(one, rest.workspace) for one in self._waiting.listed()]
        return {"waiting": [{**around, **row} for row in rows]}

    async def _answer(self, request: JSONObject) -> JSONObject:
        found = self._waiting.get(str(request.get("request")))
        if found is None:
            raise ControlError("this was answered already, or its turn has ended")
        if request.get("pin") != pin_of(found):
            raise ControlError("another request was shown; load it again")
        answer = answer_of(found, request, INERT)
        if not await self._waiting.give(found, answer):
            raise ControlError("this was answered already")
        return {"answer": answer.answer if isinstance(answer, Review) else "answered"}

    async def _message(self, request: JSONObject) -> JSONObject:
        text = request.get("text")
        if not isinstance(text, str) or not text.strip() or len(text) > LONGEST_MESSAGE:
            raise ControlError(f"text is a message of up to {LONGEST_MESSAGE:,} characters")
        self._controls.send(text, queued=request.get("queued") is True)
        self._send([self._state()])
        return {}

    async def _unqueue(self, request: JSONObject) -> JSONObject:
        at, text = request.get("at"), request.get("text")
        if type(at) is not int or not isinstance(text, str):
            raise ControlError("at is the place of a queued message, and text that message")
        self._controls.unqueue(at, text)
        self._send([self._state()])
        return {}

    async def _model(self, request: JSONObject) -> JSONObject:
        name = request.get("name")
        if name not in own_models(self._conversation.rest.settings):
            raise ControlError(f"the settings name no model {name!r}")
        if self._controls.busy:
            raise ControlError("a turn is under way; stop it first")
        self._controls.use_model(str(name))
        return {}

    async def _interrupt(self, _: JSONObject) -> JSONObject:
        await self._controls.interrupt()
        return {}

    async def _undo_plan(self, request: JSONObject) -> JSONObject:
        """The files that `undo` would put back, and those that it would not."""
        turn = request.get("turn")
        if type(turn) is not int:
            raise ControlError(_NO_TURN)
        plan = (await self._conversation.rest.undo(turn, own=True, dry_run=True)).plan
        files = [{"path": item.path, "action": item.action} for item in plan.items]
        kept = [{"path": one.path, "why": one.why} for one in (*plan.kept, *plan.lost)]
        return {"files": files, "kept": kept}

    async def _undo(self, request: JSONObject) -> JSONObject:
        turn = request.get("turn")
        if type(turn) is not int:
            raise ControlError(_NO_TURN)
        if self._controls.busy:
            raise ControlError("a turn is under way; interrupt it first")
        try:
            return {"lines": await self._controls.undo(turn)}
        finally:
            self._find_turn()

    def _find_turn(self) -> None:
        """Find the turn that undo takes back, off the event loop, and send it to viewers."""

        async def find() -> None:
            with suppress(ToolrestError, OSError, Abandoned):
                self._turn = await self._conversation.rest.newest_turn()
            self._send([{"event": "undo", "turn": self._turn}])

        self._turn = None  # a viewer does not ask for the one before
        self._send([{"event": "undo", "turn": None}])
        if self._finding is not None:
            self._finding.cancel()
        self._finding = asyncio.ensure_future(find())

    # What viewers are sent

    def _waiting_changed(self) -> None:
        self._touch()
        self._send([self._state()])

    def _touch(self) -> None:
        """Say that the state has changed to a page, which watches the folder for this."""
        with suppress(OSError):
            os.utime(path_of(self._home, self._conversation.id))

    def _send(self, messages: list[JSONObject]) -> None:
        if not messages or not self._viewers:
            return
        if not self._unsent:
            asyncio.get_running_loop().call_at(self._sent + _TOGETHER, self._flush)
        self._unsent += messages

    def _flush(self) -> None:
        data = b"".join(map(_line, merged(self._unsent)))
        self._unsent = []
        self._sent = asyncio.get_running_loop().time()
        for writer in list(self._viewers) if data else ():
            if writer.transport.get_write_buffer_size() > _MOST_UNREAD:
                self._viewers.discard(writer)
                writer.transport.abort()  # it connects again, and is given what there is
            else:
                writer.write(data)


_OPS: dict[str, Callable[[ControlServer, JSONObject], Awaitable[JSONObject]]] = {
    "state": ControlServer._get_state,
    "waiting": ControlServer._list,
    "answer": ControlServer._answer,
    "message": ControlServer._message,
    "interrupt": ControlServer._interrupt,
    "undo": ControlServer._undo,
    "undo_plan": ControlServer._undo_plan,
    "unqueue": ControlServer._unqueue,
    "model": ControlServer._model,
}


_LOOKING = frozenset({"state", "waiting", "undo_plan"})
"""What changes nothing."""


def _check_waiting(request: JSONObject, nonce: str, writer: asyncio.StreamWriter) -> None:
    """Refuse what was asked for before the session answered, or by a client that has given up.

    A suspended session finds such requests in its socket when it goes on; their clients have
    reported them as failed.
    """
    if request.get("nonce") != nonce:
        raise ControlError("nonce is the `hello` of the line that this connection began with")
    poll = select.poll()
    poll.register(writer.get_extra_info("socket"), 0)
    if poll.poll(0):  # the other end is closed
        raise ControlError("the client has gone")


def open_control(
    conversation: Conversation, controls: Controls | None = None
) -> ControlServer | None:
    """Open a session's control socket, unless the settings or the system say otherwise.

    A session without one runs as well: it is answered where it was started. Unconfined commands
    are the user's own processes and could answer for the user, so with full access there is none.
    """
    settings = conversation.rest.settings
    if settings.sandbox_mode == "danger-full-access":
        return None
    if not settings.web_ui.control or not hasattr(socket, "SO_PEERCRED"):
        return None
    try:
        return ControlServer(conversation, controls or TurnControls(conversation))
    except OSError as error:
        _log.warning("no control socket: %s", error)
        return None


def _line(message: JSONObject) -> bytes:
    return json.dumps(message).encode() + b"\n"

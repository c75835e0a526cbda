"""A client of control sockets, as the browser page's server uses it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from math import isfinite
from typing import Any

from toolrest.control.controls import ControlError
from toolrest.control.sockets import connect
from toolrest.items import JSONObject

_EVENT = re.compile("[a-z_]{1,40}")
_LONGEST_LINE = 64 << 20
_PATIENCE = 30.0
_GREETING = 10.0
"""Seconds in which a session that runs says that it is there."""
_SILENT = "the session does not answer (it may be suspended); nothing was sent to it"


class NoSession(ControlError):
    """A session that is not running, or has no control socket."""


class NoAnswer(NoSession):
    """A session that is there and does not answer, as one that is suspended."""


async def ask_session(home: str, session_id: str, op: str, **fields: Any) -> JSONObject:
    """Send one request; its reply. ControlError has the reason when it cannot be done.

    Nothing is sent to a session that does not answer: it would do it later, when it goes on.
    """
    reader, writer, nonce = await _open(home, session_id)
    try:
        async with asyncio.timeout(_PATIENCE):
            # Escapes would make a long message too long a line.
            line = json.dumps({**fields, "op": op, "nonce": nonce}, ensure_ascii=False)
            writer.write(line.encode("utf-8", "surrogatepass") + b"\n")
            reply = _object(await reader.readline())
    except TimeoutError:
        raise NoAnswer("no answer from the session; check whether it did this") from None
    except (OSError, ValueError):
        raise NoAnswer("the session has ended without an answer") from None
    finally:
        writer.close()
    if reply.get("ok") is not True:
        raise ControlError(str(reply.get("error") or "the session has refused the connection"))
    return reply


async def watch_session(home: str, session_id: str) -> AsyncGenerator[JSONObject, None]:
    """What a session writes from now on, beginning with its state and what is half written."""
    reader, writer, _ = await _open(home, session_id)
    try:
        writer.write(b'{"op": "subscribe"}\n')
        while line := await reader.readline():
            message = _object(line)
            if _EVENT.fullmatch(str(message.get("event"))):
                yield message
    except (OSError, ValueError):
        return
    finally:
        writer.close()


async def _open(
    home: str, session_id: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """A connection to a session, and the nonce by which it shows that it answers."""
    try:
        connection = connect(home, session_id)
    except BlockingIOError:  # those that wait for it fill its queue
        raise NoAnswer(_SILENT) from None
    except OSError:
        raise NoSession(
            "this session is not running, or cannot be joined: with full access it has no control "
            "socket, for its commands could answer for you"
        ) from None
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_LONGEST_LINE)
    try:
        async with asyncio.timeout(_GREETING):
            greeting = _object(await reader.readline())
        return reader, writer, str(greeting["hello"])
    except BaseException as error:
        writer.close()
        if isinstance(error, KeyError):
            raise NoSession("the session has refused the connection") from None
        if isinstance(error, OSError | ValueError | TimeoutError):
            raise NoAnswer(_SILENT) from None
        raise


def _object(line: bytes) -> JSONObject:
    """The object of a line, an empty one for anything else; ValueError for what is not JSON.

    Any program of this user can listen beside the sessions, and may answer whatever it likes.
    """
    try:
        value: Any = json.loads(line or b"null", parse_float=_finite, parse_constant=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value if isinstance(value, dict) else {}


def _finite(text: str) -> float:
    """A number that JSON can have; ValueError for another."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is no number of JSON")
    return value

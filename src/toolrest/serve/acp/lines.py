"""The editor's lines as messages: what is none, or says what cannot be meant, is answered.

The library ends the connection, and every session with it, on a line of JSON that is no object;
it drops an MCP server that it cannot read, and takes a version that is no number for its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from acp.schema import NewSessionRequest
from pydantic import TypeAdapter, ValidationError

from toolrest.items import JSONObject
from toolrest.policy.terminal_safe import display_safe

_PARSE_ERROR, _INVALID_REQUEST, _INVALID_PARAMS = -32700, -32600, -32602
_FIELD: Any = NewSessionRequest.model_fields["mcp_servers"].annotation
_SERVERS: TypeAdapter[Any] = TypeAdapter(_FIELD)


class EditorLines:
    """The library's transport of messages, over a pair of streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: JSONObject) -> None:
        """Write a message as one line."""
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
        self._writer.write(text.encode("utf-8", "surrogatepass") + b"\n")
        await self._writer.drain()

    async def receive(self) -> JSONObject | None:
        """The next message that makes sense; None at the end."""
        while line := await self._line():
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                await self._refuse(None, _PARSE_ERROR, "this line is not JSON")
                continue
            if not isinstance(message, dict):
                await self._refuse(None, _INVALID_REQUEST, "a message is a JSON object")
            elif problem := _problem(message):
                await self._refuse(message.get("id"), _INVALID_PARAMS, problem)
            else:
                _name_bad_servers(message)
                return message
        return None

    async def close(self) -> None:
        """Close the line to the editor."""
        self._writer.close()

    async def _refuse(self, id_: Any, code: int, text: str) -> None:
        error = {"code": code, "message": text}
        await self.send({"jsonrpc": "2.0", "id": id_, "error": error})

    async def _line(self) -> bytes:
        parts: list[bytes] = []
        while True:
            try:
                parts.append(await self._reader.readuntil(b"\n"))
            except asyncio.LimitOverrunError as longer:
                parts.append(await self._reader.readexactly(longer.consumed))
                continue
            except asyncio.IncompleteReadError as end:
                parts.append(end.partial)
            return b"".join(parts)


def _problem(message: JSONObject) -> str:
    params = message.get("params")
    if message.get("method") != "initialize" or not isinstance(params, dict):
        return ""
    version = params.get("protocolVersion")
    is_number = isinstance(version, int) and not isinstance(version, bool)
    return "" if is_number else f"protocolVersion is a number, not {json.dumps(version)[:40]}"


def _name_bad_servers(message: JSONObject) -> None:
    """Say on standard error which of the editor's MCP servers are left out, and why."""
    params = message.get("params")
    given = params.get("mcpServers") if isinstance(params, dict) else None
    for entry in given if isinstance(given, list) else ():
        try:
            _SERVERS.validate_python([entry])
        except ValidationError as error:
            name = entry.get("name") if isinstance(entry, dict) else None
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"] if str(step).islower())
            text = f"the editor's MCP server {name or '?'} is left out: {where}: {first['msg']}"
            sys.stderr.write(f"toolrest: {display_safe(text)}\n")

"""Standard input and output as the line to a client: an MCP client, or an editor."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from toolrest.serve.acp.agent import EditorAgent
    from toolrest.serve.server import ToolServer

_LONGEST_LINE = 50 * 1024 * 1024


async def tools_over_stdio(tools: ToolServer) -> None:
    """Serve tools to the MCP client that started this process, until it disconnects."""
    # The SDK takes half a second to load.
    from mcp.server.stdio import stdio_server

    server = tools.server()
    options = server.create_initialization_options()
    try:
        if not (can_talk(0) and can_talk(1)):
            async with stdio_server() as (read, write):
                await server.run(read, write, options)
            return
        # The SDK reads in a thread, and a signal cannot end that.
        async with _protocol_streams() as (reader, writer):
            writer.transport.set_write_buffer_limits(0)  # so that nothing is lost at the end
            lines, text = _Lines(reader), _Text(writer)
            async with stdio_server(lines, text) as (read, write):  # type: ignore[arg-type]
                await server.run(read, write, options)
    except Exception:
        # Stopped by a signal, the SDK may fail over a message that was on its way.
        if (this := asyncio.current_task()) is not None and this.cancelling():
            raise asyncio.CancelledError from None
        raise
    finally:
        await tools.aclose()


async def editor_over_stdio(agent: EditorAgent) -> None:
    """Serve as the agent of the editor that started this process, until it disconnects."""
    # As above.
    from acp import run_agent

    from toolrest.serve.acp.lines import EditorLines

    async with _protocol_streams() as (reader, writer):
        try:
            # The library counts session/close and session/resume as unstable; the protocol does not
            lines: Any = EditorLines(reader, writer)
            await run_agent(agent, lines, use_unstable_protocol=True)  # type: ignore[arg-type]
        finally:
            await agent.aclose()


def can_talk(descriptor: int) -> bool:
    """Whether it is a pipe, socket or terminal; asyncio cannot wait for files and /dev/null."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)


class _Lines:
    """What the client sends, line by line."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        try:
            line = await self._reader.readline()
        except ValueError:
            return "a line that is too long"  # which the client is told is no message
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", "replace")


class _Text:
    """What the client gets."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, text: str) -> None:
        """Write a message."""
        self._writer.write(text.encode())

    async def flush(self) -> None:
        """Wait until the client has read most of it."""
        await self._writer.drain()


@asynccontextmanager
async def _protocol_streams() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Standard input and output for the protocol alone.

    What a tool prints goes to standard error, and what reads standard input finds it empty.
    """
    loop = asyncio.get_running_loop()
    ends = os.dup(0), os.dup(1)
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        yield reader, writer
    finally:
        writer.close()
        for end in ends:
            os.set_blocking(end, True)  # the shell at this terminal shares it
            os.close(end)

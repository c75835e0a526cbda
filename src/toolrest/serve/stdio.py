"""Standard input and output as the line to a client: an MCP client, or an editor."""

from __future__ import annotations

import asyncio
import os
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
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        await tools.aclose()


async def editor_over_stdio(agent: EditorAgent) -> None:
    """Serve as the agent of the editor that started this process, until it disconnects."""
    # As above.
    from acp import run_agent

    from toolrest.serve.acp.lines import EditorLines

    reader, writer = await _protocol_streams()
    try:
        # The library counts session/close and session/resume as unstable; the protocol does not.
        lines: Any = EditorLines(reader, writer)
        await run_agent(agent, lines, use_unstable_protocol=True)  # type: ignore[arg-type]
    finally:
        await agent.aclose()
        writer.close()


async def _protocol_streams() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Standard input and output for the protocol alone.

    What a tool prints goes to standard error, and what reads standard input finds it empty.
    """
    loop = asyncio.get_running_loop()
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sink)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)

"""openai-agents as a client: its own MCP server object."""

import asyncio
import json
import sys
from importlib.metadata import version

from agents.mcp import MCPServerStdio


async def main() -> None:
    params = {"command": sys.argv[1], "args": sys.argv[2:]}
    async with MCPServerStdio(params=params, client_session_timeout_seconds=300) as server:
        tools = [tool.name for tool in await server.list_tools()]
        read = await server.call_tool("read_file", {"file_path": "hello.txt"})
        denied = await server.call_tool("read_file", {"file_path": ".env"})
    found = {
        "version": version("openai-agents"),
        "tools": tools,
        "texts": [result.content[0].text for result in (read, denied)],
        "failed": [bool(result.model_dump(by_alias=True)["isError"]) for result in (read, denied)],
    }
    sys.stdout.write(json.dumps(found))


asyncio.run(main())

"""fastmcp as a client; prints what it saw as JSON. `python FILE COMMAND...` starts the server."""

import asyncio
import json
import sys
from importlib.metadata import version

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main() -> None:
    async with Client(StdioTransport(sys.argv[1], sys.argv[2:])) as client:
        tools = [tool.name for tool in await client.list_tools()]
        read = await client.call_tool("read_file", {"file_path": "hello.txt"})
        secret = {"file_path": ".env"}
        denied = await client.call_tool("read_file", secret, raise_on_error=False)
    texts = [result.content[0].text for result in (read, denied)]
    found = {"version": version("fastmcp"), "tools": tools, "texts": texts}
    sys.stdout.write(json.dumps({**found, "failed": [read.is_error, denied.is_error]}))


asyncio.run(main())

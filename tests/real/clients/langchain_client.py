"""langchain-mcp-adapters as a client: the tools as LangChain's own."""

import asyncio
import json
import sys
from importlib.metadata import version

from langchain_core.tools import ToolException
from langchain_mcp_adapters.client import MultiServerMCPClient


async def main() -> None:
    row = {"transport": "stdio", "command": sys.argv[1], "args": sys.argv[2:]}
    tools = {tool.name: tool for tool in await MultiServerMCPClient({"t": row}).get_tools()}
    texts = []
    for path in ("hello.txt", ".env"):
        try:
            texts.append(str(await tools["read_file"].ainvoke({"file_path": path})))
        except ToolException as error:  # or the text of the error is the answer, by version
            texts.append(str(error))
    found = {"version": version("langchain-mcp-adapters"), "tools": [*tools], "texts": texts}
    sys.stdout.write(json.dumps(found))


asyncio.run(main())

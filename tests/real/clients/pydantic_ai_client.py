"""pydantic-ai as a client: an agent whose model is a function that calls the tools."""

import asyncio
import json
import sys
from importlib.metadata import version

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

FILES = ["hello.txt", ".env"]
seen: list[str] = []
tools: list[str] = []


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    tools[:] = [tool.name for tool in info.function_tools]
    seen.extend(
        str(part.content)
        for part in messages[-1].parts
        if part.part_kind in ("tool-return", "retry-prompt")
    )
    if len(seen) < len(FILES):
        call = ToolCallPart("read_file", {"file_path": FILES[len(seen)]})
        return ModelResponse(parts=[call])
    return ModelResponse(parts=[TextPart("done")])


async def main() -> None:
    transport = StdioTransport(sys.argv[1], sys.argv[2:])
    server = MCPToolset(transport, init_timeout=300, read_timeout=300)
    agent = Agent(FunctionModel(model), toolsets=[server])
    async with agent:
        await agent.run("read both")
    name = "pydantic-ai-slim"
    found = {"version": version(name), "tools": tools, "texts": seen}
    sys.stdout.write(json.dumps(found))


asyncio.run(main())

"""The answer while it is written, and the calls on the way."""

import asyncio

from toolrest import Agent, AgentMessageDelta, ToolCallEnd, tool


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    agent = Agent("openai:gpt-5.5", tools=[weather])
    async with agent.stream("Do I need an umbrella in Oslo?") as events:
        async for event in events:
            if isinstance(event, AgentMessageDelta):
                print(event.delta, end="", flush=True)
            elif isinstance(event, ToolCallEnd):
                print(f"[{event.tool}: {event.output}]")
    print()


asyncio.run(main())

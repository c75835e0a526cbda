"""A chat that remembers, with one tool."""

import asyncio

from toolrest import Agent, tool


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    agent = Agent("openai:gpt-5.5", tools=[weather], instructions="Answer in one sentence.")
    async with agent.session() as chat:
        for prompt in ("Do I need an umbrella in Oslo?", "And in Bergen?"):
            print((await chat.run(prompt)).text)


asyncio.run(main())

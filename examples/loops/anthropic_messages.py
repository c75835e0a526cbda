"""A loop of your own with the anthropic package."""

import asyncio

from anthropic import AsyncAnthropic
from anthropic.types import MessageParam

from toolrest import Toolrest, tool


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    client = AsyncAnthropic()
    prompt = "Do I need an umbrella in Oslo?"
    messages: list[MessageParam] = [{"role": "user", "content": prompt}]
    async with Toolrest(".", tools=[weather]) as rest:
        while True:
            reply = await client.messages.create(
                model="claude-sonnet-4-5",
                max_tokens=1000,
                messages=messages,
                tools=rest.specs("anthropic"),
            )
            answers = await rest.answer(reply)
            if not answers:
                break
            messages.append({"role": "assistant", "content": reply.content})
            messages += answers
    print("".join(block.text for block in reply.content if block.type == "text"))


asyncio.run(main())

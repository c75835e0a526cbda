"""A loop of your own with the openai package, on Chat Completions."""

import asyncio

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from toolrest import Toolrest, tool


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    client = AsyncOpenAI()
    prompt = "Do I need an umbrella in Oslo?"
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": prompt}]
    async with Toolrest(".", tools=[weather]) as rest:
        while True:
            response = await client.chat.completions.create(
                model="gpt-5.5", messages=messages, tools=rest.specs("chat"), stream=True
            )
            chunks = [chunk async for chunk in response]
            answers = await rest.answer(chunks)  # the model's own message, then the outputs
            if not answers:
                break
            messages += answers
    print("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))


asyncio.run(main())

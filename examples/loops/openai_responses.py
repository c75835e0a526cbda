"""A loop of your own with the openai package, on the Responses API."""

import asyncio

from openai import AsyncOpenAI
from openai.types.responses import ResponseInputItemParam

from toolrest import Toolrest, tool


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    client = AsyncOpenAI()
    prompt = "Do I need an umbrella in Oslo?"
    items: list[ResponseInputItemParam] = [{"role": "user", "content": prompt}]
    async with Toolrest(".", tools=[weather]) as rest:
        while True:
            stream = await client.responses.create(
                model="gpt-5.5", input=items, tools=rest.specs("responses"), stream=True
            )
            events = [event async for event in stream]
            answers = await rest.answer(events)  # the model's own items, then the outputs
            if not answers:
                break
            items += answers
    print("".join(e.delta for e in events if e.type == "response.output_text.delta"))


asyncio.run(main())

import asyncio

from pydantic_ai import (
    Agent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)


def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    agent = Agent("openai-responses:gpt-5.5", tools=[weather])
    async with agent.run_stream_events("Do I need an umbrella in Oslo?") as events:
        async for event in events:
            if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                print(event.part.content, end="", flush=True)
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                print(event.delta.content_delta, end="", flush=True)
            elif isinstance(event, FunctionToolResultEvent):
                print(f"[{event.part.tool_name}: {event.part.content}]")
    print()


asyncio.run(main())

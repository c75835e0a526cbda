import asyncio

from agents import Agent, Runner, function_tool
from openai.types.responses import ResponseTextDeltaEvent


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    agent = Agent("weather", model="gpt-5.5", tools=[weather])
    result = Runner.run_streamed(agent, "Do I need an umbrella in Oslo?")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            print(event.data.delta, end="", flush=True)
        elif event.type == "run_item_stream_event" and event.item.type == "tool_call_output_item":
            print(f"[{event.item.output}]")
    print()


asyncio.run(main())

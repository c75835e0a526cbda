import asyncio

from agents import Agent, Runner, SQLiteSession, function_tool


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    agent = Agent(
        "weather", model="gpt-5.5", tools=[weather], instructions="Answer in one sentence."
    )
    session = SQLiteSession("chat")
    for prompt in ("Do I need an umbrella in Oslo?", "And in Bergen?"):
        print((await Runner.run(agent, prompt, session=session)).final_output)


asyncio.run(main())

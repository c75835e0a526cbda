import asyncio

from pydantic_ai import Agent


def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


async def main() -> None:
    agent = Agent(
        "openai-responses:gpt-5.5", tools=[weather], instructions="Answer in one sentence."
    )
    history = None
    for prompt in ("Do I need an umbrella in Oslo?", "And in Bergen?"):
        result = await agent.run(prompt, message_history=history)
        history = result.all_messages()
        print(result.output)


asyncio.run(main())

from pydantic_ai import Agent


def stock(item: str) -> int:
    """How many of an item are in the warehouse."""
    return {"lamp": 3}.get(item, 0)


clerk = Agent("openai-responses:gpt-5.5", tools=[stock])


async def ask_clerk(prompt: str) -> str:
    """Ask the clerk, who knows what is in the warehouse."""
    return (await clerk.run(prompt)).output


seller = Agent("openai-responses:gpt-5.5", tools=[ask_clerk])
print(seller.run_sync("Can I buy two lamps?").output)

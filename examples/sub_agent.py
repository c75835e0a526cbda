"""An agent that another one asks."""

from toolrest import Agent, tool


@tool
def stock(item: str) -> int:
    """How many of an item are in the warehouse."""
    return {"lamp": 3}.get(item, 0)


clerk = Agent(
    "openai:gpt-5.5", tools=[stock], name="clerk", description="Knows what is in the warehouse."
)
seller = Agent("openai:gpt-5.5", tools=[clerk])
print(seller.run_sync("Can I buy two lamps?").text)

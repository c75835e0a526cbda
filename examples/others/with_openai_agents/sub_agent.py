from agents import Agent, Runner, function_tool


@function_tool
def stock(item: str) -> int:
    """How many of an item are in the warehouse."""
    return {"lamp": 3}.get(item, 0)


clerk = Agent("clerk", model="gpt-5.5", tools=[stock])
seller = Agent(
    "seller",
    model="gpt-5.5",
    tools=[clerk.as_tool("clerk", "Knows what is in the warehouse.")],
)
print(Runner.run_sync(seller, "Can I buy two lamps?").final_output)

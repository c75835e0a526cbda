import asyncio

from agents import Agent, Runner, function_tool


@function_tool(needs_approval=True)
def refund(order: str, amount: int) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount} for {order}"


async def main() -> None:
    agent = Agent("refunds", model="gpt-5.5", tools=[refund])
    result = await Runner.run(agent, "Refund 20 for order A7.")
    while result.interruptions:
        state = result.to_state()
        for call in result.interruptions:
            if input(f"{call.name} {call.arguments}? [y/n] ") == "y":
                state.approve(call)
            else:
                state.reject(call)
        result = await Runner.run(agent, state)
    print(result.final_output)


asyncio.run(main())

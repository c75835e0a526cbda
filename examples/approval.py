"""A call that a person has to approve, asked through a callback."""

from toolrest import Agent, ApprovalRequest, tool


@tool(mutating=True)
def refund(order: str, amount: int) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount} for {order}"


def approve(request: ApprovalRequest) -> bool:
    return input(f"{request.tool} {request.arguments}? [y/n] ") == "y"


agent = Agent("openai:gpt-5.5", tools=[refund], on_ask=approve)
print(agent.run_sync("Refund 20 for order A7.").text)

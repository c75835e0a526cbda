from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool


def refund(order: str, amount: int) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount} for {order}"


agent = Agent(
    "openai-responses:gpt-5.5",
    tools=[Tool(refund, requires_approval=True)],
    output_type=[str, DeferredToolRequests],
)
result = agent.run_sync("Refund 20 for order A7.")
while isinstance(result.output, DeferredToolRequests):
    answers = DeferredToolResults()
    for call in result.output.approvals:
        answers.approvals[call.tool_call_id] = input(f"{call.tool_name} {call.args}? [y/n] ") == "y"
    result = agent.run_sync(message_history=result.all_messages(), deferred_tool_results=answers)
print(result.output)

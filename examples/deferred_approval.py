"""Approval over HTTP, later, in any process of the server: uvicorn deferred_approval:app"""

from fastapi import FastAPI

from toolrest import Agent, PendingApproval, TurnResult, tool


@tool(mutating=True)
def refund(order: str, amount: int) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount} for {order}"


agent = Agent("openai:gpt-5.5", tools=[refund], on_ask="defer", home="refunds")
app = FastAPI()


def shown(result: TurnResult[str]) -> dict[str, object]:
    waiting = [{"id": p.id, "tool": p.tool, "arguments": p.arguments} for p in result.pending]
    return {"session": result.session_id, "text": result.text, "pending": waiting}


@app.post("/ask")
async def ask(prompt: str) -> dict[str, object]:
    return shown(await agent.run(prompt))


@app.post("/approve/{session}/{approval}")
async def approve(session: str, approval: str, yes: bool) -> dict[str, object]:
    async with agent.session(resume=session) as chat:
        pending: PendingApproval = next(p for p in chat.pending if p.id == approval)
        return shown(await chat.resume(pending, "approved" if yes else "denied"))

import uuid
from pathlib import Path

from fastapi import FastAPI
from pydantic_ai import (
    Agent,
    AgentRunResult,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessagesTypeAdapter,
    Tool,
)


def refund(order: str, amount: int) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount} for {order}"


agent = Agent(
    "openai-responses:gpt-5.5",
    tools=[Tool(refund, requires_approval=True)],
    output_type=[str, DeferredToolRequests],
)
app = FastAPI()
stored = Path("refunds")
stored.mkdir(exist_ok=True)


def shown(session: str, result: AgentRunResult[str | DeferredToolRequests]) -> dict[str, object]:
    (stored / session).write_bytes(result.all_messages_json())
    if not isinstance(result.output, DeferredToolRequests):
        return {"session": session, "text": result.output, "pending": []}
    calls = result.output.approvals
    waiting = [{"id": c.tool_call_id, "tool": c.tool_name, "arguments": c.args} for c in calls]
    return {"session": session, "text": None, "pending": waiting}


@app.post("/ask")
async def ask(prompt: str) -> dict[str, object]:
    return shown(uuid.uuid4().hex, await agent.run(prompt))


@app.post("/approve/{session}/{approval}")
async def approve(session: str, approval: str, yes: bool) -> dict[str, object]:
    session = uuid.UUID(session).hex
    history = ModelMessagesTypeAdapter.validate_json((stored / session).read_bytes())
    answers = DeferredToolResults(approvals={approval: yes})
    return shown(session, await agent.run(message_history=history, deferred_tool_results=answers))

import json
import uuid
from pathlib import Path

from agents import Agent, Runner, RunResult, RunState, function_tool
from fastapi import FastAPI


@function_tool(needs_approval=True)
def refund(order: str, amount: int) -> str:
    """Pay money back to a customer."""
    return f"refunded {amount} for {order}"


agent = Agent("refunds", model="gpt-5.5", tools=[refund])
app = FastAPI()
stored = Path("refunds")
stored.mkdir(exist_ok=True)


def shown(session: str, result: RunResult) -> dict[str, object]:
    (stored / session).write_text(json.dumps(result.to_state().to_json()))
    calls = result.interruptions
    waiting = [{"id": c.call_id, "tool": c.name, "arguments": c.arguments} for c in calls]
    return {"session": session, "text": result.final_output, "pending": waiting}


@app.post("/ask")
async def ask(prompt: str) -> dict[str, object]:
    return shown(uuid.uuid4().hex, await Runner.run(agent, prompt))


@app.post("/approve/{session}/{approval}")
async def approve(session: str, approval: str, yes: bool) -> dict[str, object]:
    session = uuid.UUID(session).hex
    state = await RunState.from_json(agent, json.loads((stored / session).read_text()))
    call = next(c for c in state.get_interruptions() if c.call_id == approval)
    if yes:
        state.approve(call)
    else:
        state.reject(call)
    return shown(session, await Runner.run(agent, state))

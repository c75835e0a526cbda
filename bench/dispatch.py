"""µs per no-op call through the whole gate, beside the same in other libraries, in one run.

Each peer runs in a process of its own with the Python of its own environment (see bench/run.py):
`python bench/dispatch.py PEER` measures one and prints a JSON line; without arguments ours.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

CALLS = 2000
WARM_UP = 200


async def per_call(call: Callable[[], Awaitable[object]], calls: int = CALLS) -> float:
    """The median over ten rounds of µs per call: one round's mean hides no outlier of its own."""
    for _ in range(WARM_UP):
        await call()
    rounds = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(calls // 10):
            await call()
        rounds.append((time.perf_counter() - start) / (calls // 10) * 1e6)
    return statistics.median(rounds)


async def ours(audit: bool) -> dict[str, float]:
    from toolrest import Toolrest, tool
    from toolrest.items import FunctionCall

    @tool(mutating=False)
    async def noop(text: str, count: int = 1) -> str:
        """Nothing."""
        return "ok"

    numbers = iter(range(10**9))
    with tempfile.TemporaryDirectory() as folder:
        env = {"TOOLREST_HOME": f"{folder}/home", "HOME": folder, "OPENAI_API_KEY": "sk-0123456789"}
        settings = {"tool_security.audit_log_enabled": audit}
        async with Toolrest(
            folder, tools=[noop], settings=settings, env=env, home=env["TOOLREST_HOME"]
        ) as rest:
            turn = rest.turn()

            async def call() -> None:
                number = next(numbers)
                arguments = f'{{"text":"t{number}","count":{number}}}'
                item = FunctionCall(str(number), "noop", arguments)
                assert (await turn.start(item).output()).text == "ok"

            early = await per_call(call, 200)
            await per_call(call, 800)
            late = await per_call(call, 200)
            typical = await per_call(call)
    return {"us": typical, "first calls": early, "after 1,000 calls": late}


async def floor() -> dict[str, float]:
    """The least there is: pydantic validation and a task."""
    from pydantic import BaseModel

    class Args(BaseModel):
        text: str
        count: int = 1

    async def noop(args: Args) -> str:
        return "ok"

    async def call() -> None:
        args = Args.model_validate_json('{"text":"t","count":3}')
        await asyncio.get_running_loop().create_task(noop(args))

    return {"us": await per_call(call)}


async def kimi_cli() -> dict[str, float]:
    from kosong.message import ToolCall
    from kosong.tooling import CallableTool2, ToolOk, ToolReturnValue
    from kosong.tooling.simple import SimpleToolset
    from pydantic import BaseModel

    class Params(BaseModel):
        text: str
        count: int = 1

    class Noop(CallableTool2[Params]):
        name: str = "noop"
        description: str = "Nothing."
        params: type[Params] = Params

        async def __call__(self, params: Params) -> ToolReturnValue:
            return ToolOk(output="ok")

    toolset = SimpleToolset()
    toolset += Noop()
    function = ToolCall.FunctionBody(name="noop", arguments='{"text":"t","count":3}')

    async def call() -> None:
        result = toolset.handle(ToolCall(id="1", function=function))
        if asyncio.isfuture(result):
            await result

    return {"us": await per_call(call)}


async def pydantic_ai() -> dict[str, float]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    return await _agent_with_function_model(
        Agent, FunctionModel, ModelResponse, TextPart, ToolCallPart
    )


async def _agent_with_function_model(agent_type, model_type, response, text, call_part):  # type: ignore[no-untyped-def]
    """A run with n calls against one with none: what is left is the calls'."""
    batch = 50

    def model(messages, info):  # type: ignore[no-untyped-def]
        if len(messages) == 1:
            return response(
                parts=[call_part("noop", {"text": "t", "count": 3}) for _ in range(batch)]
            )
        return response(parts=[text("done")])

    agent = agent_type(model_type(model))

    @agent.tool_plain
    async def noop(text: str, count: int = 1) -> str:
        """Nothing."""
        return "ok"

    rounds = []
    for _ in range(12):
        start = time.perf_counter()
        await agent.run("go")
        rounds.append((time.perf_counter() - start) / batch * 1e6)
    return {"us": statistics.median(rounds[2:])}


async def openai_agents() -> dict[str, float]:
    from agents import Agent, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    set_tracing_disabled(True)
    batch = 50

    @function_tool
    async def noop(text: str, count: int = 1) -> str:
        """Nothing."""
        return "ok"

    class Scripted(Model):
        def __init__(self) -> None:
            self.turn = 0

        async def get_response(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            self.turn += 1
            if self.turn % 2:
                output = [
                    ResponseFunctionToolCall(
                        arguments='{"text":"t","count":3}', call_id=str(n), name="noop",
                        type="function_call",
                    )
                    for n in range(batch)
                ]  # fmt: skip
            else:
                words = ResponseOutputText(text="done", type="output_text", annotations=[])
                output = [
                    ResponseOutputMessage(
                        id="m",
                        content=[words],
                        role="assistant",
                        status="completed",
                        type="message",
                    )
                ]
            return ModelResponse(output=output, usage=Usage(), response_id=None)

        def stream_response(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            raise NotImplementedError

    agent = Agent(name="bench", tools=[noop], model=Scripted())
    rounds = []
    for _ in range(12):
        start = time.perf_counter()
        await Runner.run(agent, "go")
        rounds.append((time.perf_counter() - start) / batch * 1e6)
    return {"us": statistics.median(rounds[2:])}


async def inspect_ai() -> dict[str, float]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, execute_tools
    from inspect_ai.tool import ToolCall, tool

    @tool
    def noop():  # type: ignore[no-untyped-def]
        async def execute(text: str, count: int = 1) -> str:
            """Nothing.

            Args:
                text: Text.
                count: Count.
            """
            return "ok"

        return execute

    tools = [noop()]
    batch = 20
    calls = [
        ToolCall(id=str(n), function="noop", arguments={"text": "t", "count": 3}, type="function")
        for n in range(batch)
    ]
    messages = [ChatMessageUser(content="go"), ChatMessageAssistant(content="", tool_calls=calls)]
    rounds = []
    for _ in range(12):
        start = time.perf_counter()
        await execute_tools(messages, tools)
        rounds.append((time.perf_counter() - start) / batch * 1e6)
    return {"us": statistics.median(rounds[2:])}


PEERS: dict[str, Callable[[], Awaitable[dict[str, float]]]] = {
    "toolrest, audit off": lambda: ours(audit=False),
    "toolrest, audit on": lambda: ours(audit=True),
    "floor: pydantic + task": floor,
    "kimi-cli": kimi_cli,
    "pydantic-ai": pydantic_ai,
    "inspect-ai": inspect_ai,
    "openai-agents": openai_agents,
}


if __name__ == "__main__":
    names = sys.argv[1:] or ["floor: pydantic + task", "toolrest, audit off", "toolrest, audit on"]
    for name in names:
        print(json.dumps({"peer": name, **asyncio.run(PEERS[name]())}))

import asyncio

from toolrest import AgentSession, Toolrest, tool
from toolrest.testing import Call, ScriptedModel


@tool(mutating=False)
def answer() -> str:
    """The answer to everything."""
    return "42"


async def main() -> None:
    model = ScriptedModel([Call("answer"), "It is 42."])
    async with AgentSession(Toolrest(".", tools=[answer]), model) as agent:
        result = await agent.run("What is the answer?")
        print(result.status, result.text, result.tool_calls)
        async for event in agent.stream("Say it again."):
            print(event.type)


asyncio.run(main())

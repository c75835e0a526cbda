from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def test_weather() -> None:
    seen: list[ModelMessage] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("weather", {"city": "Oslo"})])
        seen.extend(messages)
        return ModelResponse(parts=[TextPart("Take an umbrella.")])

    result = Agent(FunctionModel(reply), tools=[weather]).run_sync("Umbrella?")
    assert result.output == "Take an umbrella."
    returned = seen[-1].parts[-1]
    assert isinstance(returned, ToolReturnPart)
    assert returned.content == "rain in Oslo"

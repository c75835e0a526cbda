"""A test of a tool as a model calls it: no key, no network."""

from toolrest import Agent, tool
from toolrest.testing import Call, ScriptedModel


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def test_weather() -> None:
    model = ScriptedModel([Call("weather", {"city": "Oslo"}), "Take an umbrella."])
    assert Agent(model, tools=[weather]).run_sync("Umbrella?").text == "Take an umbrella."
    assert model.requests[1].items[-1]["output"] == "rain in Oslo"

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def test_weather() -> None:
    call = function_call("weather", {"city": "Oslo"}, call_id="1")
    model = ScriptedModel([[call], [assistant_message("Take an umbrella.")]])
    agent = Agent("weather", model=model, tools=[weather])
    assert Runner.run_sync(agent, "Umbrella?").final_output == "Take an umbrella."
    last = model.calls[1].input[-1]
    assert isinstance(last, dict)
    assert last["output"] == "rain in Oslo"

"""An answer of a type of your own, checked, and asked for again if it is wrong."""

from pydantic import BaseModel

from toolrest import Agent


class City(BaseModel):
    name: str
    country: str
    people: int


agent = Agent("openai:gpt-5.5", output_type=list[City])
for city in agent.run_sync("The two largest cities of Norway?").output:
    print(city.name, city.people)

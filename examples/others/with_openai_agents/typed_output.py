from agents import Agent, Runner
from pydantic import BaseModel


class City(BaseModel):
    name: str
    country: str
    people: int


agent = Agent("cities", model="gpt-5.5", output_type=list[City])
for city in Runner.run_sync(agent, "The two largest cities of Norway?").final_output:
    print(city.name, city.people)

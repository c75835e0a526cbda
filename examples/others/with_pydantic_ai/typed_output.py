from pydantic import BaseModel
from pydantic_ai import Agent


class City(BaseModel):
    name: str
    country: str
    people: int


agent = Agent("openai-responses:gpt-5.5", output_type=list[City])
for city in agent.run_sync("The two largest cities of Norway?").output:
    print(city.name, city.people)

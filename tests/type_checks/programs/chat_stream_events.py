"""The events of a streamed chat completion, with text parsed as a model."""

from openai import OpenAI
from pydantic import BaseModel


class Colour(BaseModel):
    name: str


client = OpenAI()
with client.chat.completions.stream(
    model="gpt-4.1", messages=[{"role": "user", "content": "A colour?"}], response_format=Colour
) as stream:
    for event in stream:
        if event.type == "content.delta":
            print(event.delta, end="")
        elif event.type == "content.done":
            print(event.content)
        elif event.type == "chunk":
            print(event.chunk.id)
    completion = stream.get_final_completion()
colour = completion.choices[0].message.parsed
if colour is not None:
    print(colour.name)

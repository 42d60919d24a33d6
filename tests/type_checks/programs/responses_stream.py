"""Streamed responses: raw events, and the helper with parsed output."""

from openai import OpenAI
from openai.types.responses import ResponseStreamEvent, ResponseTextDeltaEvent
from pydantic import BaseModel


class Answer(BaseModel):
    text: str


client = OpenAI()


def show(event: ResponseStreamEvent) -> None:
    if event.type == "response.output_text.delta":
        print(event.delta, end="")
    elif event.type == "response.completed":
        print(event.response.id)


for event in client.responses.create(model="gpt-4.1", input="Hi", stream=True):
    show(event)
    if isinstance(event, ResponseTextDeltaEvent):
        print(event.item_id)

with client.responses.stream(model="gpt-4.1", input="Hi", text_format=Answer) as stream:
    for helper_event in stream:
        if helper_event.type == "response.output_text.delta":
            print(helper_event.snapshot)
    final = stream.get_final_response()
parsed = final.output_parsed
if parsed is not None:
    print(parsed.text)

response = client.responses.parse(model="gpt-4.1", input="Hi", text_format=Answer)
print(response.output_parsed.text if response.output_parsed else "")

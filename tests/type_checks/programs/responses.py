"""The Responses API: text, output items, tools and a conversation."""

from openai import OpenAI
from openai.types.responses import Response, ResponseFunctionToolCall, ResponseInputParam, ToolParam

TOOLS: list[ToolParam] = [
    {"type": "web_search_preview"},
    {
        "type": "function",
        "name": "weather",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
    },
]
client = OpenAI()
response = client.responses.create(
    model="gpt-4.1",
    instructions="Be brief.",
    input="Why is the sky blue?",
    tools=TOOLS,
    reasoning={"effort": "low"},
    metadata={"topic": "physics"},
)
print(response.output_text, response.usage.total_tokens if response.usage else 0)


def calls(response: Response) -> list[ResponseFunctionToolCall]:
    return [item for item in response.output if item.type == "function_call"]


items: ResponseInputParam = [{"role": "user", "content": "And at night?"}]
for call in calls(response):
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "dark"})
again = client.responses.create(model="gpt-4.1", input=items, previous_response_id=response.id)
for item in again.output:
    if item.type == "message":
        for part in item.content:
            print(part.text if part.type == "output_text" else part.refusal)
client.responses.delete(again.id)
print(client.responses.retrieve(response.id).status)
for given in client.responses.input_items.list(response.id, limit=5):
    print(given.type)

"""Tools of a chat completion: their declaration, the calls, and the results sent back."""

import json

from openai import OpenAI, pydantic_function_tool
from openai.types.chat import (
    ChatCompletionMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionToolParam,
)
from openai.types.chat.chat_completion_message_tool_call import ChatCompletionMessageToolCall
from pydantic import BaseModel

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


class Temperature(BaseModel):
    city: str


def result(call: ChatCompletionMessageToolCall) -> ChatCompletionToolMessageParam:
    arguments: dict[str, str] = json.loads(call.function.arguments)
    return {"role": "tool", "tool_call_id": call.id, "content": f"{arguments.get('city')}: rain"}


client = OpenAI()
messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "The weather in Rome?"}]
completion = client.chat.completions.create(
    model="gpt-4.1",
    messages=messages,
    tools=[WEATHER, pydantic_function_tool(Temperature)],
    tool_choice={"type": "function", "function": {"name": "weather"}},
    parallel_tool_calls=False,
)
for call in completion.choices[0].message.tool_calls or []:
    if call.type == "function":
        messages.append(result(call))
    else:
        print(call.custom.input)

"""Messages and options that no chat completion takes."""

from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

client = OpenAI()
message: ChatCompletionMessageParam = {"role": "robot", "content": "Hi"}  # refused
client.chat.completions.create(model="gpt-4.1", messages=[{"role": "robot", "content": "Hi"}])  # refused
client.chat.completions.create(model="gpt-4.1", messages=[{"role": "user"}])  # refused
client.chat.completions.create(model="gpt-4.1", messages=[message], temperature="hot")  # refused
client.chat.completions.create(model="gpt-4.1", messages=[message], reasoning_effort="much")  # refused
client.chat.completions.create(model="gpt-4.1", messages=[message], temprature=1)  # refused
client.chat.completions.create(messages=[message])  # refused
tool: ChatCompletionToolParam = {"type": "function", "function": {"title": "weather"}}  # refused

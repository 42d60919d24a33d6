"""Results that are used as what they are not."""

from openai import OpenAI, Stream
from openai.types import FileObject
from openai.types.chat import ChatCompletion, ChatCompletionChunk

client = OpenAI()
completion = client.chat.completions.create(model="m", messages=[], stream=False)
stream = client.chat.completions.create(model="m", messages=[], stream=True)
text: str = completion.choices[0].message.content  # refused
number: int = completion.id  # refused
print(completion.choices[0].message.contents)  # refused
print(completion.choices[0].delta)  # refused
chunks: Stream[ChatCompletionChunk] = completion  # refused
whole: ChatCompletion = stream  # refused
raw: FileObject = client.chat.completions.with_raw_response.create(model="m", messages=[]).parse()  # refused
for event in client.responses.create(model="m", input="Hi", stream=True):
    if event.type == "response.output_text.delta":
        print(event.response)  # refused

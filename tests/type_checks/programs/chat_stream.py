"""A streamed chat completion, and the stream as a value."""

from collections.abc import Iterator

from openai import OpenAI, Stream
from openai.types.chat import ChatCompletion, ChatCompletionChunk

client = OpenAI(timeout=20, max_retries=1)


def texts(stream: Stream[ChatCompletionChunk]) -> Iterator[str]:
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


with client.chat.completions.create(
    model="gpt-4.1",
    messages=[{"role": "user", "content": "Count to three."}],
    stream=True,
    stream_options={"include_usage": True},
) as stream:
    print("".join(texts(stream)))


def either(wanted: bool) -> None:
    result = client.chat.completions.create(
        model="gpt-4.1", messages=[{"role": "user", "content": "Hi"}], stream=wanted
    )
    if isinstance(result, ChatCompletion):
        print(result.choices[0].finish_reason)
    else:
        for chunk in result:
            print(chunk.id)

"""The asynchronous client: concurrent calls, streams, paging and raw responses."""

import asyncio

from openai import AsyncOpenAI, AsyncStream, DefaultAioHttpClient
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk


async def ask(client: AsyncOpenAI, question: str) -> ChatCompletion:
    return await client.chat.completions.create(
        model="gpt-4.1", messages=[{"role": "user", "content": question}]
    )


async def stream(client: AsyncOpenAI) -> str:
    chunks: AsyncStream[ChatCompletionChunk] = await client.chat.completions.create(
        model="gpt-4.1", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices])


async def models(client: AsyncOpenAI) -> list[Model]:
    page = await client.models.list()
    found = list(page.data)
    async for file in client.files.list(limit=10):
        print(file.id)
    return found


async def main() -> None:
    async with AsyncOpenAI(http_client=DefaultAioHttpClient()) as client:
        answers = await asyncio.gather(*(ask(client, text) for text in ("a", "b")))
        print([one.choices[0].message.content for one in answers], await stream(client), await models(client))
        raw = await client.chat.completions.with_raw_response.create(
            model="gpt-4.1", messages=[{"role": "user", "content": "Hi"}]
        )
        print(raw.headers["x-request-id"], raw.parse().id)
        async with client.responses.stream(model="gpt-4.1", input="Hi") as events:
            async for event in events:
                print(event.type)
            print((await events.get_final_response()).output_text)
        async with client.audio.speech.with_streaming_response.create(
            model="tts-1", voice="alloy", input="Hi"
        ) as speech:
            async for piece in speech.iter_bytes(1024):
                print(len(piece))


asyncio.run(main())

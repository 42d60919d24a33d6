"""WebSockets of the Realtime API, synchronous and asynchronous."""

import asyncio

from openai import AsyncOpenAI, OpenAI
from openai.types.realtime import RealtimeServerEvent

with OpenAI().realtime.connect(model="gpt-realtime") as connection:
    connection.session.update(session={"type": "realtime", "output_modalities": ["text"]})
    connection.response.create()
    for event in connection:
        if event.type == "response.output_text.delta":
            print(event.delta, end="")
        elif event.type == "response.done":
            break


async def main() -> None:
    async with AsyncOpenAI().realtime.connect(model="gpt-realtime") as connection:
        await connection.conversation.item.create(
            item={"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
        )
        event: RealtimeServerEvent = await connection.recv()
        print(event.type)


asyncio.run(main())

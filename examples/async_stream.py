"""Stream two completions concurrently, and see which tokens were drafted."""

import asyncio

from specclient import AsyncOpenAI


async def complete(client: AsyncOpenAI, prompt: str) -> None:
    """Stream one completion; with `origins`, the local engine marks the text that its draft proposed."""
    stream = await client.completions.create(
        model="local/demo",
        prompt=prompt,
        max_tokens=48,
        temperature=0,
        stream=True,
        extra_body={"specclient": {"origins": True}},
    )
    text, drafted = "", 0
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].text:
            text += chunk.choices[0].text
            segments = chunk.choices[0].model_extra["specclient"]["segments"]
            drafted += sum(len(part) for part, by_draft in segments if by_draft)
    print(f"{prompt}{text}\n# {drafted} of {len(text)} characters drafted; {stream.meta.latency_s:.2f} s\n")


async def main() -> None:
    """Run two streams concurrently on one engine."""
    async with AsyncOpenAI() as client:
        await asyncio.gather(complete(client, "class Stack:\n"), complete(client, "def read_json(path):\n"))


asyncio.run(main())

"""Methods and arguments that resources do not have."""

import asyncio

from openai import AsyncOpenAI, OpenAI
from openai.types.beta.threads import Run

client = OpenAI()
client.files.create(file=b"data", purpose="nothing")  # refused
client.files.create(purpose="batch")  # refused
client.files.creat(file=b"data", purpose="batch")  # refused
client.images.generate(prompt=3)  # refused
client.beta.threads.runs.create("thread_1")  # refused
run: Run = client.beta.threads.create()  # refused
client.fine_tuning.jobs.create(model="m")  # refused
client.vector_stores.files.list()  # refused
client.nothing.create()  # refused
OpenAI(timeouts=3)  # refused
OpenAI(max_retries="three")  # refused


async def main(asynchronous: AsyncOpenAI) -> str:
    completion = asynchronous.chat.completions.create(model="m", messages=[])
    return completion.id  # refused


asyncio.run(main(client))  # refused

"""Memory stays flat over many calls of every kind: whole, streamed, parsed, failed, cancelled."""

from __future__ import annotations

import json
from typing import Any

import pytest

#: Makes rounds of mixed calls and prints figures: objects as the garbage collector counts them, bytes as
#: tracemalloc does (the short run) or as they are resident (the long one, which tracing would slow).
MIXED = """
import json, logging, tracemalloc
import pydantic
from specclient import OpenAIError
logging.disable()
client = AsyncOpenAI(base_url=URL, api_key="k", max_retries=0)
waits = OpenAI(base_url=URL, api_key="k", max_retries=0)

async def read(model):
    async for _ in await stream(client, model):
        pass

async def leave():
    async with await stream(client, "silent-stream") as opened:
        await anext(opened)

async def parse():
    Person = pydantic.create_model("Person", name=(str, ...), age=(int, ...))
    answer = await client.chat.completions.parse(model="person", messages=ASK, response_format=Person)
    assert answer.choices[0].message.parsed.age == 36

async def cancel():
    task = asyncio.create_task(whole(client, "hang"))
    await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

def waiting():
    whole(waits)
    list(stream(waits))
    try:
        whole(waits, "400")
    except OpenAIError:
        pass
    with stream(waits, "silent-stream") as opened:
        next(opened)

CALLS = 20  # of one round
async def round():
    fail = ["400", "500", "reset", "page"]
    jobs = [whole(client) for _ in range(5)] + [read("m") for _ in range(3)]
    jobs += [whole(client, model) for model in fail]
    jobs += [read("broken-stream"), leave(), cancel(), parse()]
    jobs.append(asyncio.to_thread(waiting))
    for outcome in await asyncio.gather(*jobs, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, OpenAIError):
            raise outcome

def size():
    gc.collect()
    if tracemalloc.is_tracing():
        return tracemalloc.get_traced_memory()[0]
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

AT_ONCE = 5
async def many(rounds):
    for _ in range(rounds // AT_ONCE):
        await asyncio.gather(*[round() for _ in range(AT_ONCE)])

async def main(warm, rounds, samples):
    for _ in range(100):  # each client's routing learns from its last 1,000 calls, and forgets those before
        await asyncio.gather(*[whole(client) for _ in range(10)])
        await asyncio.to_thread(lambda: [whole(waits) for _ in range(10)])
    await many(warm)
    sizes, objects = [size()], [len(gc.get_objects())]
    for _ in range(samples):
        await many(rounds // samples)
        sizes.append(size())
        objects.append(len(gc.get_objects()))
    await client.close()
    waits.close()
    return {"calls": rounds * CALLS, "bytes": sizes, "objects": objects}
"""


def test_a_thousand_calls(program: Any, far_server: str) -> None:
    code = "tracemalloc.start()\nprint(json.dumps(asyncio.run(main(20, 50, 2))))"
    figures = json.loads(program(MIXED + code, far_server, dev=False))
    assert figures["calls"] == 1000
    _, half, whole = figures["bytes"]
    assert whole - half <= 75_000, figures  # of five hundred calls: 150 bytes each; the soak below is finer
    _, half, whole = figures["objects"]
    assert whole - half <= 400, figures


@pytest.mark.soak
def test_a_hundred_thousand_calls(program: Any, far_server: str) -> None:
    code = "print(json.dumps(asyncio.run(main(250, 5000, 10))))"
    figures = json.loads(program(MIXED + code, far_server, dev=False, timeout_s=3000))
    print(figures)
    assert figures["calls"] == 100_000
    assert figures["bytes"][-1] - figures["bytes"][1] <= 10_000_000, figures  # 110 bytes a call
    assert figures["objects"][-1] - figures["objects"][1] <= 2_000, figures

"""Memory does not grow over many calls: complete, streamed, parsed, failed and cancelled ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

#: Makes rounds of mixed calls and prints figures: objects counted by the garbage collector, memory blocks
#: counted by Python's allocator, and resident bytes, which are meaningful only over a long run.
MIXED = """
import json, logging
import pydantic
from specclient import OpenAIError
from specclient.routing.learn import estimator
logging.disable()
estimator.PENDING = 100  # calls kept for routing to learn from; older ones are dropped
client = AsyncOpenAI(base_url=URL, api_key="k", max_retries=0)
sync_client = OpenAI(base_url=URL, api_key="k", max_retries=0)

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
    task = asyncio.create_task(create(client, "hang"))
    await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

def synchronous_calls():
    create(sync_client)
    list(stream(sync_client))
    try:
        create(sync_client, "400")
    except OpenAIError:
        pass
    with stream(sync_client, "silent-stream") as opened:
        next(opened)

CALLS = 20  # per round
async def round():
    fail = ["400", "500", "reset", "bad-json"]
    jobs = [create(client) for _ in range(5)] + [read("m") for _ in range(3)]
    jobs += [create(client, model) for model in fail]
    jobs += [read("broken-stream"), leave(), cancel(), parse()]
    jobs.append(asyncio.to_thread(synchronous_calls))
    for outcome in await asyncio.gather(*jobs, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, OpenAIError):
            raise outcome

def size():
    gc.collect()
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"bytes": resident, "blocks": sys.getallocatedblocks(), "objects": len(gc.get_objects())}

AT_ONCE = 5
async def many(rounds):
    for _ in range(rounds // AT_ONCE):
        await asyncio.gather(*[round() for _ in range(AT_ONCE)])

async def main(warm, rounds, samples):
    for _ in range(10):  # as many calls as a client keeps, see PENDING
        await asyncio.gather(*[create(client) for _ in range(10)])
        await asyncio.to_thread(lambda: [create(sync_client) for _ in range(10)])
    await many(warm)
    sizes = [size()]
    for _ in range(samples):
        await many(rounds // samples)
        sizes.append(size())
    await client.close()
    sync_client.close()
    return {"calls": rounds * CALLS} | {name: [each[name] for each in sizes] for name in sizes[0]}
"""


def test_memory_does_not_grow_over_two_thousand_calls(program: Any, far_server: str) -> None:
    code = "print(json.dumps(asyncio.run(main(20, 100, 2))))"
    figures = json.loads(program(MIXED + code, far_server, dev=False))
    print(figures)
    assert figures["calls"] == 2000
    for name in ("blocks", "objects"):
        _, at_half, at_end = figures[name]
        # Two objects for each of a thousand calls; a leak leaves several per call.
        assert at_end - at_half <= 2000, figures


@pytest.mark.soak
def test_memory_does_not_grow_over_a_hundred_thousand_calls(program: Any, far_server: str) -> None:
    code = "print(json.dumps(asyncio.run(main(250, 5000, 10))))"
    figures = json.loads(program(MIXED + code, far_server, dev=False, timeout_s=3000))
    print(figures)
    assert figures["calls"] == 100_000
    assert figures["bytes"][-1] - figures["bytes"][1] <= 10_000_000, figures  # 110 bytes a call
    assert figures["objects"][-1] - figures["objects"][1] <= 2_000, figures

"""Memory stays flat over many calls of every kind: whole, streamed, parsed, failed, cancelled."""

from __future__ import annotations

import json
from typing import Any

import pytest

#: Makes rounds of mixed calls and prints figures: objects as the garbage collector counts them, blocks of
#: memory as Python's allocator does, and the bytes that are resident, which tell over a long run alone.
MIXED = """
import json, logging
import pydantic
from specclient import OpenAIError
from specclient.routing.learn import estimator
logging.disable()
estimator.PENDING = 100  # calls that a client keeps for routing to learn from; those before are forgotten
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
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {"bytes": resident, "blocks": sys.getallocatedblocks(), "objects": len(gc.get_objects())}

AT_ONCE = 5
async def many(rounds):
    for _ in range(rounds // AT_ONCE):
        await asyncio.gather(*[round() for _ in range(AT_ONCE)])

async def main(warm, rounds, samples):
    for _ in range(10):  # as many as a client keeps
        await asyncio.gather(*[whole(client) for _ in range(10)])
        await asyncio.to_thread(lambda: [whole(waits) for _ in range(10)])
    await many(warm)
    sizes = [size()]
    for _ in range(samples):
        await many(rounds // samples)
        sizes.append(size())
    await client.close()
    waits.close()
    return {"calls": rounds * CALLS} | {name: [each[name] for each in sizes] for name in sizes[0]}
"""


def test_two_thousand_calls(program: Any, far_server: str) -> None:
    code = "print(json.dumps(asyncio.run(main(20, 100, 2))))"
    figures = json.loads(program(MIXED + code, far_server, dev=False))
    print(figures)
    assert figures["calls"] == 2000
    for name in ("blocks", "objects"):
        _, half, whole = figures[name]
        assert whole - half <= 1000, figures  # one for each of a thousand calls; what leaks leaks several


@pytest.mark.soak
def test_a_hundred_thousand_calls(program: Any, far_server: str) -> None:
    code = "print(json.dumps(asyncio.run(main(250, 5000, 10))))"
    figures = json.loads(program(MIXED + code, far_server, dev=False, timeout_s=3000))
    print(figures)
    assert figures["calls"] == 100_000
    assert figures["bytes"][-1] - figures["bytes"][1] <= 10_000_000, figures  # 110 bytes a call
    assert figures["objects"][-1] - figures["objects"][1] <= 2_000, figures

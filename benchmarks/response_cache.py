"""Measure the cost of a call that the response cache answers, beside calls that are made.

    python benchmarks/response_cache.py    # needs: pip install 'specclient[dev]'

Figures are µs of CPU time of this process and all its threads; the canned server is a separate process. Each
is the median of several rounds in which all kinds of calls alternate. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from client import ASK, serving

from specclient import AsyncOpenAI
from specclient.call.cached.key import DestinationMarks, request_digest
from specclient.config import Settings
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request

CALLS = 200
ROUNDS = 7
LONG = [{"role": "user", "content": "Tell me about foxes. " * 2000}]


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", help="a file or a URL; by default a file in a temporary folder")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    with serving() as url, tempfile.TemporaryDirectory() as folder:
        store = given.store or str(Path(folder, "cache.sqlite3"))
        settings = Settings.model_validate(
            {
                "ledger": str(Path(folder, "ledger.sqlite3")),
                "cache": {"store": store},
                "providers": {"openai": {"base_url": f"{url}/v1", "api_key": "k"}},
            }
        )
        async with AsyncOpenAI(config=settings) as client:
            figures = await _measured(client, given.rounds)
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:<{width}}  {value:8.1f}")
    print(json.dumps({"µs": figures, "cpus": os.cpu_count(), "load": os.getloadavg()[0]}))


async def _measured(client: AsyncOpenAI, rounds: int) -> dict[str, float]:
    """Return the median µs of CPU time by kind of call."""
    numbers = iter(range(10**9))

    def call(**options: Any) -> Callable[[], Awaitable[Any]]:
        given = {"model": "gpt-4.1-mini", "messages": ASK, "temperature": 0, **options}
        return lambda: client.chat.completions.create(**given)

    def miss() -> Awaitable[Any]:
        return call(cache=True, seed=next(numbers))()

    async def streamed(**options: Any) -> None:
        async for _ in await call(stream=True, **options)():
            pass

    kinds: dict[str, Callable[[], Awaitable[Any]]] = {
        "a call without the option": call(),
        "a call that is made and kept": miss,
        "a hit": call(cache=True),
        "a hit, prompt of 42 kB": call(cache=True, messages=LONG),
        "a stream without the option": streamed,
        "a stream from the cache": lambda: streamed(cache=True),
    }
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for make in kinds.values():
        await make()
        await make()
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, make in kinds.items():
            begun = time.process_time()
            for _ in range(CALLS):
                await make()
            found[name].append((time.process_time() - begun) / CALLS * 1e6)
    gc.enable()
    figures = {name: statistics.median(values) for name, values in found.items()}
    return {**figures, "of a hit: its key": _key_us(client)}


def _key_us(client: AsyncOpenAI) -> float:
    """Return the µs that the key of a call takes."""
    router, marks = client.router, DestinationMarks()
    request = Request(CHAT, "openai/gpt-4.1-mini", {"messages": ASK, "temperature": 0})
    decision = router.named(request)
    times: list[float] = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(1000):
            request_digest(request, decision, "", router, marks)
        times.append((time.process_time() - begun) * 1000)
    return statistics.median(times)


if __name__ == "__main__":
    asyncio.run(main())

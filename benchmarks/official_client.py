"""Measure what the transport adds to a call of the official client: the `openai` package with and without it.

    python benchmarks/official_client.py            # needs: pip install 'specclient[dev]'

The clients take turns, call by call, so that a change in the machine's speed meets all of them. Each figure
is the median over all calls: elapsed time, and CPU time of this process, in µs. The canned server runs in a
separate process. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from client import BODY, serving

#: One call of a client; returns the number of items that the figures are divided by.
Call = Callable[[Any], Awaitable[int]]
#: Median elapsed and CPU time in µs, by measurement and client.
Figures = dict[str, dict[str, tuple[float, float]]]


async def _whole(client: Any) -> int:
    answer = client.chat.completions.create(**BODY)
    _ = await answer if isinstance(answer, Awaitable) else answer
    return 1


async def _stream(client: Any) -> int:
    events = 0
    stream = client.chat.completions.create(**BODY, stream=True)
    if isinstance(stream, Awaitable):
        async for _ in await stream:
            events += 1
    else:
        for _ in stream:
            events += 1
    return events


async def _medians(clients: Mapping[str, Any], call: Call, calls: int) -> dict[str, tuple[float, float]]:
    """Return the median elapsed and CPU time of a call, in µs, by client."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
    warm_up = 2 + calls // 20
    for turn in range(warm_up + calls):
        if turn == warm_up:  # keep objects from the imports out of later garbage collections
            gc.collect()
            gc.freeze()
        for name, client in clients.items():
            elapsed, cpu = time.perf_counter(), time.process_time()
            items = await call(client)
            took = (time.perf_counter() - elapsed) / items * 1e6, (time.process_time() - cpu) / items * 1e6
            if turn >= warm_up:
                seen[name].append(took)
    return {
        name: (statistics.median(a for a, _ in took), statistics.median(b for _, b in took))
        for name, took in seen.items()
    }


async def figures(url: str, ledger: str, calls: int) -> Figures:
    """Return all figures."""
    import httpx  # noqa: PLC0415
    import openai  # noqa: PLC0415

    import specclient  # noqa: PLC0415

    options = {"api_key": "sk-1", "base_url": f"{url}/v1"}
    sync = {
        "openai": openai.OpenAI(**options),
        "openai over httpx": openai.OpenAI(**options, http_client=httpx.Client()),
        "over the transport": specclient.openai_client(**options, ledger=ledger),
    }
    asynchronous = {
        "openai": openai.AsyncOpenAI(**options),
        "openai over httpx": openai.AsyncOpenAI(**options, http_client=httpx.AsyncClient()),
        "over the transport": specclient.async_openai_client(**options, ledger=ledger),
    }
    found = {
        "sync request": await _medians(sync, _whole, calls),
        "sync event": await _medians(sync, _stream, calls // 20),
        "async request": await _medians(asynchronous, _whole, calls),
        "async event": await _medians(asynchronous, _stream, calls // 20),
    }
    for client in sync.values():
        client.close()
    for client in asynchronous.values():
        await client.close()
    return found


def show(found: Figures) -> None:
    """Print a table, then one line of JSON."""
    names = list(next(iter(found.values())))
    print(f"{'µs elapsed (CPU)':20}", *(f"{name:>22}" for name in names), f"{'added':>16}")
    for what, by_client in found.items():
        cells = (f"{f'{elapsed:,.0f} ({cpu:,.0f})':>22}" for elapsed, cpu in by_client.values())
        added = [ours - plain for ours, plain in zip(by_client[names[-1]], by_client[names[1]], strict=True)]
        print(f"{what:20}", *cells, f"{f'{added[0]:+,.0f} ({added[1]:+,.0f})':>16}")
    print(json.dumps({"benchmark": "official_client", "figures": found}))


def main() -> None:
    """Measure, print a table, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=400, help="calls of each client and kind")
    calls = parser.parse_args().calls
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        show(asyncio.run(figures(url, str(Path(folder) / "ledger.db"), calls)))


if __name__ == "__main__":
    main()

"""Measure what the transport adds to a call of the official client: the `openai` package with and without it.

    python benchmarks/official_client.py            # needs: pip install 'specclient[dev]'

The clients take turns, ten calls each, so that a change in the machine's speed meets all of them, and so that
the calls of one client follow each other as in a program, which has one. (With turns of one call, each client
finds the caches of the processor as the one before it has left them, which favours the second of two that run
the same code.) Single requests are 0.1 s apart, as those of a program that does something between its calls.
Each figure is the median over all calls: elapsed time, and CPU time of this process, in µs. The canned server
runs in a separate process. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from client import BODY, serving

#: Elapsed and CPU time of each call in µs, by client.
Times = dict[str, list[tuple[float, float]]]
#: Median elapsed and CPU time in µs, by measurement and client.
Figures = dict[str, dict[str, tuple[float, float]]]
#: Calls of a client in its turn, where they are not single ones.
IN_A_ROW = 10
#: Seconds between two calls of the measurement of single calls.
PAUSE_S = 0.1


class Watch:
    """A context that measures one call, and notes it divided by ``items``."""

    items = 1

    def __init__(self, noted: list[tuple[float, float]]) -> None:
        self._noted = noted

    def __enter__(self) -> Watch:
        self._began = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        elapsed, cpu = (
            now - began
            for now, began in zip((time.perf_counter(), time.process_time()), self._began, strict=True)
        )
        self._noted.append((elapsed / self.items * 1e6, cpu / self.items * 1e6))


def turns(
    clients: Mapping[str, Any], times: Times, calls: int, in_a_row: int = IN_A_ROW
) -> Iterator[tuple[Any, Watch]]:
    """Yield the clients in turn, with the context of each call; note no times of a warm-up."""
    warm_up = 2 + calls // 20 // in_a_row
    for turn in range(warm_up + max(1, calls // in_a_row)):
        if turn == warm_up:  # keep objects from the imports out of later garbage collections
            gc.collect()
            gc.freeze()
        for name, client in clients.items():
            for _ in range(in_a_row):
                yield client, Watch(times.setdefault(name, []) if turn >= warm_up else [])


def medians(times: Times) -> dict[str, tuple[float, float]]:
    """Return the median elapsed and CPU time, by client."""
    return {
        name: (statistics.median(a for a, _ in took), statistics.median(b for _, b in took))
        for name, took in times.items()
    }


def synchronous(clients: Mapping[str, Any], calls: int) -> Figures:
    """Measure the synchronous clients, in a thread without an event loop."""
    back_to_back: Times = {}
    for client, watch in turns(clients, back_to_back, calls):
        with watch:
            client.chat.completions.create(**BODY)
    single: Times = {}
    for client, watch in turns(clients, single, calls // 8, in_a_row=1):
        time.sleep(PAUSE_S)
        with watch:
            client.chat.completions.create(**BODY)
    events: Times = {}
    for client, watch in turns(clients, events, calls // 20):
        with watch:
            watch.items = sum(1 for _ in client.chat.completions.create(**BODY, stream=True))
    return {
        "sync request": medians(back_to_back),
        "sync single request": medians(single),
        "sync event": medians(events),
    }


async def asynchronous(clients: Mapping[str, Any], calls: int) -> Figures:
    """Measure the asynchronous clients."""
    back_to_back: Times = {}
    for client, watch in turns(clients, back_to_back, calls):
        with watch:
            await client.chat.completions.create(**BODY)
    events: Times = {}
    for client, watch in turns(clients, events, calls // 20):
        with watch:
            watch.items = 0
            async for _ in await client.chat.completions.create(**BODY, stream=True):
                watch.items += 1
    for client in clients.values():
        await client.close()
    return {"async request": medians(back_to_back), "async event": medians(events)}


def figures(url: str, ledger: str, calls: int) -> Figures:
    """Return all figures."""
    import httpx  # noqa: PLC0415
    import openai  # noqa: PLC0415

    import specclient  # noqa: PLC0415

    options = {"api_key": "sk-1", "base_url": f"{url}/v1"}
    clients = {
        "openai": openai.OpenAI(**options),
        "openai over httpx": openai.OpenAI(**options, http_client=httpx.Client()),
        "over the transport": specclient.openai_client(**options, ledger=ledger),
    }
    found = synchronous(clients, calls)
    for client in clients.values():
        client.close()
    async_clients = {
        "openai": openai.AsyncOpenAI(**options),
        "openai over httpx": openai.AsyncOpenAI(**options, http_client=httpx.AsyncClient()),
        "over the transport": specclient.async_openai_client(**options, ledger=ledger),
    }
    return found | asyncio.run(asynchronous(async_clients, calls))


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
        show(figures(url, str(Path(folder) / "ledger.db"), calls))


if __name__ == "__main__":
    main()

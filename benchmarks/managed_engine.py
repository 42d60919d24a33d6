"""Measure what a managed engine adds to a call: the same server as ``local/NAME`` and as a provider.

    python benchmarks/managed_engine.py [--rounds 7] [--calls 400]

The server is the small program of the tests. Both models of one client call it, one after the other in each
round. The figures are the client's CPU time and the elapsed time of a whole chat completion, medians over
rounds; the ledger is on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from specclient import AsyncOpenAI, Settings
from specclient.types.backend import SupportsServers

PROGRAM = Path(__file__).parents[1] / "tests" / "kits" / "engine_program.py"
MESSAGES: Any = [{"role": "user", "content": "x"}]


def _settings(direct: dict[str, Any] | None = None) -> Settings:
    table = {
        "path": "demo",
        "command": [sys.executable, str(PROGRAM), "--port", "{port}"],
        "env": {"OWN_KEY": "{key}"},
        "keep_alive": 60,  # calls of the provider do not count
    }
    providers = {} if direct is None else {"direct": direct}
    prices = {"direct/own": {"per_gpu_second": "0.0001"}}  # priced by time, as the other
    settings = {"local": {"models": {"managed": table}}, "providers": providers, "prices": prices}
    return Settings.model_validate(settings)


async def _address() -> dict[str, Any]:
    """Start the server; return the table of a provider for it."""
    async with AsyncOpenAI(config=_settings(), ledger="off") as client:
        backend = client.pipeline.destinations.get("local")
        assert isinstance(backend, SupportsServers)
        server = backend.server("managed")
        assert server is not None
        address = await server.acquire()
        server.release()
    return {"base_url": address.base_url, "api_key": address.key}


async def _measure(client: AsyncOpenAI, model: str, calls: int) -> tuple[float, float]:
    """Return µs of CPU time and of elapsed time per call."""
    cpu, begun = time.process_time(), time.perf_counter()
    for _ in range(calls):
        await client.chat.completions.create(model=model, messages=MESSAGES)
    return (time.process_time() - cpu) / calls * 1e6, (time.perf_counter() - begun) / calls * 1e6


async def main() -> None:
    """Print a table and one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=400)
    given = parser.parse_args()
    models = {"managed": "local/managed", "direct": "direct/own"}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in models}
    with tempfile.TemporaryDirectory() as folder:
        direct = await _address()
        async with AsyncOpenAI(config=_settings(direct), ledger=str(Path(folder) / "ledger.db")) as client:
            for _ in range(given.rounds + 1):
                for name, model in models.items():
                    found[name].append(await _measure(client, model, given.calls))
    medians = {
        name: [statistics.median(each[index] for each in rounds[1:]) for index in (0, 1)]
        for name, rounds in found.items()
    }
    for name, (cpu, elapsed) in medians.items():
        print(f"{name:8} {cpu:7.0f} µs CPU {elapsed:7.0f} µs")
    print(
        json.dumps(
            {name: dict(zip(("cpu_us", "elapsed_us"), each, strict=True)) for name, each in medians.items()}
        )
    )


if __name__ == "__main__":
    asyncio.run(main())

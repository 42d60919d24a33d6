"""Measure the cost of a call in the calling process: specclient, the `openai` package, and raw httpx.

    python benchmarks/client.py            # needs: pip install 'specclient[dev]'

Figures are CPU time of this process; the canned server runs in a separate process and is not included. Each
figure is the median of several rounds in which all clients alternate. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ASK = [{"role": "user", "content": "Tell me about foxes, in a sentence or two."}]
BODY = {"model": "gpt-4.1-mini", "messages": ASK, "temperature": 0.5}
CALLS = 300
ROUNDS = 5

#: Figures by client and name: µs of CPU time per request or chunk, unless the name says otherwise.
Figures = dict[tuple[str, str], float]


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the canned server inside the block; yields its URL."""
    with subprocess.Popen(
        [sys.executable, str(HERE / "canned.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.communicate()


async def _cpu(work: Callable[[], Awaitable[int]]) -> float:
    """Return µs of CPU time per item; ``work`` returns the number of items that it processed."""
    begun = time.process_time()
    done = await work()
    return (time.process_time() - begun) / done * 1e6


def _repeated(call: Callable[[], Awaitable[Any]], at_once: int) -> Callable[[], Awaitable[int]]:
    """Return a function that makes about ``CALLS`` calls, ``at_once`` at a time, and returns their number."""

    async def work() -> int:
        for _ in range(CALLS // at_once):
            await asyncio.gather(*[call() for _ in range(at_once)])
        return CALLS // at_once * at_once

    return work


def _openai_like(package: Any, url: str, **options: Any) -> dict[str, Callable[[], Awaitable[int]]]:
    """Return the measurements of a client with OpenAI's interface, by name."""
    client = package.AsyncOpenAI(api_key="sk-1", base_url=f"{url}/v1", **options)
    paced = package.AsyncOpenAI(api_key="sk-1", base_url=f"{url}/paced/v1", **options)

    async def call() -> Any:
        return await client.chat.completions.create(**BODY)

    def streamed(streaming_client: Any, times: int) -> Callable[[], Awaitable[int]]:
        async def work() -> int:
            chunks = 0
            for _ in range(times):
                async for chunk in await streaming_client.chat.completions.create(**BODY, stream=True):
                    chunks += bool(chunk.choices)
            return chunks

        return work

    return {
        "request": _repeated(call, 1),
        "request, 64 at once": _repeated(call, 64),
        "chunk": streamed(client, 10),
        "chunk, one at a time": streamed(paced, 3),
    }


def _raw(client: Any, url: str) -> dict[str, Callable[[], Awaitable[int]]]:
    """Return the measurements of httpx alone, by name: JSON is sent, and responses or lines are parsed."""

    async def call() -> Any:
        return (await client.post(f"{url}/v1/chat/completions", json=BODY)).json()

    def streamed(path: str, times: int) -> Callable[[], Awaitable[int]]:
        async def work() -> int:
            chunks = 0
            for _ in range(times):
                async with client.stream("POST", url + path, json={**BODY, "stream": True}) as response:
                    async for line in response.aiter_lines():
                        if line.startswith("data: {"):
                            chunks += bool(json.loads(line[6:])["choices"])
            return chunks

        return work

    return {
        "request": _repeated(call, 1),
        "request, 64 at once": _repeated(call, 64),
        "chunk": streamed("/v1/chat/completions", 10),
        "chunk, one at a time": streamed("/paced/v1/chat/completions", 3),
    }


def _sync(package: Any, url: str, **options: Any) -> dict[str, Callable[[], Awaitable[int]]]:
    """Return the measurements of a synchronous client with OpenAI's interface, by name."""
    client = package.OpenAI(api_key="sk-1", base_url=f"{url}/v1", **options)

    async def calls() -> int:
        for _ in range(CALLS):
            client.chat.completions.create(**BODY)
        return CALLS

    async def chunks() -> int:
        seen = 0
        for _ in range(10):
            for chunk in client.chat.completions.create(**BODY, stream=True):
                seen += bool(chunk.choices)
        return seen

    return {"sync request": calls, "sync chunk": chunks}


async def cpu_figures(url: str, ledger: str) -> Figures:
    """Return the median CPU times over all rounds."""
    import httpx  # noqa: PLC0415
    import httpx_aiohttp  # noqa: PLC0415
    import openai  # noqa: PLC0415

    import specclient  # noqa: PLC0415

    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100)
    raw = (httpx.AsyncClient(limits=limits), httpx_aiohttp.HttpxAiohttpClient(limits=limits))
    subjects = {
        "httpx": _raw(raw[0], url),
        "httpx over aiohttp": _raw(raw[1], url),
        "openai": {**_openai_like(openai, url), **_sync(openai, url)},
        "specclient": {
            **_openai_like(specclient, url, ledger=ledger),
            **_sync(specclient, url, ledger=ledger),
        },
    }
    seen: dict[tuple[str, str], list[float]] = {}
    for turn in range(ROUNDS + 1):
        if turn == 1:  # keep objects from the imports out of later garbage collections
            gc.collect()
            gc.freeze()
        for name, works in subjects.items():
            for what, work in works.items():
                took = await _cpu(work)
                if turn:  # the first turn warms up
                    seen.setdefault((name, what), []).append(took)
    for client in raw:
        await client.aclose()
    return {key: statistics.median(values) for key, values in seen.items()}


_IMPORT = "import time; a = time.process_time(); import {0}; print(time.process_time() - a)"
_ONE_CALL = """
import {0} as package, sys
client = package.OpenAI(api_key="sk-1", base_url=sys.argv[1] + "/v1")
client.chat.completions.create(model="m", messages=[{{"role": "user", "content": "hi"}}])
print(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1])
"""


def process_figures(url: str, ledger: str) -> Figures:
    """Return import times (ms) and resident memory after one call (MB), each in a new process."""
    env = {**os.environ, "SPECCLIENT_LEDGER": ledger}
    figures: Figures = {}
    for name in ("openai", "specclient"):
        imports = [_run(env, _IMPORT.format(name)) for _ in range(7)]
        sizes = [_run(env, _ONE_CALL.format(name), url) for _ in range(3)]
        figures[name, "import, ms"] = statistics.median(imports) * 1000
        figures[name, "memory, MB"] = statistics.median(sizes) / 1024
    return figures


def _run(env: dict[str, str], code: str, *arguments: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def show(figures: Figures) -> None:
    """Print a table, then one line of JSON with the ratios to the `openai` package."""
    whats = list(dict.fromkeys(what for _, what in figures))
    names = list(dict.fromkeys(name for name, _ in figures))
    print(f"{'µs of CPU each':24}", *(f"{name:>20}" for name in names), f"{'ours / openai':>14}")
    ratios = {}
    for what in whats:
        row = [figures.get((name, what)) for name in names]
        ratios[what] = round(figures["specclient", what] / figures["openai", what], 3)
        cells = (f"{'–' if value is None else f'{value:,.1f}':>20}" for value in row)
        print(f"{what:24}", *cells, f"{ratios[what]:14.2f}")
    rounded = {f"{name}: {what}": round(value, 1) for (name, what), value in figures.items()}
    print(json.dumps({"benchmark": "client", "figures": rounded, "ratios": ratios}, ensure_ascii=False))


def main() -> None:
    """Measure, print a table, then one JSON line."""
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        ledger = str(Path(folder) / "ledger.db")
        figures = asyncio.run(cpu_figures(url, ledger))
        figures.update(process_figures(url, ledger))
    show(figures)


if __name__ == "__main__":
    main()

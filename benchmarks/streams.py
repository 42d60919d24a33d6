"""Measure many concurrent streams in one process: whether all complete, and the memory per stream.

    python benchmarks/streams.py [STREAMS]   # default 2,000
    python benchmarks/streams.py 2000 why    # also shows where the memory of the streams was allocated

The server runs in a separate process. It sends the first chunk of each stream immediately, and the rest when
all streams have started, so that all are open at the same time. Memory is resident memory in addition to that
of an idle client that has completed a few streams. Prints a table, then one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ASK = [{"role": "user", "content": "Tell me about foxes, in a sentence or two."}]
CHUNKS = 20
SPARE = 200  # open files besides the connections


class _Gate(asyncio.Protocol):
    """One connection. It sends a first chunk, and the rest when the number of streams in the path is open."""

    waiting: list[_Gate] = []  # noqa: RUF012 - shared by all connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out: asyncio.Transport = transport  # type: ignore[assignment]
        self._read = b""

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, body = self._read.partition(b"\r\n\r\n")
        at = head.lower().find(b"content-length:")
        if not end or len(body) < int(head[at + 15 :].split(b"\r\n", 1)[0]):
            return
        together = int(head.split(b"/", 2)[1].split(b"/")[0])
        self._read = b""
        self._out.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self._out.write(_frame(_chunk("Foxes", None)))
        self.waiting.append(self)
        if len(self.waiting) >= together:
            asyncio.get_running_loop().call_later(2.0, self._release)

    @classmethod
    def _release(cls) -> None:
        rest = [_chunk(f" word{i}", None) for i in range(CHUNKS - 2)] + [_chunk("", "stop"), b"[DONE]"]
        everything = b"".join(map(_frame, rest)) + b"0\r\n\r\n"
        for connection in cls.waiting:
            connection._out.write(everything)
        cls.waiting.clear()


def _chunk(text: str, reason: str | None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
    kind = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4.1-mini"}
    return json.dumps({**kind, "choices": [choice]}).encode()


def _frame(data: bytes) -> bytes:
    line = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


async def serve() -> None:
    """Serve until standard input is closed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Gate, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Run the server inside the block; yields its URL."""
    command = [sys.executable, __file__, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.communicate()


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def measure(url: str, count: int, *, why: bool = False) -> dict[str, Any]:
    """Open ``count`` streams concurrently, read all chunks, and return the figures."""
    from specclient import AsyncOpenAI  # noqa: PLC0415 - not needed by the server's process
    from specclient.config import load  # noqa: PLC0415

    async def open_streams(number: int) -> list[Any]:
        numbered = client.with_options(base_url=f"{url}/{number}/v1")
        create = numbered.chat.completions.create
        return await asyncio.gather(
            *[create(model="gpt-4.1-mini", messages=ASK, stream=True) for _ in range(number)]
        )

    async def rest(stream: Any) -> int:
        number = 1
        async for _ in stream:
            number += 1
        return number

    config = load().model_copy(update={"connections": count + 1})  # the default is 1,000
    client = AsyncOpenAI(api_key="k", base_url=url, max_retries=0, timeout=60, config=config)
    for _ in range(2):
        await asyncio.gather(*map(rest, await _read_first(await open_streams(8))))
    gc.collect()
    if why:
        tracemalloc.start(8)
    idle, began = resident(), time.perf_counter()
    before = tracemalloc.take_snapshot() if why else None
    streams = await _read_first(await open_streams(count))
    open_at = resident()
    if before is not None:
        _explain(before, count)
    chunks = await asyncio.gather(*map(rest, streams))
    took = time.perf_counter() - began
    complete = sum(number == CHUNKS for number in chunks)
    finished = sum(stream.meta.status == "ok" for stream in streams)
    del streams
    await client.close()
    gc.collect()
    return {
        "streams": count,
        "complete": min(complete, finished),
        "kb_per_stream": round((open_at - idle) / count / 1024, 1),
        "kb_left_per_stream": round((resident() - idle) / count / 1024, 1),
        "seconds": round(took, 2),
    }


async def _read_first(streams: list[Any]) -> list[Any]:
    """Read the first chunk of each stream, and return the streams."""
    await asyncio.gather(*[anext(stream) for stream in streams])
    return streams


def _explain(before: tracemalloc.Snapshot, count: int) -> None:
    """Print the source lines that have allocated most memory since a snapshot."""
    grown = tracemalloc.take_snapshot().compare_to(before, "lineno")
    total = sum(row.size_diff for row in grown)
    print(f"traced: {total / count / 1024:.1f} KB per stream, most of it in")
    for row in grown[:25]:
        print(f"  {row.size_diff / count / 1024:6.2f} KB  {row.count_diff / count:5.1f}  {row.traceback[-1]}")


def main() -> None:
    """Measure, print a table, then one JSON line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("streams", type=int, nargs="?", default=2000, help="number of streams")
    parser.add_argument("why", nargs="?", choices=("why",), help="also show where memory was allocated")
    args = parser.parse_args()
    count: int = args.streams
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 2 * count + SPARE  # the client uses up to half of the files that it may open
    if most != resource.RLIM_INFINITY and most < files:
        sys.exit(f"{count} streams need {files} open files and `ulimit -Hn` is {most}; pass a smaller number")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, files), most))
    with tempfile.TemporaryDirectory() as folder, serving() as url:
        os.environ["SPECCLIENT_LEDGER"] = str(Path(folder) / "ledger.sqlite3")
        figures = asyncio.run(measure(url, count, why=args.why is not None))
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):>20}  {value}")
    print(json.dumps(figures))


if __name__ == "__main__":
    asyncio.run(serve()) if sys.argv[1:] == ["serve"] else main()

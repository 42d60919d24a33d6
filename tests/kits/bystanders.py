"""Clients of a server that notice what other clients' requests do to them; a process of its own.

``python bystanders.py PORT`` streams answers of ``local/demo`` in several connections, one after the other in
each, and requests ``/health`` several times a second. It prints ``ready`` once it knows the right answers.
For each line on its input it prints a report in JSON of the time since the last one, which holds one complete
stream at least. A number in the line becomes the seconds between two streams of a connection, of which a
fifth passes between two requests of ``/health``. The program ends with its input. The report has:

``answers``, ``wrong``
    number of complete streams, and what was not as it was at the start: another text, an error.
``gap_ms``, ``health_ms``
    count, median, 99th percentile and maximum of the milliseconds between two parts of one stream, and of the
    time that ``/health`` took.
``longest_gap``
    when the longest gap began and ended, by ``time.perf_counter``, which is the same clock in all processes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from contextlib import suppress
from typing import Any

PROMPTS = ("def fibonacci(n):", "class Stack:")
TOKENS = 96
#: Seconds between two streams of a connection at first, and the share of them between requests of /health.
_PAUSE_S, _HEALTH_SHARE = 0.5, 0.2


class Bystanders:
    """The clients; see the module."""

    def __init__(self, port: int) -> None:
        self._port, self._pause_s = port, _PAUSE_S
        self._expected: dict[str, str] = {}
        self._reset()

    def _reset(self) -> None:
        self._gaps: list[float] = []
        self._longest_gap = (0.0, 0.0)
        self._health: list[float] = []
        self._wrong: list[str] = []
        self._answers = 0

    def report(self) -> dict[str, Any]:
        """Return what was noticed since the last report."""
        found = {
            "answers": self._answers,
            "wrong": self._wrong,
            "gap_ms": _figures(self._gaps),
            "health_ms": _figures(self._health),
            "longest_gap": self._longest_gap,
        }
        self._reset()
        return found

    async def run(self) -> None:
        """Serve reports until the input ends."""
        for prompt in PROMPTS:
            self._expected[prompt] = await self._text(prompt)
        self._reset()
        gc.collect()
        gc.freeze()
        tasks = [asyncio.ensure_future(self._stream_forever(prompt)) for prompt in PROMPTS]
        tasks.append(asyncio.ensure_future(self._health_forever()))
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            self._pause_s = float(line.strip() or self._pause_s)
            while not self._answers:
                await asyncio.sleep(0.01)
            print(json.dumps(self.report()), flush=True)
        for task in tasks:
            task.cancel()

    async def _stream_forever(self, prompt: str) -> None:
        while True:
            try:
                text = await self._text(prompt)
                if text != self._expected[prompt]:
                    self._wrong.append(f"{prompt!r} was answered by {text!r}")
            except (OSError, ValueError, asyncio.IncompleteReadError) as error:
                self._wrong.append(repr(error))
                await asyncio.sleep(0.1)
            self._answers += 1
            await asyncio.sleep(self._pause_s)

    async def _text(self, prompt: str) -> str:
        """Return the streamed answer to a prompt."""
        body = {
            "model": "local/demo",
            "stream": True,
            "temperature": 0,
            "max_tokens": TOKENS,
            "prompt": prompt,
        }
        content = json.dumps(body).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(content), content)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200 "):
                raise ValueError(repr(head + await reader.read()))
            return await self._events(reader)
        finally:
            writer.close()

    async def _events(self, reader: asyncio.StreamReader) -> str:
        text, before = "", None
        while size := int(await reader.readline(), 16):
            chunk = await reader.readexactly(size + 2)
            now = time.perf_counter()
            if before is not None:
                self._gaps.append(now - before)
                self._longest_gap = max(self._longest_gap, (before, now), key=lambda gap: gap[1] - gap[0])
            before = now
            for line in chunk.split(b"\n"):
                if line.startswith(b"data: {"):
                    text += "".join(choice["text"] for choice in json.loads(line[6:])["choices"])
        return text

    async def _health_forever(self) -> None:
        while True:
            begun = time.perf_counter()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                answer = await reader.read()
                writer.close()
                if not answer.startswith(b"HTTP/1.1 200 "):
                    self._wrong.append(f"/health: {answer!r}")
            except OSError as error:
                self._wrong.append(f"/health: {error!r}")
            self._health.append(time.perf_counter() - begun)
            await asyncio.sleep(self._pause_s * _HEALTH_SHARE)


def _figures(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds) or [0.0]
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    last = len(ordered) - 1
    figures = {name: round(ordered[int(last * share)] * 1000, 1) for name, share in shares.items()}
    return {"count": len(seconds), **figures}


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(Bystanders(int(sys.argv[1])).run())

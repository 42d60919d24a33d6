"""A minute of a big crowd, some of whom vanish: no wrong byte, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest
from served import Served, upstream_settings, wait_until
from servers import OpenAIServer, Received, Wire

pytestmark = [pytest.mark.anyio, pytest.mark.soak]

CROWD, SECONDS, VANISH = 500, 60, 0.01
FRAMES = 30


def _frame(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def _answer(received: Received, wire: Wire) -> None:
    """Stream what was asked, word by word: whoever gets another's words sees it."""
    word = received.json["messages"][0]["content"]
    await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    for number in range(FRAMES):
        await wire.chunk(_frame(f"{word}-{number} "))
        await asyncio.sleep(0.02)
    await wire.chunk(b"data: [DONE]\n\n")
    await wire.chunk(b"")


async def _one(served: Served, word: str, leaves: bool) -> bool:
    """Ask for a stream and check every word of it, or leave midway; return whether it was whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    asked: Any = {"model": "mine/m", "stream": True, "messages": [{"role": "user", "content": word}]}
    content = json.dumps(asked).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    seen = b""
    while b"data: [DONE]" not in seen and not (leaves and seen.count(b"data: ") > FRAMES // 2):
        piece = await reader.read(65536)
        assert piece, seen
        seen += piece
    writer.close()
    if leaves:
        return False
    lines = [line[6:] for line in seen.split(b"\n") if line.startswith(b"data: {")]
    text = "".join(json.loads(line)["choices"][0]["delta"]["content"] for line in lines)
    assert text == "".join(f"{word}-{number} " for number in range(FRAMES))
    return True


def _resident_mb() -> float:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * 4096 / 2**20


@pytest.mark.timeout(600)
async def test_a_minute_of_a_crowd(openai_server: OpenAIServer) -> None:
    dice = random.Random(7)
    sizes: list[float] = []
    whole = 0
    with Served(upstream_settings(openai_server)) as served:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            openai_server.script(*[_answer] * CROWD)
            openai_server.requests.clear()
            crowd = [_one(served, f"w{dice.randrange(10**6)}", dice.random() < VANISH) for _ in range(CROWD)]
            whole += sum(await asyncio.gather(*crowd))
            assert await asyncio.to_thread(wait_until, lambda: served.service.turns.running == 0)
            gc.collect()
            sizes.append(_resident_mb())
        assert await asyncio.to_thread(wait_until, lambda: not served.server.server_state.connections)
        assert await asyncio.to_thread(wait_until, lambda: len(asyncio.all_tasks(served.loop)) < 10)
    assert whole > CROWD
    assert max(sizes[len(sizes) // 2 :]) - sizes[len(sizes) // 2 - 1] < 20, sizes

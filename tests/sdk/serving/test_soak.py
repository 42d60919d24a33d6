"""A crowd of streams, some of whose clients vanish midway: no wrong byte, and nothing left behind.

A few seconds of it with every run of the tests; a minute with 500 streams at once behind ``make soak``.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_server import Served, upstream_settings, wait_until
from loopback_server import OpenAIServer, Received, Wire

pytestmark = pytest.mark.anyio

VANISH = 0.01
FRAMES = 30
SHORT = pytest.param(50, 2.0, id="seconds")
FEW = pytest.param(12, 1.0, id="seconds")  # the engine serves eight at a time
LONG = pytest.param(500, 60.0, id="a minute", marks=[pytest.mark.soak, pytest.mark.timeout(900)])
PROMPTS = [f"def f{number}(x):" for number in range(12)]
TOKENS = 16

#: The word or prompt that a client sends, and what it must get.
Question = tuple[str, str]


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
        if number % 6 == 5:  # six come at once
            await asyncio.sleep(0.12)
    await wire.chunk(b"data: [DONE]\n\n")
    await wire.chunk(b"")


async def _one(served: Served, model: str, question: Question, leaves_after: int | None) -> bool:
    """Ask for a stream and check every word of it, or leave after some events; return whether all came."""
    asked, expected = question
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": asked}]}
    content = json.dumps({**body, "temperature": 0, "max_tokens": TOKENS}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    seen = b""
    while b"data: [DONE]" not in seen:
        if leaves_after is not None and seen.count(b"data: ") >= leaves_after:
            writer.transport.abort()
            return False
        piece = await reader.read(65536)
        assert piece, seen
        seen += piece
    writer.close()
    lines = [line[6:] for line in seen.split(b"\n") if line.startswith(b"data: {")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    text = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert text == expected, (asked, text)
    return True


async def _waves(
    served: Served, model: str, questions: Callable[[], Question], crowd: int, seconds: float
) -> list[float]:
    """Ask in waves until the time is over; return the megabytes that are resident after each."""
    dice, sizes, whole, left = random.Random(7), list[float](), 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(sizes) < 2:
        vanish = {0, *(place for place in range(crowd) if dice.random() < VANISH)}  # one at least
        wave = [
            _one(served, model, questions(), dice.randrange(4) if place in vanish else None)
            for place in range(crowd)
        ]
        complete = sum(await asyncio.gather(*wave))
        whole, left = whole + complete, left + crowd - complete
        assert await asyncio.to_thread(wait_until, lambda: _idle(served)), "a request is still held"
        gc.collect()
        sizes.append(_resident_mb())
    assert whole > crowd
    assert left >= 2
    return sizes


def _idle(served: Served) -> bool:
    """Tell whether nothing that belongs to a request is held."""
    turns = served.service.admission
    return turns.running == turns.waiting == 0 and not served.service.log.live and not served.engine_jobs()


async def _nothing_left(served: Served) -> None:
    assert await asyncio.to_thread(wait_until, lambda: not served.server.server_state.connections)
    assert await asyncio.to_thread(wait_until, lambda: len(asyncio.all_tasks(served.loop)) < 10)


def _grown_mb(sizes: list[float]) -> float:
    """Return by how much memory grew in the second half of the waves."""
    half = len(sizes) // 2
    return max(sizes[half:]) - sizes[half - 1]


def _resident_mb() -> float:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * 4096 / 2**20


@contextmanager
def _files_for(crowd: int) -> Iterator[None]:
    """Allow as many open files as a crowd needs, each client's, ours and the upstream's in one process."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 6 * crowd + 200
    if most != resource.RLIM_INFINITY and most < wanted:
        pytest.skip(f"needs {wanted} open files; the limit is {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, wanted), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))


@pytest.mark.parametrize(("crowd", "seconds"), [SHORT, LONG])
async def test_a_crowd_before_an_upstream(openai_server: OpenAIServer, crowd: int, seconds: float) -> None:
    dice = random.Random(5)

    def question() -> Question:
        word = f"w{dice.randrange(10**6)}"
        openai_server.requests.clear()
        openai_server.script(_answer)
        return word, "".join(f"{word}-{number} " for number in range(FRAMES))

    with _files_for(crowd):
        with Served(upstream_settings(openai_server)) as served:
            sizes = await _waves(served, "mine/m", question, crowd, seconds)
            await _nothing_left(served)
        assert openai_server.wait_left(openai_server.connections), "a connection to the upstream is open"
    assert _grown_mb(sizes) < 20, sizes


@pytest.mark.parametrize(("crowd", "seconds"), [FEW, LONG])
async def test_a_crowd_before_the_engine(local_server: Served, crowd: int, seconds: float) -> None:
    dice = random.Random(5)
    texts = {prompt: await _alone(local_server, prompt) for prompt in PROMPTS}

    def question() -> Question:
        prompt = dice.choice(PROMPTS)
        return prompt, texts[prompt]

    with _files_for(crowd):
        sizes = await _waves(local_server, "local/demo", question, crowd, seconds)
        await _nothing_left(local_server)
    assert _grown_mb(sizes) < 20, sizes


async def _alone(served: Served, prompt: str) -> str:
    """Return what the engine answers to a prompt when nobody else asks."""
    body: dict[str, Any] = {"model": "local/demo", "temperature": 0, "max_tokens": TOKENS}
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(
            f"{served.base_url}/chat/completions",
            json={**body, "messages": [{"role": "user", "content": prompt}]},
        )
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text

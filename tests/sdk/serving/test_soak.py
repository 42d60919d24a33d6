"""Soak tests: concurrent streams, some abandoned midway, deliver no wrong byte and leak nothing.

Every test run includes a few seconds of them; ``make soak`` runs a minute of 500 concurrent streams.
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

ABANDONED_SHARE = 0.01
FRAMES = 30
SHORT = pytest.param(50, 2.0, id="seconds")
FEW = pytest.param(12, 1.0, id="seconds")  # the engine serves eight requests at a time
LONG = pytest.param(500, 60.0, id="a minute", marks=[pytest.mark.soak, pytest.mark.timeout(900)])
PROMPTS = [f"def f{number}(x):" for number in range(12)]
TOKENS = 16

#: The prompt that a client sends and the answer it must receive.
PromptAndAnswer = tuple[str, str]


def _frame(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def _answer(received: Received, wire: Wire) -> None:
    """Stream numbered copies of the request's word, so that a client detects another client's stream."""
    word = received.json["messages"][0]["content"]
    await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
    for number in range(FRAMES):
        await wire.chunk(_frame(f"{word}-{number} "))
        if number % 6 == 5:  # six frames per burst
            await asyncio.sleep(0.12)
    await wire.chunk(b"data: [DONE]\n\n")
    await wire.chunk(b"")


async def _one(served: Served, model: str, exchange: PromptAndAnswer, leaves_after: int | None) -> bool:
    """Stream and check an answer, or disconnect after some events; return whether it was complete."""
    asked, expected = exchange
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
    served: Served, model: str, next_prompt: Callable[[], PromptAndAnswer], clients: int, seconds: float
) -> list[float]:
    """Send waves of requests for ``seconds``; return the resident memory in MB after each wave."""
    rng, sizes, whole, left = random.Random(7), list[float](), 0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(sizes) < 2:
        drawn = (place for place in range(clients) if rng.random() < ABANDONED_SHARE)
        abandoned = {0, *drawn}  # at least one
        wave = [
            _one(served, model, next_prompt(), rng.randrange(4) if place in abandoned else None)
            for place in range(clients)
        ]
        complete = sum(await asyncio.gather(*wave))
        whole, left = whole + complete, left + clients - complete
        assert await asyncio.to_thread(wait_until, lambda: _idle(served)), "a request is still held"
        gc.collect()
        sizes.append(_resident_mb())
    assert whole > clients
    assert left >= 2
    return sizes


def _idle(served: Served) -> bool:
    """Return whether the server holds nothing for any request."""
    turns = served.service.admission
    return turns.running == turns.waiting == 0 and not served.service.log.live and not served.engine_jobs()


async def _nothing_left(served: Served) -> None:
    assert await asyncio.to_thread(wait_until, lambda: not served.server.server_state.connections)
    assert await asyncio.to_thread(wait_until, lambda: len(asyncio.all_tasks(served.loop)) < 10)


def _grown_mb(sizes: list[float]) -> float:
    """Return by how many MB memory grew in the second half of the waves."""
    half = len(sizes) // 2
    return max(sizes[half:]) - sizes[half - 1]


def _resident_mb() -> float:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * 4096 / 2**20


@contextmanager
def _files_for(clients: int) -> Iterator[None]:
    """Raise the limit of open files: clients, server and upstream share one process."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 6 * clients + 200
    if most != resource.RLIM_INFINITY and most < wanted:
        pytest.skip(f"needs {wanted} open files; the limit is {most}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, wanted), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))


@pytest.mark.parametrize(("clients", "seconds"), [SHORT, LONG])
async def test_concurrent_streams_of_an_upstream_are_correct_and_leak_nothing(
    openai_server: OpenAIServer, clients: int, seconds: float
) -> None:
    rng = random.Random(5)

    def next_prompt() -> PromptAndAnswer:
        word = f"w{rng.randrange(10**6)}"
        openai_server.requests.clear()
        openai_server.script(_answer)
        return word, "".join(f"{word}-{number} " for number in range(FRAMES))

    with _files_for(clients):
        with Served(upstream_settings(openai_server)) as served:
            sizes = await _waves(served, "mine/m", next_prompt, clients, seconds)
            await _nothing_left(served)
        assert openai_server.wait_left(openai_server.connections), "a connection to the upstream is open"
    assert _grown_mb(sizes) < 20, sizes


@pytest.mark.parametrize(("clients", "seconds"), [FEW, LONG])
async def test_concurrent_streams_of_the_engine_are_correct_and_leak_nothing(
    local_server: Served, clients: int, seconds: float
) -> None:
    rng = random.Random(5)
    texts = {prompt: await _alone(local_server, prompt) for prompt in PROMPTS}

    def next_prompt() -> PromptAndAnswer:
        prompt = rng.choice(PROMPTS)
        return prompt, texts[prompt]

    with _files_for(clients):
        sizes = await _waves(local_server, "local/demo", next_prompt, clients, seconds)
        await _nothing_left(local_server)
    assert _grown_mb(sizes) < 20, sizes


async def _alone(served: Served, prompt: str) -> str:
    """Return the engine's answer to a prompt without concurrent requests."""
    body: dict[str, Any] = {"model": "local/demo", "temperature": 0, "max_tokens": TOKENS}
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(
            f"{served.base_url}/chat/completions",
            json={**body, "messages": [{"role": "user", "content": prompt}]},
        )
    text: str = answer.json()["choices"][0]["message"]["content"]
    return text

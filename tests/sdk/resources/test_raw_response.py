"""Bodies that the caller of ``with_streaming_response`` takes whole or by lines are limited in size."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from loopback_server import OpenAIServer, Received, Wire

from specclient import AsyncOpenAI, OpenAI, ResponseLimits, ResponseTooLargeError

pytestmark = pytest.mark.anyio
MIB = 2**20
LIMITS = ResponseLimits(max_body_bytes=2 * MIB, max_event_bytes=MIB)
ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
#: Methods of a response that keep the body or a line of it, with the limit that ends an endless one.
KEEPING = {
    "read": "max_body_bytes",
    "text": "max_body_bytes",
    "json": "max_body_bytes",
    "parse": "max_body_bytes",
    "iter_lines": "max_event_bytes",
}


async def long_line(_: Received, wire: Wire) -> None:
    """Send a body of 4 MiB in one line, far above the limits, so that a client without limits ends, too."""
    await wire.head(200, {"content-type": "application/json", "transfer-encoding": "chunked"})
    for _number in range(64):
        await wire.chunk(b"x" * 65536)
    await wire.chunk(b"")


def take(response: Any, use: str) -> None:
    taken = getattr(response, use)()
    if use == "iter_lines":
        next(taken)


async def take_async(response: Any, use: str) -> None:
    taken = getattr(response, use)()
    await (anext(taken) if use == "iter_lines" else taken)


@pytest.mark.parametrize(("use", "setting"), KEEPING.items())
def test_a_long_body_ends_at_the_limit(openai_server: OpenAIServer, use: str, setting: str) -> None:
    openai_server.script(long_line)
    with (
        OpenAI(base_url=openai_server.base_url, api_key="k", response_limits=LIMITS) as client,
        client.chat.completions.with_streaming_response.create(**ASK) as response,
        pytest.raises(ResponseTooLargeError, match=setting) as caught,
    ):
        take(response, use)
    assert MIB < caught.value.read <= 3 * MIB
    assert openai_server.wait_left(1)


@pytest.mark.parametrize(("use", "setting"), KEEPING.items())
async def test_a_long_body_of_an_asynchronous_call_ends_at_the_limit(
    openai_server: OpenAIServer, use: str, setting: str
) -> None:
    openai_server.script(long_line)
    async with (
        AsyncOpenAI(base_url=openai_server.base_url, api_key="k", response_limits=LIMITS) as client,
        client.chat.completions.with_streaming_response.create(**ASK) as response,
    ):
        with pytest.raises(ResponseTooLargeError, match=setting) as caught:
            await take_async(response, use)
    assert MIB < caught.value.read <= 3 * MIB
    assert await asyncio.to_thread(openai_server.wait_left, 1)


def test_a_body_taken_piece_by_piece_may_exceed_the_limit(openai_server: OpenAIServer) -> None:
    openai_server.script(long_line)
    with (
        OpenAI(base_url=openai_server.base_url, api_key="k", response_limits=LIMITS) as client,
        client.chat.completions.with_streaming_response.create(**ASK) as response,
    ):
        assert sum(len(piece) for piece in response.iter_bytes()) == 4 * MIB

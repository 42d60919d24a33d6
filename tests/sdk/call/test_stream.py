"""Streams and response bodies that are closed, cancelled or read in unusual ways, and their records."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from contextlib import closing
from typing import Any

import anyio
import pytest
from loopback_server import OpenAIServer, events, hang, reply

from specclient import AsyncOpenAI, OpenAI, OpenAIError

pytestmark = pytest.mark.anyio
ASK = [{"role": "user", "content": "hi"}]


def frame(**fields: Any) -> bytes:
    return b"data: %b\n\n" % json.dumps(fields).encode()


SLOW = events(*[frame(choices=[{"index": 0, "delta": {"content": "x"}}])] * 200, gap=0.02)


@pytest.fixture
async def client(openai_server: OpenAIServer, tmp_path: Any):
    made = AsyncOpenAI(api_key="k", base_url=openai_server.base_url, ledger=str(tmp_path / "l.db"))
    async with made:
        yield made


async def test_a_stream_closed_by_two_tasks_concurrently_ends_for_its_reader(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    openai_server.script(SLOW)
    stream = await client.chat.completions.create(model="m", messages=ASK, stream=True)

    async def read() -> int:
        return len([chunk async for chunk in stream])

    reader = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    async with asyncio.timeout(5):
        await asyncio.gather(stream.close(), stream.close())
        assert await reader < 200
    assert reader.cancelling() == 0


async def test_a_cancelled_reader_of_a_closed_stream_raises_cancelled_error(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    openai_server.script(SLOW)
    stream = await client.chat.completions.create(model="m", messages=ASK, stream=True)

    async def read() -> None:
        async for _ in stream:
            pass

    reader = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    reader.cancel()
    await stream.close()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert reader.cancelled()


async def test_reading_a_consumed_or_closed_body_raises(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    create = client.chat.completions.with_streaming_response.create
    async with create(model="m-large", messages=ASK) as response:
        pieces = [piece async for piece in response.iter_bytes()]
        assert json.loads(b"".join(pieces))["model"] == "m-large"
        with pytest.raises(OpenAIError, match="iterated over"):
            await response.read()
    async with create(model="m-large", messages=ASK) as response:
        assert await response.read() == await response.read()
    with OpenAI(api_key="k", base_url=openai_server.base_url, ledger="off") as synchronous:
        with synchronous.models.with_streaming_response.list() as late:
            pass
        with pytest.raises(OpenAIError, match="closed"):
            late.read()


async def test_bodies_read_as_bytes_are_recorded(openai_server: OpenAIServer, client: AsyncOpenAI) -> None:
    create = client.chat.completions.with_streaming_response.create
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    last = frame(choices=[], usage=usage)
    first = frame(choices=[{"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}])
    openai_server.script(events(first, last[:20], last[20:], b"data: [DONE]\n\n"))
    # include_usage is not added to a request whose response is read as bytes, because these are unchanged.
    options = {"include_obfuscation": False}
    async with create(model="m", messages=ASK, stream=True, stream_options=options) as response:
        await response.read()
    assert openai_server.requests[-1].json["stream_options"] == options
    openai_server.script(reply(200, b"sound" * 10, {"content-type": "audio/mpeg"}))
    speak = client.audio.speech.with_streaming_response.create
    async with speak(model="tts", input="x", voice="alloy") as response:
        assert len(await response.read()) == 50
    text, sound = client.ledger.rows()
    assert (text.prompt_tokens, text.completion_tokens, text.usage_estimated) == (3, 1, False)
    assert (sound.operation, sound.prompt_tokens, sound.cost) == ("audio.speech.create", None, None)


async def test_a_failed_response_is_recorded_as_an_error(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    response = {"id": "r", "object": "response", "status": "failed", "output": [], "model": "m"}
    openai_server.script(events(frame(type="response.failed", sequence_number=1, response=response)))
    stream = await client.responses.create(model="m", input="hi", stream=True)
    assert [event.type async for event in stream] == ["response.failed"]
    (row,) = client.ledger.rows()
    assert (row.status, row.error) == ("error", "response.failed")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_cancelled_by_an_anyio_scope_is_recorded(
    openai_server: OpenAIServer, client: AsyncOpenAI, *, stream: bool
) -> None:
    openai_server.script(SLOW if stream else hang)
    with anyio.move_on_after(0.3) as scope:
        answer = await client.chat.completions.create(model="m", messages=ASK, stream=stream)
        async for _ in answer:
            pass
    assert scope.cancelled_caught
    assert client.ledger.flush()
    with closing(sqlite3.connect(client.ledger.location)) as database:
        assert database.execute("SELECT status FROM calls").fetchall() == [("cancelled",)]


async def test_a_fast_stream_lets_other_tasks_run(openai_server: OpenAIServer, client: AsyncOpenAI) -> None:
    """An upstream that sends faster than it is read would otherwise keep the event loop for itself."""
    event = frame(choices=[{"index": 0, "delta": {"content": "x"}}])
    openai_server.script(events(event * 3000, b"data: [DONE]\n\n"))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    stream = await client.chat.completions.create(model="m", messages=ASK, stream=True)
    other = asyncio.create_task(count_turns())
    by_turn: Counter[int] = Counter()
    async for _ in stream:
        by_turn[turns] += 1
    other.cancel()
    assert by_turn.total() == 3000
    assert max(by_turn.values()) <= 64

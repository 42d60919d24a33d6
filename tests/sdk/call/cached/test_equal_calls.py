"""Equal calls at the same time: one request, and nobody hangs when its call fails or is left."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from cache_upstream import ASK
from gateway_server import upstream_settings
from loopback_server import hang, reply

from specclient import DeadlineExceededError, InternalServerError, OpenAI
from specclient.call.cached import flights as flights_module

pytestmark = pytest.mark.anyio


async def test_64_equal_calls_at_once_are_one_request(slow_client, slow):
    answers = await asyncio.gather(*(slow_client.chat.completions.create(**ASK) for _ in range(64)))
    assert len(slow.requests) == 1
    assert all(answer == answers[0] for answer in answers)
    assert sum(answer.meta.cached for answer in answers) == 63
    assert len({id(answer) for answer in answers}) == 64
    assert len(slow_client.core.shared.cache[1]) == 0


async def test_64_equal_streams_at_once_are_one_request(slow_client, slow):
    async def read() -> list[Any]:
        stream = await slow_client.chat.completions.create(**ASK, stream=True)
        return [chunk async for chunk in stream]

    streams = await asyncio.gather(*(read() for _ in range(64)))
    assert len(slow.requests) == 1
    assert all(stream == streams[0] for stream in streams)


def test_64_threads_at_once_are_one_request(slow, tables):
    found: list[Any] = []
    with OpenAI(config=upstream_settings(slow, **tables)) as client:
        threads = [
            threading.Thread(target=lambda: found.append(client.chat.completions.create(**ASK)))
            for _ in range(64)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert len(slow.requests) == 1
    assert [answer.id for answer in found] == ["chat-1"] * 64


async def test_different_calls_at_once_are_all_made(slow_client, slow):
    calls = (
        slow_client.chat.completions.create(**{**ASK, "messages": [{"role": "user", "content": str(number)}]})
        for number in range(8)
    )
    answers = await asyncio.gather(*calls)
    assert len({answer.id for answer in answers}) == len(slow.requests) == 8


async def test_a_failing_leader_hands_over_and_nobody_hangs(slow_client, slow):
    error = {"error": {"message": "broken"}}
    slow.script(reply(500, error))
    tasks = [asyncio.create_task(slow_client.chat.completions.create(**ASK)) for _ in range(8)]
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    failed = [result for result in results if isinstance(result, Exception)]
    assert [type(each) for each in failed] == [InternalServerError]
    assert len(slow.requests) == 2
    assert len({result.id for result in results if not isinstance(result, Exception)}) == 1


async def test_every_call_fails_by_itself_if_the_upstream_keeps_failing(slow_client, slow):
    slow.script(*[reply(500, {"error": {"message": "broken"}}) for _ in range(8)])
    tasks = [asyncio.create_task(slow_client.chat.completions.create(**ASK)) for _ in range(8)]
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert [type(result) for result in results] == [InternalServerError] * 8
    assert len(slow.requests) == 8


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_leader_hands_over(stream, slow_client, slow):
    slow.script(hang)

    async def ask() -> Any:
        answer = await slow_client.chat.completions.create(**ASK, stream=stream)
        return [chunk async for chunk in answer] if stream else answer

    tasks = [asyncio.create_task(ask()) for _ in range(4)]
    while not slow.requests:
        await asyncio.sleep(0.01)
    tasks[0].cancel()
    results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
    assert isinstance(results[0], asyncio.CancelledError)
    assert results[1] == results[2] == results[3]
    assert len(slow.requests) == 2


async def test_a_leader_that_leaves_its_stream_hands_over(client, upstream):
    first = await client.chat.completions.create(**ASK, stream=True)
    await anext(first)
    second = asyncio.create_task(client.chat.completions.create(**ASK, stream=True))
    await asyncio.sleep(0.05)
    assert not second.done()
    await first.close()
    stream = await asyncio.wait_for(second, 30)
    assert [chunk async for chunk in stream]
    assert len(upstream.requests) == 2


async def test_a_call_waits_no_longer_than_its_deadline_and_is_then_made(slow_client, slow):
    slow.script(hang)
    first = asyncio.create_task(slow_client.chat.completions.create(**ASK))
    while not slow.requests:
        await asyncio.sleep(0.01)
    with pytest.raises(DeadlineExceededError, match="waiting for an equal call in flight took all of it"):
        await slow_client.chat.completions.create(**ASK, deadline_s=0.1)
    assert (await slow_client.chat.completions.create(**ASK, timeout=0.5)).id == "chat-1"
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("chunks", [0, 1])
async def test_a_stream_that_its_caller_does_not_read_is_not_waited_for(
    chunks, client, upstream, monkeypatch
):
    monkeypatch.setattr(flights_module, "_LOOK_S", 0.01)
    client.core.shared.cache[1]._stalled_s = 0.1
    first = await client.chat.completions.create(**ASK, stream=True)
    for _ in range(chunks):
        await anext(first)
    second = await asyncio.wait_for(client.chat.completions.create(**ASK, stream=True), 30)
    assert [chunk async for chunk in second]
    assert len(upstream.requests) == 2
    assert [chunk async for chunk in first]  # it is whole, although it was late

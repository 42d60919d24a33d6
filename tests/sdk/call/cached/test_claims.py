"""Equal calls of several processes at the same time: claims in the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from cache_upstream import ASK, NumberedUpstream
from gateway_server import upstream_settings
from loopback_server import hang, reply

from specclient import AsyncOpenAI, InternalServerError
from specclient.call.cached import claims

pytestmark = pytest.mark.anyio


@pytest.fixture
async def clients(slow: NumberedUpstream, tables: dict[str, Any]) -> AsyncIterator[list[AsyncOpenAI]]:
    """Clients that share nothing but the store, as those of several processes."""
    tables["cache"]["across_processes"] = True
    async with AsyncExitStack() as stack:
        config = upstream_settings(slow, **tables)
        yield [await stack.enter_async_context(AsyncOpenAI(config=config, max_retries=0)) for _ in range(4)]


async def ask(client: AsyncOpenAI, stream: bool) -> Any:
    answer = await client.chat.completions.create(**ASK, stream=stream)
    return [chunk async for chunk in answer] if stream else answer


@pytest.mark.parametrize("stream", [False, True])
async def test_equal_calls_of_several_processes_are_one_request(stream, clients, slow):
    answers = await asyncio.gather(*(ask(client, stream) for client in clients * 4))
    assert all(answer == answers[0] for answer in answers)
    assert len(slow.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_call_is_made_by_another_process(stream, clients, slow, monkeypatch):
    monkeypatch.setattr(claims, "LEASE_S", 100.0)  # the claim is ended, and does not run out
    slow.script(reply(500, {"error": {"message": "broken"}}))
    calls = asyncio.gather(*(ask(client, stream) for client in clients), return_exceptions=True)
    results = await asyncio.wait_for(calls, 30)
    assert [type(each) for each in results if isinstance(each, Exception)] == [InternalServerError]
    assert len(slow.requests) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_call_is_made_by_another_process(stream, clients, slow, monkeypatch):
    monkeypatch.setattr(claims, "LEASE_S", 100.0)
    slow.script(hang)
    first = asyncio.create_task(ask(clients[0], stream))
    while not slow.requests:
        await asyncio.sleep(0.01)
    second = asyncio.create_task(ask(clients[1], stream))
    await asyncio.sleep(0.1)
    first.cancel()
    assert await asyncio.wait_for(second, 30)
    assert len(slow.requests) == 2


async def test_the_claim_of_a_process_that_died_ends(clients, slow, monkeypatch):
    monkeypatch.setattr(claims, "LEASE_S", 0.3)
    cached = clients[0].core.shared.cache[0]
    monkeypatch.setattr(cached, "release", lambda _: None)
    monkeypatch.setattr(cached, "renew", lambda *_: None)
    slow.script(hang)
    first = asyncio.create_task(ask(clients[0], False))
    while not slow.requests:
        await asyncio.sleep(0.01)
    first.cancel()
    assert (await asyncio.wait_for(ask(clients[1], False), 30)).id == "chat-1"


async def test_the_claim_of_a_call_that_takes_long_is_renewed(tables, monkeypatch):
    monkeypatch.setattr(claims, "LEASE_S", 0.3)
    tables["cache"]["across_processes"] = True
    with NumberedUpstream(delay_s=1.5) as slow:
        config = upstream_settings(slow, **tables)
        async with AsyncOpenAI(config=config) as one, AsyncOpenAI(config=config) as other:
            answers = await asyncio.gather(ask(one, False), ask(other, False))
        assert len(slow.requests) == 1
    assert answers[0] == answers[1]


async def test_a_stream_that_its_caller_does_not_read_loses_its_claim(clients, slow, monkeypatch):
    monkeypatch.setattr(claims, "LEASE_S", 0.3)
    clients[0].core.shared.cache[1]._stalled_s = 0.1
    stream = await clients[0].chat.completions.create(**ASK, stream=True)
    assert await asyncio.wait_for(ask(clients[1], True), 30)
    assert len(slow.requests) == 2
    assert [chunk async for chunk in stream]


async def test_a_call_waits_no_longer_than_its_patience(clients, slow):
    slow.script(hang)
    first = asyncio.create_task(ask(clients[0], False))
    while not slow.requests:
        await asyncio.sleep(0.01)
    late = clients[1].chat.completions.create(**ASK, timeout=0.6)
    assert (await asyncio.wait_for(late, 30)).id == "chat-1"
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_without_the_setting_nothing_is_claimed(slow, tables):
    config = upstream_settings(slow, **tables)
    async with AsyncOpenAI(config=config) as one, AsyncOpenAI(config=config) as other:
        await asyncio.gather(ask(one, False), ask(other, False))
    assert len(slow.requests) == 2

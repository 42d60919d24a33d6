"""Calls are recorded, cancelled and closed with their responses."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import openai
import pytest
from gateway_server import upstream_settings, wait_until
from loopback_server import TEXT, OpenAIServer, broken_stream, hang

import specclient
from specclient.config import Settings
from specclient.errors import ConfigurationError

pytestmark = pytest.mark.anyio

ASK: Any = [{"role": "user", "content": "Say something about foxes."}]
Connect = Callable[..., openai.OpenAI]


def test_calls_are_in_the_ledger_with_tags(tmp_path: Path, connect: Connect) -> None:
    path = str(tmp_path / "calls.db")
    with specclient.OpenAI(config=Settings(), ledger=path, api_key="x") as reader:
        client = connect(tables={"ledger": path})
        client.chat.completions.create(
            model="m-large", messages=ASK, extra_body={"specclient": {"tags": {"team": "a"}, "session": "s"}}
        )
        list(client.chat.completions.create(model="m-large", messages=ASK, stream=True))
        client.models.list()
        client.close()
        rows = reader.ledger.rows()
    assert [(row.operation, row.status) for row in rows] == [("chat", "ok"), ("chat", "ok")]
    assert [dict(row.tags) for row in rows if row.session == "s"] == [{"team": "a"}]


def test_the_response_cache_answers_calls_that_ask_for_it(
    tmp_path: Path, connect: Connect, openai_server: OpenAIServer
) -> None:
    client = connect(tables={"cache": {"store": str(tmp_path / "cache.sqlite3")}})
    ask: Any = {"model": "m-large", "messages": ASK, "temperature": 0}
    client.chat.completions.create(**ask)
    by_header = {**ask, "extra_headers": {"x-specclient-cache": "1"}}
    first, second = (client.chat.completions.with_raw_response.create(**by_header) for _ in range(2))
    assert second.content == first.content
    assert (first.headers.get("x-specclient-cache"), second.headers["x-specclient-cache"]) == (None, "hit")
    assert second.headers["x-specclient-cost"] == "0"
    assert client.chat.completions.create(**ask, extra_body={"specclient": {"cache": True}}) == second.parse()
    streams = [list(client.chat.completions.create(**by_header, stream=True)) for _ in range(2)]
    assert streams[0] == streams[1]
    assert len(openai_server.requests) == 3
    client.close()


def test_closing_a_stream_early_ends_the_upstream_request(
    connect: Connect, openai_server: OpenAIServer, library: ModuleType
) -> None:
    piece = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[]}\n\n'
    piece = piece.replace(b"[]", b'[{"index":0,"delta":{"content":"a"},"finish_reason":null}]')
    openai_server.script(broken_stream(piece, how="hang"))
    with connect(library).chat.completions.create(model="m-large", messages=ASK, stream=True) as stream:
        assert next(iter(stream)).choices[0].delta.content == "a"
    assert openai_server.wait_left(1)
    call = specclient.last_call()
    assert call is not None
    assert call.status == "cancelled"


async def test_cancelling_the_task_ends_the_upstream_request(
    openai_server: OpenAIServer, library: ModuleType
) -> None:
    openai_server.script(hang)
    calls: list[specclient.Call] = []
    client = specclient.AsyncOpenAI(config=upstream_settings(openai_server))

    async def note(call: specclient.Call) -> None:
        calls.append(call)

    client.pipeline.observers.append(note)
    http_client = library.AsyncClient(transport=specclient.async_transport(client=client))
    async with openai.AsyncOpenAI(
        base_url=openai_server.base_url, api_key="k", http_client=http_client
    ) as official:
        task = asyncio.create_task(official.chat.completions.create(model="m-large", messages=ASK))
        while not openai_server.requests:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(openai_server.wait_left, 1)
    assert [call.status for call in calls] == ["cancelled"]
    assert not client.is_closed()
    await client.close()


async def test_asynchronous_streams_arrive_piece_by_piece(
    openai_server: OpenAIServer, library: ModuleType
) -> None:
    received = threading.Event()

    async def answer(_: Any, wire: Any) -> None:
        await wire.head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        piece = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
        piece += b'[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
        await wire.chunk(piece)
        while not received.is_set():  # the rest only follows when the first piece was read
            await asyncio.sleep(0.01)
        await wire.chunk(b"data: [DONE]\n\n")
        await wire.chunk(b"")

    openai_server.script(answer)
    transport = specclient.async_transport(config=upstream_settings(openai_server))
    async with openai.AsyncOpenAI(
        base_url=openai_server.base_url, api_key="k", http_client=library.AsyncClient(transport=transport)
    ) as client:
        stream = await client.chat.completions.create(model="m-large", messages=ASK, stream=True)
        assert (await anext(aiter(stream))).choices[0].delta.content == "a"
        received.set()
        assert [chunk async for chunk in stream] == []
    call = specclient.last_call()
    assert call is not None
    assert call.status == "ok"


def test_one_connection_serves_calls_and_streams_in_turn(
    connect: Connect, openai_server: OpenAIServer
) -> None:
    client = connect()
    for stream in (False, True, False, True):
        answer: Any = client.chat.completions.create(model="m-large", messages=ASK, stream=stream)
        assert not stream or len(list(answer)) == 10
    assert openai_server.connections == 1


def test_threads_have_their_own_last_call(connect: Connect) -> None:
    client, seen = connect(), {}

    def ask(model: str) -> None:
        client.chat.completions.create(model=model, messages=ASK)
        call = specclient.last_call()
        seen[model] = None if call is None else call.route.chosen

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("m-large", "m-small")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {"m-large": "mine/m-large", "m-small": "mine/m-small"}


def test_a_dropped_stream_ends_the_upstream_request(connect: Connect, openai_server: OpenAIServer) -> None:
    piece = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    piece += b'[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
    openai_server.script(broken_stream(piece, how="hang"))
    stream: Any = connect().chat.completions.create(model="m-large", messages=ASK, stream=True)
    next(iter(stream))
    del stream
    gc.collect()
    assert wait_until(lambda: openai_server.left == 1)


def test_a_listener_that_fails_does_not_fail_the_call(connect: Connect) -> None:
    def listener(_: specclient.Call) -> None:
        raise RuntimeError

    answer = connect(on_call=listener).chat.completions.create(model="m-large", messages=ASK)
    assert answer.choices[0].message.content == TEXT


def test_a_client_of_another_package_or_with_options_is_refused(direct: openai.OpenAI) -> None:
    with pytest.raises(ConfigurationError, match=r"must be a specclient\.OpenAI"):
        specclient.transport(client=direct)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="cannot both be given"):
        specclient.transport(client=specclient.OpenAI(api_key="k"), ledger="off")

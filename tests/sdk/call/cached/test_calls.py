"""Calls with the response cache, from the client to a loopback server and back."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cache_upstream import ASK, MESSAGES, entries
from gateway_server import upstream_settings
from loopback_server import broken_stream, reply

from specclient import (
    APIError,
    AsyncOpenAI,
    CacheOptions,
    ConfigurationError,
    OpenAI,
)

pytestmark = pytest.mark.anyio

CALLS: dict[str, Any] = {
    "chat": lambda client, **more: client.chat.completions.create(**{**ASK, **more}),
    "completion": lambda client, **more: client.completions.create(
        **{"model": "mine/m", "prompt": "x", "seed": 1, "cache": True, **more}
    ),
    "response": lambda client, **more: client.responses.create(
        **{"model": "mine/m", "input": "x", "temperature": 0, "cache": True, **more}
    ),
    "embedding": lambda client, **more: client.embeddings.create(
        **{"model": "mine/m", "input": "x", "cache": True, **more}
    ),
}
STREAMED = ["chat", "completion", "response"]


@pytest.mark.parametrize("operation", CALLS)
async def test_an_equal_call_gets_the_same_answer_without_a_request(operation, client, upstream, cache):
    call = CALLS[operation]
    first = await call(client)
    second = await call(client)
    assert len(upstream.requests) == 1
    assert second == first
    assert second.to_dict() == first.to_dict()
    assert second._request_id == first._request_id == "req-1"
    assert (first.meta.cached, second.meta.cached) == (False, True)
    assert entries(cache) == 1
    assert (await call(client, cache=False)).meta.cached is False
    assert len(upstream.requests) == 2


@pytest.mark.parametrize("operation", STREAMED)
async def test_a_stream_is_replayed_chunk_by_chunk(operation, client, upstream):
    call = CALLS[operation]
    first = await call(client, stream=True)
    chunks = [chunk async for chunk in first]
    second = await call(client, stream=True)
    assert second.cached
    replayed = [chunk async for chunk in second]
    assert len(upstream.requests) == 1
    assert len(chunks) > 3
    assert replayed == chunks
    assert [chunk.to_dict() for chunk in replayed] == [chunk.to_dict() for chunk in chunks]
    assert [type(chunk) for chunk in replayed] == [type(chunk) for chunk in chunks]
    assert (first.meta.cached, second.meta.cached) == (False, True)
    assert second.meta.status == "ok"


@pytest.mark.parametrize("operation", STREAMED)
async def test_whole_and_streamed_calls_have_answers_of_their_own(operation, client, upstream):
    call = CALLS[operation]
    await call(client)
    stream = await call(client, stream=True)
    assert [chunk async for chunk in stream]
    assert not stream.meta.cached
    assert len(upstream.requests) == 2


def test_the_synchronous_client_and_raw_responses_use_the_cache(upstream, tables):
    with OpenAI(config=upstream_settings(upstream, **tables)) as client:
        first = client.chat.completions.create(**ASK)
        second = client.chat.completions.with_raw_response.create(**ASK)
        assert second.parse() == first
        assert second.status_code == 200
        assert b"answer 1" in second.content
        with client.chat.completions.create(**ASK, stream=True) as stream:
            chunks = list(stream)
        with client.chat.completions.create(**ASK, stream=True) as stream:
            assert list(stream) == chunks
            assert stream.meta.cached
        # Unread bodies are the bytes of the provider's response, so they are never kept.
        with client.chat.completions.with_streaming_response.create(**ASK) as unread:
            assert b"answer 3" in unread.read()
    assert len(upstream.requests) == 3


async def test_a_caller_may_change_the_answer_without_changing_the_kept_one(client):
    for _ in range(2):
        answer = await client.chat.completions.create(**ASK)
        answer.choices[0].message.content = "changed"
        assert (await client.chat.completions.create(**ASK)).choices[0].message.content == "answer 1"
    vectors = await client.embeddings.create(model="mine/m", input="x", cache=True)
    vectors.data[0].embedding.append(1.0)
    again = await client.embeddings.create(model="mine/m", input="x", cache=True)
    assert again.data[0].embedding == [0.5, -0.25, 2.0]
    stream = await client.chat.completions.create(**ASK, stream=True)
    async for chunk in stream:
        chunk.id = "changed"
    stream = await client.chat.completions.create(**ASK, stream=True)
    assert {chunk.id async for chunk in stream} == {"chat-3"}


@pytest.mark.parametrize(
    "params", [{"temperature": 1}, {"temperature": None}, {"top_p": 0.5, "temperature": 1}]
)
async def test_random_calls_are_kept_only_if_they_ask_for_it(params, client, upstream, cache):
    for _ in range(2):
        await client.chat.completions.create(**{**ASK, **params})
    assert len(upstream.requests) == 2
    assert entries(cache) == 0
    for option in ({"random": True}, CacheOptions(random=True)):
        await client.chat.completions.create(**{**ASK, **params, "cache": option})
    assert len(upstream.requests) == 3


async def test_a_call_without_the_option_does_not_use_the_cache(client, upstream, cache):
    for _ in range(2):
        await client.chat.completions.create(model="mine/m-large", messages=MESSAGES, temperature=0)
    assert len(upstream.requests) == 2
    assert not Path(cache["store"]).exists()


async def test_a_maximum_age_asks_anew(client, upstream):
    await client.chat.completions.create(**ASK)
    await client.chat.completions.create(**{**ASK, "cache": 3600})
    await asyncio.sleep(0.02)
    await client.chat.completions.create(**{**ASK, "cache": 0.01})
    assert len(upstream.requests) == 2
    assert (await client.chat.completions.create(**ASK)).id == "chat-2"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("on", "cache is 'on'"),
        ({"age": 1}, "cache has 'age'"),
        ({"random": "yes"}, r"cache\.random is 'yes'"),
    ],
)
async def test_a_wrong_option_is_refused_by_name(given, named, client, upstream):
    with pytest.raises(ConfigurationError, match=named):
        await client.chat.completions.create(**{**ASK, "cache": given})
    assert not upstream.requests


async def test_the_configuration_switches_the_cache_on_for_all_calls(upstream, tables, cache):
    config = upstream_settings(upstream, **{**tables, "cache": {**cache, "enabled": True, "random": True}})
    async with AsyncOpenAI(config=config) as client:
        for _ in range(2):
            await client.chat.completions.create(model="mine/m-large", messages=MESSAGES)
        assert len(upstream.requests) == 1
        await client.chat.completions.create(model="mine/m-large", messages=MESSAGES, cache=False)
        await client.chat.completions.create(model="mine/m-large", messages=MESSAGES, cache={"random": False})
        assert len(upstream.requests) == 3


async def test_limits_of_zero_switch_it_off(upstream, tables, cache):
    config = upstream_settings(upstream, **{**tables, "cache": {**cache, "enabled": True, "max_bytes": 0}})
    async with AsyncOpenAI(config=config) as client:
        for _ in range(2):
            await client.chat.completions.create(**ASK)
    assert len(upstream.requests) == 2
    assert entries(cache) == 0


# Answers that did not end well


def whole(**choice: Any) -> Any:
    choices = [{"index": 0, "message": {"role": "assistant", "content": "x"}, **choice}]
    return reply(
        200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    )


@pytest.mark.parametrize(
    "behaviour",
    [
        whole(finish_reason=None),
        whole(finish_reason="error"),
        reply(200, {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": []}),
        reply(200, b"no json", {"content-type": "application/json"}),
        reply(400, {"error": {"message": "no"}}),
    ],
)
async def test_an_answer_that_did_not_end_well_is_not_kept(behaviour, client, upstream, cache):
    upstream.script(behaviour)
    with suppress(APIError):
        await client.chat.completions.create(**ASK)
    assert entries(cache) == 0
    assert (await client.chat.completions.create(**ASK)).id.startswith("chat-")
    assert len(upstream.requests) == 2
    assert entries(cache) == 1


CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]}\n\n'
BEGUN = CHUNK % b'{"index":0,"delta":{"content":"a"},"finish_reason":null}'


@pytest.mark.parametrize(
    "behaviour",
    [
        broken_stream(BEGUN, how="reset"),
        broken_stream(BEGUN, how="close"),
        broken_stream(BEGUN, b"data: [DONE]\n\n", how="close"),  # without a finish reason
        broken_stream(BEGUN, b'data: {"error":{"message":"no"}}\n\n', how="close"),
    ],
)
async def test_a_stream_that_did_not_end_well_is_not_kept(behaviour, client, upstream, cache):
    upstream.script(behaviour)
    stream = await client.chat.completions.create(**ASK, stream=True)
    with suppress(APIError):
        async for _ in stream:
            pass
    assert entries(cache) == 0
    stream = await client.chat.completions.create(**ASK, stream=True)
    assert [chunk async for chunk in stream]
    assert len(upstream.requests) == 2
    assert entries(cache) == 1


async def test_a_stream_that_the_caller_left_is_not_kept(client, upstream, cache):
    stream = await client.chat.completions.create(**ASK, stream=True)
    async with stream:
        await anext(stream)
    assert entries(cache) == 0
    stream = await client.chat.completions.create(**ASK, stream=True)
    assert [chunk async for chunk in stream]
    assert len(upstream.requests) == 2


async def test_a_failed_response_is_not_kept(client, upstream, cache):
    from openai_calls import RESPONSE

    upstream.script(
        reply(200, {**RESPONSE, "status": "failed"}), reply(200, {**RESPONSE, "status": "queued"})
    )
    for _ in range(2):
        await CALLS["response"](client)
    assert entries(cache) == 0


# Damage


async def test_a_damaged_answer_is_a_miss_told_once_and_replaced(client, upstream, cache, caplog):
    await client.chat.completions.create(**ASK)
    for _ in range(2):
        with closing(sqlite3.connect(cache["store"])) as connection:
            connection.execute("UPDATE cached_answers SET body = substr(body, 1, length(body) / 2)")
            connection.commit()
        assert not (await client.chat.completions.create(**ASK)).meta.cached
        assert (await client.chat.completions.create(**ASK)).meta.cached
    assert len(upstream.requests) == 3
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "is damaged and was removed" in warning


@pytest.mark.parametrize("trouble", ["garbage", "no folder", "locked"])
async def test_calls_work_without_a_store_and_one_warning_is_logged(
    trouble, upstream, tables, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr("specclient.response_cache.sqlite.BUSY_S", 0.05)
    file = tmp_path / "bad.sqlite3"
    locked = sqlite3.connect(tmp_path / "locked.sqlite3", isolation_level=None)
    if trouble == "garbage":
        file.write_bytes(os.urandom(5000))
    elif trouble == "no folder":
        file = Path("/proc/none/cache.sqlite3")
    else:
        file = tmp_path / "locked.sqlite3"
        locked.execute("BEGIN EXCLUSIVE")
    config = upstream_settings(upstream, **{**tables, "cache": {"store": str(file)}})
    async with AsyncOpenAI(config=config) as client:
        answers = [await client.chat.completions.create(**ASK) for _ in range(3)]
        stream = await client.chat.completions.create(**ASK, stream=True)
        assert [chunk async for chunk in stream]
    locked.close()
    assert [answer.id for answer in answers] == ["chat-1", "chat-2", "chat-3"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "Calls go on without the cache" in warnings[0]


# Processes

PROGRAM = """
import sys, json
from specclient import OpenAI
with OpenAI(config=sys.argv[1]) as client:
    answer = client.chat.completions.create(
        model="mine/m-large", messages=[{"role": "user", "content": "hi"}], temperature=0, cache=True
    )
    print(json.dumps([answer.id, answer.meta.cached]))
"""


def test_processes_share_the_answers(upstream, tables, tmp_path):
    file = tmp_path / "specclient.toml"
    file.write_text(
        f'ledger = "{tables["ledger"]}"\n[cache]\nstore = "{tables["cache"]["store"]}"\n'
        f'[providers.mine]\nbase_url = "{upstream.base_url}"\napi_key = "k"\n'
    )
    outs = [
        subprocess.run([sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [out.stdout.strip() for out in outs] == ['["chat-1", false]', '["chat-1", true]']
    assert len(upstream.requests) == 1


# The engine in this process, and responses that are stored here


async def test_the_engines_answers_are_kept(tables):
    from specclient.config import Settings

    config = Settings.model_validate({**tables, "local": {"threads": 1}})
    async with AsyncOpenAI(config=config) as client:
        ask = {"model": "local/demo", "messages": MESSAGES, "temperature": 0, "max_tokens": 8, "cache": True}
        first = await client.chat.completions.create(**ask)
        second = await client.chat.completions.create(**ask)
        assert second == first
        assert second.meta.cached
        assert second.meta.saved == first.meta.cost.total.quantize(Decimal("1e-9"))
        assert second.meta.speculation is None
        streams = []
        for _ in range(2):
            stream = await client.chat.completions.create(**ask, stream=True)
            streams.append([chunk async for chunk in stream])
        assert streams[0] == streams[1]
        assert stream.meta.cached


async def test_a_kept_response_of_the_engine_is_stored_again_under_an_id_of_its_own(tables):
    from specclient.config import Settings

    config = Settings.model_validate({**tables, "local": {"threads": 1}})
    ask = {"model": "local/demo", "input": "x", "temperature": 0, "max_output_tokens": 8, "cache": True}
    async with AsyncOpenAI(config=config) as client:
        first, second = [await client.responses.create(**ask) for _ in range(2)]
        assert second.meta.cached
        assert second.output == first.output
        assert second.id != first.id
        for response in (first, second):
            assert (await client.responses.retrieve(response.id)).output_text == first.output_text
        follow = await client.responses.create(**{**ask, "input": "y"}, previous_response_id=second.id)
        assert not follow.meta.cached
        again = await client.responses.create(**{**ask, "input": "y"}, previous_response_id=first.id)
        assert again.meta.cached  # the same conversation
        events = []
        for _ in range(2):
            stream = await client.responses.create(**ask, stream=True)
            events.append([event async for event in stream])
        assert stream.meta.cached
        ids = [{event.response.id for event in each if hasattr(event, "response")} for each in events]
        assert len(ids[0]) == len(ids[1]) == 1
        assert ids[0] != ids[1]
        assert [event.type for event in events[0]] == [event.type for event in events[1]]

"""Calls with the response cache, from the client to a loopback server and back."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from cache_upstream import NumberedUpstream
from gateway_server import upstream_settings
from loopback_server import broken_stream, hang, reply

from specclient import (
    APIError,
    AsyncOpenAI,
    Budget,
    CacheOptions,
    ConfigurationError,
    DeadlineExceededError,
    InternalServerError,
    OpenAI,
)

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "hi"}]
ASK: dict[str, Any] = {"model": "mine/m-large", "messages": MESSAGES, "temperature": 0, "cache": True}


@pytest.fixture
def upstream() -> Iterator[NumberedUpstream]:
    with NumberedUpstream() as server:
        yield server


@pytest.fixture
def slow() -> Iterator[NumberedUpstream]:
    with NumberedUpstream(delay_s=0.2) as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, Any]:
    return {"store": str(tmp_path / "cache.sqlite3")}


@pytest.fixture
def tables(cache: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    return {"cache": cache, "ledger": str(tmp_path / "ledger.sqlite3")}


@pytest.fixture
async def client(upstream: NumberedUpstream, tables: dict[str, Any]) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(config=upstream_settings(upstream, **tables)) as made:
        yield made


@pytest.fixture
async def slow_client(slow: NumberedUpstream, tables: dict[str, Any]) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(config=upstream_settings(slow, **tables), max_retries=0) as made:
        yield made


def entries(cache: dict[str, Any]) -> int:
    if not Path(cache["store"]).exists():
        return 0
    with closing(sqlite3.connect(cache["store"])) as connection:
        return connection.execute("SELECT COUNT(*) FROM cached_answers").fetchone()[0]


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


# Equal calls in flight


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


# Records


async def test_a_hit_is_a_row_of_cost_0_that_states_what_it_saved(client):
    for stream in (False, True):
        for _ in range(3):
            answer = await client.chat.completions.create(
                **ASK, stream=stream, tags={"team": "red"}, session="s"
            )
            if stream:
                assert [chunk async for chunk in answer]
            else:
                hit = answer.meta
    assert (hit.cost.total, hit.cost.source) == (Decimal(0), "response cache")
    assert hit.saved == Decimal("0.000022")  # 3 tokens at $2 and 2 at $8, per million
    assert (hit.usage.prompt, hit.usage.completion) == (0, 0)
    assert (hit.route.chosen, hit.served_model, hit.counts) == ("mine/m-large", "m-large", {"tool_calls": 0})
    client.ledger.flush()
    rows = client.ledger.rows()
    assert [row.cached for row in rows] == [False, True, True] * 2
    assert [row.cost_nano for row in rows] == [22_000, 0, 0] * 2
    assert [row.saved_nano for row in rows] == [None, 22_000, 22_000] * 2
    assert {(row.session, row.tags["team"], row.status) for row in rows} == {("s", "red", "ok")}
    report = await client.costs.report("model")
    total = report.total
    assert (total.calls, total.cached_calls, total.cost, total.cache_saved) == (
        6, 4, Decimal("0.000044"), Decimal("0.000088"),
    )  # fmt: skip
    assert report.to_json()["total"]["cache_saved"] == "0.000088000"


async def test_what_an_unpriced_answer_saved_is_unknown(client):
    for _ in range(2):
        answer = await client.chat.completions.create(**{**ASK, "model": "mine/unpriced"})
    assert (answer.meta.cost.total, answer.meta.saved) == (Decimal(0), None)


async def test_a_replay_that_the_caller_leaves_is_recorded_as_cancelled(client):
    stream = await client.chat.completions.create(**ASK, stream=True)
    assert [chunk async for chunk in stream]
    stream = await client.chat.completions.create(**ASK, stream=True)
    assert stream.meta.status == "open"
    await stream.close()
    assert stream.meta.status == "cancelled"
    client.ledger.flush()
    assert [row.status for row in client.ledger.rows()] == ["ok", "cancelled"]


async def test_hits_are_not_charged_to_budgets(upstream, tables):
    config = upstream_settings(upstream, **tables)
    budget = Budget(name="all", tokens=40)
    async with AsyncOpenAI(config=config, budgets=[budget]) as client:
        for _ in range(20):
            await client.chat.completions.create(**ASK, max_tokens=9)
        (standing,) = client.core.shared.ensure_budgets().standings()
    assert len(upstream.requests) == 1
    assert standing.spent == 5


async def test_hits_teach_the_router_nothing(client):
    await client.chat.completions.create(**ASK)
    shared = client.core.shared
    shared.estimates.load_history()
    for _ in range(5):
        await client.chat.completions.create(**ASK)
    assert shared.estimates.of("mine/m-large").evidence == pytest.approx(1, abs=0.01)
    client.ledger.flush()
    async with AsyncOpenAI(config=client.settings) as later:  # which reads the ledger's rows
        later.core.shared.estimates.load_history()
        assert later.core.shared.estimates.of("mine/m-large").evidence == pytest.approx(1, abs=0.01)


async def test_a_routed_call_is_answered_without_a_decision(client, upstream):
    first = await client.chat.completions.create(**{**ASK, "model": "auto"})
    second = await client.chat.completions.create(**{**ASK, "model": "auto"})
    assert second == first
    assert second.meta.route.chosen == first.meta.route.chosen
    assert "response cache" in second.meta.route.reason
    assert len(upstream.requests) == 1
    # The model by its name is another call, although it gave the answer.
    await client.chat.completions.create(**{**ASK, "model": first.meta.route.chosen})
    assert len(upstream.requests) == 2


async def test_a_call_of_the_same_model_elsewhere_is_not_answered(client, upstream, tables):
    await client.chat.completions.create(**ASK)
    with NumberedUpstream() as elsewhere:
        async with AsyncOpenAI(config=upstream_settings(elsewhere, **tables)) as other:
            assert not (await other.chat.completions.create(**ASK)).meta.cached
        assert len(elsewhere.requests) == 1


async def test_copies_of_a_client_share_cache_and_calls_in_flight(slow_client, slow):
    copy = slow_client.with_options(timeout=30)
    answers = await asyncio.gather(
        slow_client.chat.completions.create(**ASK), copy.chat.completions.create(**ASK)
    )
    assert answers[0] == answers[1]
    assert len(slow.requests) == 1


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

"""A server with the response cache: the header, keys as tenants, metadata of answers, and other APIs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from cache_upstream import NumberedUpstream
from gateway_server import Served, upstream_settings
from keyed_server import KeyedServer
from postgres_server import PostgresServer
from redis_server import RedisServer

from specclient import ConfigurationError
from specclient.serving.workers import ServerPlan, app_of

ASK: dict[str, Any] = {
    "model": "mine/m-large",
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0,
    "max_tokens": 9,
}
ON = {"x-specclient-cache": "1"}


@pytest.fixture
def upstream() -> Iterator[NumberedUpstream]:
    with NumberedUpstream() as server:
        yield server


@pytest.fixture
def open_server(upstream: NumberedUpstream, tmp_path: Path) -> Iterator[Any]:
    with ExitStack() as stack:

        def opened(keys: bool = False, **cache: Any) -> Any:
            table = {"store": str(tmp_path / "cache.sqlite3"), **cache}
            if not keys:
                return stack.enter_context(Served(upstream_settings(upstream, cache=table)))
            server = KeyedServer(upstream, tmp_path / "keys.sqlite3", {"cache": table}, key="operator")
            stack.callback(server.store.close)
            stack.enter_context(server.served)
            return server

        yield opened


def ask(served: Served, path: str = "/chat/completions", headers: Any = ON, **body: Any) -> httpx.Response:
    url = served.base_url + path
    return httpx.post(url, json={**ASK, **body}, headers=headers, timeout=60, trust_env=False)


def test_the_header_asks_for_the_cache_and_the_answer_says_whether_it_was_used(open_server, upstream):
    served = open_server()
    answers = [ask(served) for _ in range(3)]
    assert len({answer.content for answer in answers}) == len(upstream.requests) == 1
    assert [answer.headers.get("x-specclient-cache") for answer in answers] == [None, "hit", "hit"]
    assert "x-ratelimit-remaining-requests" in answers[0].headers
    assert "x-ratelimit-remaining-requests" not in answers[1].headers  # an old limit says nothing
    assert ask(served, headers={}).json()["id"] == "chat-2"
    assert ask(served, headers={"x-specclient-cache": "0"}).json()["id"] == "chat-3"
    refused = ask(served, headers={"x-specclient-cache": "maybe"})
    assert refused.status_code == 400
    assert "x-specclient-cache" in refused.json()["error"]["message"]


def test_streams_are_replayed_byte_by_byte(open_server, upstream):
    served = open_server()
    answers = [ask(served, stream=True) for _ in range(2)]
    assert answers[0].content == answers[1].content
    assert answers[0].content.endswith(b"data: [DONE]\n\n")
    assert answers[1].headers["x-specclient-cache"] == "hit"
    assert len(upstream.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completions", {"prompt": "x", "messages": None}),
        ("/responses", {"input": "x"}),
        ("/embeddings", {"input": "x"}),
    ],
)
def test_other_operations_are_answered_alike(path, body, stream, open_server, upstream):
    if path == "/embeddings" and stream:
        return
    given = {**ASK, **body, "stream": stream}
    del given["messages"]
    served = open_server()
    answers = [
        httpx.post(served.base_url + path, json=given, headers=ON, timeout=60, trust_env=False)
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content
    assert answers[1].headers["x-specclient-cache"] == "hit"
    assert len(upstream.requests) == 1


def test_the_record_of_a_hit_is_in_the_extension(open_server):
    served = open_server()
    both = {**ON, "x-specclient-meta": "1"}
    first, second = [ask(served, headers=both).json()["specclient"] for _ in range(2)]
    assert first["cost"]["total"] == "0.000022"
    assert "cached" not in first
    assert second["cost"]["total"] == "0"
    assert (second["cached"], second["saved"]) == (True, "0.000022")
    streamed = [ask(served, headers=both, stream=True).content.split(b"\n\n")[-3] for _ in range(2)]
    assert json.loads(streamed[1].removeprefix(b"data: "))["specclient"]["cached"] is True


def test_metrics_count_hits_and_what_they_saved(open_server):
    served = open_server()
    for _ in range(3):
        ask(served)
    lines = httpx.get(f"{served.url}/metrics", trust_env=False).text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if line.startswith("specclient:"))
    label = '{model_name="mine/m-large"}'
    assert values[f"specclient:response_cache_hits_total{label}"] == "2.0"
    assert float(values[f"specclient:response_cache_saved_dollars_total{label}"]) == pytest.approx(44e-6)
    assert values[f'specclient:calls_total{label[:-1]},status="ok"}}'] == "3.0"
    assert values[f"specclient:prompt_tokens_total{label}"] == "3.0"
    assert values[f"specclient:generation_tokens_total{label}"] == "2.0"


def test_answers_are_private_to_a_key(open_server, upstream):
    server = open_server(keys=True, enabled=True)
    alice, bob = server.make("alice"), server.make("bob")
    found = [
        server.ask(key, body=ASK).json()["id"] for key in (alice, bob, "operator", alice, bob, "operator")
    ]
    assert found == ["chat-1", "chat-2", "chat-3"] * 2
    rows = server.rows()
    assert [(row.tags.get("key"), row.cached) for row in rows[3:]] == [
        (rows[0].tags.get("key"), True),
        (rows[1].tags.get("key"), True),
        (rows[2].tags.get("key"), True),
    ]


def test_a_shared_cache_answers_all_keys_that_may_use_the_model(open_server, upstream):
    server = open_server(keys=True, enabled=True, shared=True)
    alice, bob = server.make("alice"), server.make("bob")
    other = server.make("carol", models=("mine/m-small",))
    assert [server.ask(key, body=ASK).json()["id"] for key in (alice, bob, "operator")] == ["chat-1"] * 3
    assert server.ask(other, body=ASK).status_code == 404
    auto = {**ASK, "model": "auto"}
    limited = server.make("dave", models=("mine/m-small", "auto"))
    assert server.ask(alice, body=auto).json()["id"] == "chat-2"
    assert server.ask(limited, body=auto).json()["id"] == "chat-3"  # its candidates are others
    assert len(upstream.requests) == 3


def test_hits_use_no_tokens_of_a_keys_limits_and_budget(open_server, upstream):
    server = open_server(keys=True, enabled=True)
    key = server.make("alice", tokens_per_minute=40)
    assert [server.ask(key, body=ASK).status_code for _ in range(12)] == [200] * 12
    assert len(upstream.requests) == 1
    small = server.make("bob", usd=Decimal("0.0004"))  # for 18 of 30 calls
    assert [server.ask(small, body=ASK).status_code for _ in range(30)] == [200] * 30
    assert len(upstream.requests) == 2


def test_64_equal_requests_at_once_are_one_upstream_request(tmp_path):
    table = {"store": str(tmp_path / "cache.sqlite3"), "enabled": True}
    with NumberedUpstream(delay_s=0.5) as slow, Served(upstream_settings(slow, cache=table)) as served:
        with ThreadPoolExecutor(64) as threads:
            answers = list(threads.map(lambda _: ask(served, headers={}).content, range(64)))
        assert len(set(answers)) == len(slow.requests) == 1


def test_the_official_client_uses_the_header(open_server, upstream):
    served = open_server()
    with openai.OpenAI(base_url=served.base_url, api_key="any", default_headers=ON) as client:
        first, second = [client.chat.completions.create(**ASK) for _ in range(2)]
        assert first == second
        raw = client.chat.completions.with_raw_response.create(**ASK)
        assert raw.headers["x-specclient-cache"] == "hit"
        streams = [list(client.responses.create(**_RESPONSE, stream=True)) for _ in range(2)]
        assert streams[0] == streams[1]
    assert len(upstream.requests) == 2


_RESPONSE: dict[str, Any] = {"model": "mine/m", "input": "x", "temperature": 0}


def test_other_apis_ask_by_the_same_header(open_server, upstream):
    served = open_server()

    def post(path: str, body: Any) -> httpx.Response:
        return httpx.post(served.url + path, json=body, headers=ON, timeout=60, trust_env=False)

    message = {"role": "user", "content": "hi"}
    requests = {
        "/v1/messages": {"model": "mine/m", "max_tokens": 9, "temperature": 0, "messages": [message]},
        "/v1beta/models/mine/m:generateContent": {
            "contents": [{"parts": [{"text": "hi"}]}],
            "generationConfig": {"temperature": 0},
        },
        "/api/chat": {
            "model": "mine/m",
            "messages": [message],
            "stream": False,
            "options": {"temperature": 0},
        },
    }
    for number, (path, body) in enumerate(requests.items(), 1):
        answers = [post(path, body) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200], answers[0].text
        assert answers[1].headers["x-specclient-cache"] == "hit"
        assert f"answer {number}" in answers[0].text
        assert f"answer {number}" in answers[1].text
    assert len(upstream.requests) == len(requests)


@pytest.mark.parametrize("kind", ["postgresql", "redis"])
def test_servers_share_answers_in_a_database(kind, upstream, tmp_path, request):
    with ExitStack() as stack:
        if kind == "redis":
            store = stack.enter_context(RedisServer(tmp_path)).url.get_secret_value()
        else:
            postgres: PostgresServer = request.getfixturevalue("postgres")
            store = postgres.url_of(postgres.create_database())
        table = {"store": store, "enabled": True}
        servers = [stack.enter_context(Served(upstream_settings(upstream, cache=table))) for _ in range(2)]
        answers = [ask(served, headers={}) for served in servers * 2]
        assert len({answer.content for answer in answers}) == 1
        streams = [ask(served, headers={}, stream=True) for served in servers * 2]
        assert len({answer.content for answer in streams}) == 1
    assert len(upstream.requests) == 2


def test_a_server_with_an_invalid_store_does_not_start(upstream):
    settings = upstream_settings(upstream, cache={"store": "mysql://me:hunter2@host/db"})
    with pytest.raises(ConfigurationError, match=r"cache\.store .*neither a path nor a URL") as refused:
        app_of(ServerPlan(settings=settings))
    assert "hunter2" not in str(refused.value)


def test_a_server_goes_on_when_redis_stops(upstream, tmp_path, caplog):
    with RedisServer(tmp_path) as redis:
        table = {"store": redis.url.get_secret_value(), "enabled": True}
        with Served(upstream_settings(upstream, cache=table)) as served:
            assert [ask(served, headers={}).json()["id"] for _ in range(2)] == ["chat-1"] * 2
            redis.stop()
            assert [ask(served, headers={}).json()["id"] for _ in range(2)] == ["chat-2", "chat-3"]
    (warning,) = [r.getMessage() for r in caplog.records if "response cache" in r.getMessage()]
    assert "open-sesame" not in warning

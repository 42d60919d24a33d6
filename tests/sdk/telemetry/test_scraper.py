"""Counter scraping: the metrics page is read before and after each call, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from loopback_server import OpenAIServer, events, reply

from specclient import OpenAI, Provider, Speculation
from specclient.errors import ConfigurationError

ASK: Any = [{"role": "user", "content": "hi"}]
ANSWER = {"id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": {"content": "a"}}]}
CHUNK = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
STREAM = events(b"data: %b\n\n" % json.dumps(CHUNK).encode(), b"data: [DONE]\n\n")
SEEN = {"drafted": 9, "accepted": 6, "steps": 3, "source": "metrics delta"}


def metrics(rounds: int) -> Any:
    lines = [
        f'vllm:spec_decode_num_{name}_total{{engine="0",model_name="m"}} {float(value)}'
        for name, value in (
            ("drafts", rounds),
            ("draft_tokens", 3 * rounds),
            ("accepted_tokens", 2 * rounds),
        )
    ]
    return reply(200, "\n".join(lines).encode(), {"content-type": "text/plain; version=0.0.4"})


@pytest.fixture
def client(openai_server: OpenAIServer) -> Iterator[OpenAI]:
    mine = Provider(name="mine", base_url=openai_server.base_url, key="sk-metered", metrics=True)
    with OpenAI(providers=[mine], max_retries=0) as made:
        yield made


def figures(speculation: Speculation | None) -> dict[str, Any]:
    assert speculation is not None
    return {name: getattr(speculation, name) for name in SEEN}


def test_an_unstreamed_call_gets_the_counters_delta(openai_server: OpenAIServer, client: OpenAI) -> None:
    openai_server.script(metrics(4), reply(200, ANSWER), metrics(7))
    answer = client.chat.completions.create(model="mine/m", messages=ASK)
    assert figures(answer.meta.speculation) == SEEN
    before, _, after = openai_server.requests
    assert (before.method, before.path, after.path) == ("GET", "/metrics", "/metrics")
    assert before.headers["authorization"] == "Bearer sk-metered"


def test_a_stream_gets_the_counters_delta(openai_server: OpenAIServer, client: OpenAI) -> None:
    openai_server.script(metrics(4), STREAM, metrics(7))
    stream = client.chat.completions.create(model="mine/m", messages=ASK, stream=True)
    assert len(list(stream)) == 1
    assert figures(stream.meta.speculation) == SEEN


def test_a_raw_stream_gets_the_counters_delta(openai_server: OpenAIServer, client: OpenAI) -> None:
    openai_server.script(metrics(4), STREAM, metrics(7))
    create = client.chat.completions.with_streaming_response.create
    with create(model="mine/m", messages=ASK, stream=True) as response:
        response.read()
    (row,) = client.core.shared.ledger.rows()
    assert (row.drafted, row.accepted, row.steps) == (9, 6, 3)


def test_the_responses_own_telemetry_takes_precedence(openai_server: OpenAIServer, client: OpenAI) -> None:
    answer = {**ANSWER, "timings": {"draft_n": 5, "draft_n_accepted": 4}}
    openai_server.script(metrics(4), reply(200, answer), metrics(7))
    speculation = client.chat.completions.create(model="mine/m", messages=ASK).meta.speculation
    assert speculation is not None
    assert (speculation.drafted, speculation.accepted, speculation.source) == (5, 4, "llamacpp")


@pytest.mark.parametrize("broken", [(0, 1), (1, 0), (0, 0)])
def test_unreadable_counters_do_not_break_a_call(
    openai_server: OpenAIServer, client: OpenAI, broken: tuple[int, int]
) -> None:
    gone = reply(500, {"error": {"message": "no metrics"}})
    before, after = (metrics(4) if good else gone for good in broken)
    openai_server.script(before, reply(200, ANSWER), *([after] if broken[0] else []))
    answer = client.chat.completions.create(model="mine/m", messages=ASK)
    assert answer.choices[0].message.content == "a"
    assert answer.meta.speculation is None
    assert answer.meta.attempts == 1


def test_counters_are_not_read_unless_configured(openai_server: OpenAIServer) -> None:
    with OpenAI(providers=[Provider(name="mine", base_url=openai_server.base_url)]) as client:
        openai_server.script(reply(200, ANSWER))
        client.chat.completions.create(model="mine/m", messages=ASK)
    assert [request.method for request in openai_server.requests] == ["POST"]


def test_the_key_is_not_sent_to_another_metrics_server(openai_server: OpenAIServer) -> None:
    with OpenAIServer() as metrics_server:
        mine = Provider(
            name="mine",
            base_url=openai_server.base_url,
            key="sk-metered",
            headers={"x-proxy": "sk-other"},
            metrics=f"{metrics_server.url}/metrics",
        )
        with OpenAI(providers=[mine]) as client:
            openai_server.script(reply(200, ANSWER))
            metrics_server.script(metrics(4), metrics(7))
            answer = client.chat.completions.create(model="mine/m", messages=ASK)
        assert figures(answer.meta.speculation) == SEEN
        assert not [
            header
            for asked in metrics_server.requests
            for header in asked.headers.values()
            if "sk-" in header
        ]


def test_counters_may_have_their_own_url(openai_server: OpenAIServer) -> None:
    url = f"{openai_server.url}/prometheus/metrics"
    mine = Provider(name="mine", base_url=openai_server.base_url, metrics=url)
    with OpenAI(providers=[mine]) as client:
        openai_server.script(metrics(4), reply(200, ANSWER), metrics(7))
        client.chat.completions.create(model="mine/m", messages=ASK)
    assert openai_server.requests[0].path == "/prometheus/metrics"
    with pytest.raises(ConfigurationError, match="metrics is 'metrics'; it must be true or a URL"):
        Provider(name="mine", metrics="metrics")

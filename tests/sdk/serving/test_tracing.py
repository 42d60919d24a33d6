"""Tracing: calls and served requests are OpenTelemetry spans of one trace from client to provider."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import openai
import pytest
from gateway_server import Served, upstream_settings, wait_until
from loopback_server import OpenAIServer, broken_stream, reply
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import specclient
from specclient import OpenAI

Connect = Callable[[str], openai.OpenAI]
Spans = Callable[[], Sequence[ReadableSpan]]
ASK: Any = {"messages": [{"role": "user", "content": "a secret question"}]}
CHUNK = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    """Collect spans in memory; call the fixture to get those that have ended."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter.get_finished_spans
    provider.shutdown()


@pytest.fixture
def client(openai_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAI]:
    monkeypatch.setenv("SPECCLIENT_LEDGER", "off")
    with OpenAI(base_url=openai_server.base_url, api_key="sk-secret-key", max_retries=0) as made:
        yield made


def parts(header: str) -> tuple[int, int]:
    """Return a traceparent header's trace and span ids."""
    _, trace_id, span_id, _ = header.split("-")
    return int(trace_id, 16), int(span_id, 16)


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def test_numbers_too_large_for_an_attribute_are_omitted(
    connect: Connect, gateway: Served, spans: Spans
) -> None:
    asked: Any = {"temperature": 10**400, "seed": 10**30, "top_p": 0.5}
    connect(gateway.base_url).chat.completions.create(model="m-large", **ASK, **asked)
    assert wait_until(lambda: len(spans()) == 2)
    attributes = spans()[0].attributes or {}
    assert [attributes.get(f"gen_ai.request.{name}") for name in asked] == [None, None, 0.5]


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_the_cache_answers_is_a_span(
    client: OpenAI, openai_server: OpenAIServer, spans: Spans, stream: bool
) -> None:
    for _ in range(2):
        answer = client.chat.completions.create(
            model="m-large", **ASK, temperature=0, cache=True, stream=stream
        )
        if stream:
            list(answer)
    assert len(openai_server.requests) == 1
    made, hit = [span.attributes or {} for span in spans()]
    assert "specclient.cached" not in made
    assert hit["specclient.cached"] is True
    assert hit["specclient.call.status"] == "ok"
    assert (hit["gen_ai.usage.input_tokens"], hit["specclient.cost.usd"]) == (0, 0.0)
    assert spans()[1].name == spans()[0].name == "chat m-large"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_is_a_span_without_its_content(
    client: OpenAI, openai_server: OpenAIServer, spans: Spans, stream: bool
) -> None:
    asked = {**ASK, "temperature": 0.5, "max_tokens": 9, "stop": ["secret stop"], "seed": 3}
    with trace.get_tracer("test").start_as_current_span("outer") as outer:
        answer = client.chat.completions.create(model="m-large", stream=stream, **asked)
        meta = list(answer) and answer.meta if stream else answer.meta  # type: ignore[call-overload]
    call, parent = spans()
    assert (call.name, call.kind) == ("chat m-large", SpanKind.CLIENT)
    assert call.parent == outer.get_span_context() == parent.context
    found = dict(call.attributes or {})
    assert found == found | {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m-large",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.seed": 3,
        "gen_ai.response.model": meta.served_model,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": meta.usage.prompt,
        "gen_ai.usage.output_tokens": meta.usage.completion,
        "server.address": "127.0.0.1",
        "specclient.call.id": meta.id,
        "specclient.call.status": "ok",
    }
    assert found["gen_ai.response.id"]
    assert found.get("gen_ai.request.stream") is (True if stream else None)
    assert ("gen_ai.response.time_to_first_chunk" in found) is stream
    assert call.status.status_code is StatusCode.UNSET
    (sent,) = openai_server.requests
    assert parts(sent.headers["traceparent"]) == ids(call)
    text = call.to_json()
    assert not [word for word in ("secret", "sk-", "quick brown") if word in text]


def test_errors_and_abandoned_streams_set_the_span_status(
    client: OpenAI, openai_server: OpenAIServer, spans: Spans
) -> None:
    openai_server.script(
        reply(429, {"error": {"message": "slow", "type": "t", "param": None, "code": None}}),
        broken_stream(CHUNK),
        broken_stream(CHUNK, how="hang"),
    )
    with pytest.raises(specclient.RateLimitError):
        client.chat.completions.create(model="m-large", **ASK)
    with pytest.raises(specclient.APIConnectionError):
        list(client.chat.completions.create(model="m-large", stream=True, **ASK))
    with client.chat.completions.create(model="m-large", stream=True, **ASK) as stream:
        next(iter(stream))
    refused, broken, left = spans()
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "429"
    assert (refused.status.status_code, refused.status.description) == (StatusCode.ERROR, "RateLimitError")
    assert broken.status.status_code is StatusCode.ERROR
    assert left.attributes is not None
    assert left.attributes["specclient.call.status"] == "cancelled"
    assert left.status.status_code is StatusCode.UNSET


def test_other_operations_have_their_span_names(
    client: OpenAI, openai_server: OpenAIServer, spans: Spans
) -> None:
    vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
    usage = {"prompt_tokens": 1, "total_tokens": 1}
    answer = {"object": "list", "model": "m-large", "data": [vector], "usage": usage}
    openai_server.script(reply(200, answer))
    client.embeddings.create(model="m-large", input="x")
    client.completions.create(model="m-large", prompt="x")
    client.models.list()
    assert [span.name for span in spans()] == ["embeddings m-large", "text_completion m-large"]


def test_a_served_request_continues_the_clients_trace(
    connect: Connect, openai_server: OpenAIServer, spans: Spans
) -> None:
    with Served(upstream_settings(openai_server)) as served:
        client = connect(served.base_url)
        headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
        list(client.chat.completions.create(model="mine/m-large", stream=True, extra_headers=headers, **ASK))
        with pytest.raises(openai.NotFoundError):
            client.get("/nothing/here", cast_to=object)
    assert wait_until(lambda: len(spans()) == 3)
    call, server, missing = sorted(spans(), key=lambda span: span.name.startswith(("GET", "POST")))
    assert (server.name, server.kind) == ("POST /v1/chat/completions", SpanKind.SERVER)
    assert server.parent is not None
    assert (server.parent.trace_id, server.parent.span_id) == parts(PARENT)
    assert call.parent == server.context
    (sent,) = openai_server.requests
    assert parts(sent.headers["traceparent"]) == ids(call)
    assert sent.headers["tracestate"] == "vendor=1"
    found = dict(server.attributes or {})
    assert found == found | {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
    }
    assert missing.name == "GET"
    assert missing.attributes is not None
    assert missing.attributes["http.response.status_code"] == 404
    assert "http.route" not in missing.attributes


def test_an_engines_speculation_is_in_the_span(connect: Connect, local_server: Served, spans: Spans) -> None:
    connect(local_server.base_url).completions.create(model="local/demo", prompt="def f", max_tokens=24)
    assert wait_until(lambda: len(spans()) == 2)  # a request's span ends when its response is sent
    call, _ = spans()
    found = dict(call.attributes or {})
    assert call.kind is SpanKind.INTERNAL
    assert found["gen_ai.provider.name"] == "local"
    accepted, drafted = (found[f"specclient.speculation.{name}"] for name in ("accepted", "drafted"))
    assert 0 <= accepted <= drafted  # type: ignore[operator]
    assert "server.address" not in found


WITHOUT_OPENTELEMETRY = """
import sys
for name in list(sys.modules):
    assert not name.startswith("opentelemetry"), name
sys.modules["opentelemetry"] = None  # as if it were not installed
from specclient import OpenAI
with OpenAI(base_url=sys.argv[1], api_key="k") as client:
    asked = {"model": "m-large", "messages": [{"role": "user", "content": "x"}]}
    client.chat.completions.create(**asked, extra_headers={"traceparent": sys.argv[2]})
assert "specclient.call.tracing" not in sys.modules
"""


def test_calls_work_without_opentelemetry_installed(openai_server: OpenAIServer) -> None:
    env = {**os.environ, "SPECCLIENT_LEDGER": "off"}
    command = [sys.executable, "-W", "error", "-c", WITHOUT_OPENTELEMETRY, openai_server.base_url, PARENT]
    subprocess.run(command, env=env, check=True, timeout=60)
    assert openai_server.requests[0].headers["traceparent"] == PARENT


def test_a_gateway_without_tracing_forwards_the_traceparent(
    connect: Connect, gateway: Served, openai_server: OpenAIServer
) -> None:
    connect(gateway.base_url).chat.completions.create(
        model="mine/m-large", extra_headers={"traceparent": PARENT}, **ASK
    )
    (sent,) = openai_server.requests
    assert sent.headers["traceparent"] == PARENT
    assert json.loads(sent.body)["model"] == "m-large"

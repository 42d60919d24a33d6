"""Calls of Vertex AI through the client: usage and prices, streams, errors, retries, routing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import anthropic_bodies
import pytest
from gemini_bodies import BODIES
from google.oauth2.credentials import Credentials
from google_cloud import vertex_settings
from loopback_server import Behaviour, OpenAIServer, broken_stream, events, reply

from specclient import AsyncOpenAI, Provider, Settings
from specclient.errors import (
    APIConnectionError,
    APIResponseValidationError,
    BadRequestError,
    ConfigurationError,
    InternalServerError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitError,
)
from specclient.types.usage import Usage

pytestmark = pytest.mark.anyio

ASK: Any = [{"role": "user", "content": "hi"}]
GEMINI = "vertex/gemini-2.5-flash"
CLAUDE = "vertex/claude-sonnet-4-5@20250929"


@pytest.fixture
async def client(openai_server: OpenAIServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(config=vertex_settings(openai_server), max_retries=0) as made:
        yield made


def _gemini(name: str = "text", *, served: str = "gemini-2.5-flash", **usage: Any) -> Behaviour:
    body = json.loads((BODIES / f"{name}.json").read_bytes())
    body["modelVersion"] = served
    body["usageMetadata"] = {**body.get("usageMetadata", {}), **usage}
    return reply(200, body)


def _claude(name: str = "text") -> Behaviour:
    return reply(200, anthropic_bodies.body(f"{name}.json"), {"content-type": "application/json"})


def _fault(status: int, name: str, message: str, *details: Any) -> Behaviour:
    return reply(
        status, {"error": {"code": status, "message": message, "status": name, "details": list(details)}}
    )


async def _cost(server: OpenAIServer, model: str, location: str, answer: Behaviour) -> Any:
    server.script(answer)
    async with AsyncOpenAI(config=vertex_settings(server, location=location)) as client:
        found = await client.chat.completions.create(model=model, messages=ASK)
    return found.meta.cost


async def test_a_chat_with_gemini_and_its_record(openai_server: OpenAIServer, client: AsyncOpenAI) -> None:
    details = [{"modality": "TEXT", "tokenCount": 3}, {"modality": "AUDIO", "tokenCount": 6}]
    openai_server.script(
        _gemini(
            trafficType="ON_DEMAND", thoughtsTokenCount=5, totalTokenCount=26, promptTokensDetails=details
        )
    )
    answer = await client.chat.completions.create(model=GEMINI, messages=ASK)
    meta = answer.meta
    assert meta.usage == Usage(
        prompt=9, completion=17, cached=4, reasoning=5, audio_prompt=6, traffic="ON_DEMAND"
    )
    assert answer.usage is not None
    assert (answer.usage.model_extra or {})["trafficType"] == "ON_DEMAND"
    assert (meta.provider, meta.served_model, meta.status) == ("vertex", "gemini-2.5-flash", "ok")
    (row,) = client.ledger.rows()
    assert (row.route, row.provider, row.prompt_tokens, row.completion_tokens) == (GEMINI, "vertex", 9, 17)


async def test_a_chat_with_claude_and_its_record(openai_server: OpenAIServer, client: AsyncOpenAI) -> None:
    openai_server.script(_claude("tools"))
    answer = await client.chat.completions.create(model=CLAUDE, messages=ASK)
    (sent,) = openai_server.requests
    assert sent.path == (
        "/v1/projects/p-1/locations/europe-west4/publishers/anthropic/models/claude-sonnet-4-5@20250929"
        ":rawPredict"
    )
    assert sent.json["max_tokens"] == 64_000
    assert answer.choices[0].message.tool_calls
    assert (answer.meta.provider, answer.meta.route.chosen) == ("vertex", CLAUDE)


async def test_prices_follow_from_location_and_traffic(openai_server: OpenAIServer) -> None:
    counts = {"promptTokenCount": 1000, "candidatesTokenCount": 1000, "cachedContentTokenCount": 0}
    usage: Any = {"served": "gemini-3.5-flash", **counts}
    text = _gemini(**usage)
    standard = await _cost(openai_server, "vertex/gemini-3.5-flash", "global", text)
    assert standard.total == Decimal("0.0105")  # 1.50 and 9.00 dollars per million
    assert "google/gemini-3.5-flash" in standard.source
    regional = await _cost(openai_server, "vertex/gemini-3.5-flash", "europe-west4", text)
    assert regional.total == standard.total * Decimal("1.1")
    assert "×1.1 outside the location global" in regional.source
    for traffic, factor in (("ON_DEMAND_PRIORITY", "1.8"), ("ON_DEMAND_FLEX", "0.5")):
        found = await _cost(
            openai_server, "vertex/gemini-3.5-flash", "global", _gemini(**usage, trafficType=traffic)
        )
        assert found.total == standard.total * Decimal(factor)
    claude = await _cost(openai_server, CLAUDE, "global", _claude())
    dearer = await _cost(openai_server, CLAUDE, "us", _claude())
    assert claude.total
    assert dearer.total == claude.total * Decimal("1.1")


async def test_what_has_no_published_price_is_unpriced(openai_server: OpenAIServer) -> None:
    reserved = _gemini(served="gemini-3.5-flash", trafficType="PROVISIONED_THROUGHPUT")
    found = await _cost(openai_server, "vertex/gemini-3.5-flash", "global", reserved)
    assert (found.total, found.source) == (
        None, "provisioned throughput is paid by its reservation, not by tokens"
    )  # fmt: skip
    answer = _gemini(served="gemini-3-pro-preview")
    found = await _cost(openai_server, "vertex/gemini-3-pro-preview", "us-east5", answer)
    assert found.total is None
    assert 'set [prices."vertex/gemini-3-pro-preview"]' in found.source


@pytest.mark.parametrize(
    ("model", "whole", "streamed"),
    [
        (
            GEMINI,
            _gemini("thinking_tools", served="gemini-3-flash-preview"),
            events((BODIES / "thinking_tools.sse").read_bytes()),
        ),
        (CLAUDE, _claude("thinking"), events(anthropic_bodies.body("thinking.sse"))),
    ],
)
async def test_a_stream_equals_the_whole_answer(
    openai_server: OpenAIServer, client: AsyncOpenAI, model: str, whole: Behaviour, streamed: Behaviour
) -> None:
    openai_server.script(whole, streamed)
    answer = await client.chat.completions.create(model=model, messages=ASK)
    stream = await client.chat.completions.create(model=model, messages=ASK, stream=True)
    deltas = [choice.delta async for chunk in stream for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == answer.choices[0].message.content
    assert (stream.meta.usage, stream.meta.cost, stream.meta.status) == (
        answer.meta.usage,
        answer.meta.cost,
        "ok",
    )
    verb = "streamGenerateContent" if model == GEMINI else "streamRawPredict"
    assert openai_server.requests[1].path.endswith(f":{verb}")
    assert openai_server.requests[1].query == ("alt=sse" if model == GEMINI else "")


@pytest.mark.parametrize(
    ("model", "bytes_"),
    [
        (GEMINI, (BODIES / "cut.sse").read_bytes()),
        (CLAUDE, anthropic_bodies.body("text.sse").partition(b"event: content_block_stop")[0]),
    ],
)
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_truncated_stream_is_one_error_with_the_text_so_far(
    openai_server: OpenAIServer, client: AsyncOpenAI, model: str, bytes_: bytes, how: str
) -> None:
    openai_server.script(broken_stream(bytes_, how=how))
    stream = await client.chat.completions.create(model=model, messages=ASK, stream=True)
    with pytest.raises(APIConnectionError) as cut:
        [chunk async for chunk in stream]
    assert cut.value.partial is not None
    assert cut.value.partial.startswith("The quick")
    assert stream.meta.status == "error"


@pytest.mark.parametrize(
    ("model", "answer", "kind", "words"),
    [
        (GEMINI, _fault(400, "INVALID_ARGUMENT", "bad"), BadRequestError, "bad"),
        (GEMINI, _fault(403, "PERMISSION_DENIED", "denied on p-1"), PermissionDeniedError, "denied on p-1"),
        (GEMINI, reply(404, b"<html>no such model</html>"), NotFoundError, "404"),
        (GEMINI, reply(200, b"[]"), APIResponseValidationError, "does not match the API"),
        (CLAUDE, _fault(404, "NOT_FOUND", "Publisher Model was not found"), NotFoundError, "Publisher Model"),
        (CLAUDE, _fault(503, "UNAVAILABLE", "later"), InternalServerError, "later"),
        (CLAUDE, reply(200, {"type": "message", "content": 1}), APIResponseValidationError, "TypeError"),
    ],
)
async def test_answers_that_are_errors_raise_the_class_of_their_status(
    openai_server: OpenAIServer,
    client: AsyncOpenAI,
    model: str,
    answer: Behaviour,
    kind: type[Exception],
    words: str,
) -> None:
    openai_server.script(answer)
    with pytest.raises(kind, match=words):
        await client.chat.completions.create(model=model, messages=ASK)


async def test_a_rate_limit_is_retried_after_the_delay_of_the_answer(openai_server: OpenAIServer) -> None:
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"}
    openai_server.script(_fault(429, "RESOURCE_EXHAUSTED", "slow down", delay), _gemini())
    async with AsyncOpenAI(config=vertex_settings(openai_server), max_retries=1) as client:
        answer = await client.chat.completions.create(model=GEMINI, messages=ASK)
        assert answer.meta.attempts == 2
        openai_server.script(*[_fault(429, "RESOURCE_EXHAUSTED", "slow down", delay)] * 2)
        with pytest.raises(RateLimitError, match="slow down"):
            await client.chat.completions.create(model=CLAUDE, messages=ASK)


async def test_blocks_without_an_equivalent_are_kept(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    block = {"type": "hologram", "depth": 3}
    message = json.loads(anthropic_bodies.body("text.json"))
    openai_server.script(reply(200, {**message, "content": [block, {"type": "text", "text": "ok"}]}))
    answer = await client.chat.completions.create(model=CLAUDE, messages=ASK)
    assert answer.choices[0].message.content == "ok"
    assert block in (answer.choices[0].message.model_extra or {})["content_blocks"]


@pytest.mark.parametrize(
    ("table", "model", "kind", "words"),
    [
        (
            {"location": "moon/base"},
            GEMINI,
            ConfigurationError,
            "location is 'moon/base'; it must be 'global'",
        ),
        ({"project": "My Project"}, CLAUDE, ConfigurationError, "project is 'My Project'; it must be the id"),
        ({"project": None}, GEMINI, ConfigurationError, "an access token needs a project: set project under"),
        (
            {"api_key": "AQ.k", "project": None, "key_header": "x-goog-api-key"},
            CLAUDE,
            ConfigurationError,
            "API key alone .express mode., which serves Google's models",
        ),
        ({}, "vertex/meta/llama-4", NotFoundError, "define a provider with the base_url of"),
        ({}, "vertex/../../secrets", NotFoundError, "are served, not"),
    ],
)
async def test_invalid_settings_and_models_are_refused_before_sending(
    openai_server: OpenAIServer, table: dict[str, Any], model: str, kind: type[Exception], words: str
) -> None:
    async with AsyncOpenAI(config=vertex_settings(openai_server, **table)) as client:
        with pytest.raises(kind, match=words):
            await client.chat.completions.create(model=model, messages=ASK)
    assert not openai_server.requests


async def test_a_routed_call_may_choose_vertex_and_resume_there(openai_server: OpenAIServer) -> None:
    settings = vertex_settings(openai_server).model_copy(update={"candidates": (GEMINI, CLAUDE)})
    openai_server.script(_gemini())
    async with AsyncOpenAI(config=settings) as client:
        answer = await client.chat.completions.create(model="auto", messages=ASK)
        lacking = Settings.model_validate({"candidates": ["vertex/gemini-2.5-flash"]})
        assert answer.meta.route.chosen == GEMINI  # it costs less
    async with AsyncOpenAI(config=lacking) as client:
        endpoint = client.pipeline.destinations.endpoints["vertex"]
        assert "no Google Cloud project or credentials: set GOOGLE_CLOUD_PROJECT" in str(endpoint.lacks)


async def test_tokens_of_a_function_and_of_credentials_in_the_program(openai_server: OpenAIServer) -> None:
    fresh = iter(["ya29.first", "ya29.second"])
    own = Credentials("ya29.object", quota_project_id="payer")  # type: ignore[no-untyped-call]
    place: Any = {"base_url": openai_server.url, "project": "p-1"}
    providers = [
        Provider(name="vertex", key=lambda: next(fresh), key_header="authorization", **place),
        Provider(name="other", dialect="vertex", credentials=own, **place),
    ]
    openai_server.script(_fault(503, "UNAVAILABLE", "later"), _gemini(), _claude())
    async with AsyncOpenAI(config=Settings(), providers=providers, max_retries=1) as client:
        await client.chat.completions.create(model=GEMINI, messages=ASK)
        await client.chat.completions.create(model="other/claude-opus-5", messages=ASK)
    sent = [request.headers for request in openai_server.requests]
    tokens = ["ya29.first", "ya29.second", "ya29.object"]
    assert [headers["authorization"] for headers in sent] == [f"Bearer {token}" for token in tokens]
    assert [headers.get("x-goog-user-project") for headers in sent] == [None, None, "payer"]


async def test_pings_of_vertex_in_a_stream_are_passed_over(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    ping = b'event: vertex_event\ndata: {"type": "ping"}\n\n'
    openai_server.script(events(ping, anthropic_bodies.body("text.sse"), ping))
    stream = await client.chat.completions.create(model=CLAUDE, messages=ASK, stream=True)
    text = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
    assert "".join(text).startswith("The quick")
    assert stream.meta.status == "ok"


async def test_another_name_may_be_vertex_in_another_location(openai_server: OpenAIServer) -> None:
    table = {
        "dialect": "vertex", "location": "eu", "project": "p-2", "api_key": "ya29.other",
        "key_header": "authorization",
    }  # fmt: skip
    async with AsyncOpenAI(config=Settings.model_validate({"providers": {"vertex-eu": table}})) as client:
        endpoint = client.pipeline.destinations.endpoints["vertex-eu"]
    assert endpoint.base_url == "https://aiplatform.eu.rep.googleapis.com"
    assert (endpoint.price_provider, endpoint.lacks) == ("vertex-regional", None)
    table["base_url"] = openai_server.url
    openai_server.script(_claude())
    async with AsyncOpenAI(config=Settings.model_validate({"providers": {"vertex-eu": table}})) as client:
        await client.chat.completions.create(model="vertex-eu/claude-opus-5", messages=ASK)
    assert openai_server.requests[0].path.startswith("/v1/projects/p-2/locations/eu/publishers/anthropic/")

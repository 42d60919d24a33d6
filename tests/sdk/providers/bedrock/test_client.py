"""Chats with Bedrock through the sync and async clients: records, prices, retries and errors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from bedrock_bodies import (
    BEARER,
    ENVIRONMENT,
    MODEL,
    failure,
    frame,
    frames,
    is_signed,
    sample,
    settings,
    streamed,
    whole,
)
from loopback_server import OpenAIServer, reply

from specclient import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    APIStatusError,
    AsyncOpenAI,
    BadRequestError,
    ConfigurationError,
    InternalServerError,
    NotFoundError,
    OpenAI,
    PermissionDeniedError,
    RateLimitError,
)

pytestmark = pytest.mark.anyio

ROUTE = f"bedrock/{MODEL}"
ASK: dict[str, Any] = {"model": ROUTE, "messages": [{"role": "user", "content": "Say something."}]}
TEXT = "The quick brown fox jumps."
ARN = "arn:aws:bedrock:us-east-1:123456789012:"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


async def test_a_stream_has_the_text_record_and_cost_of_the_whole_answer(openai_server: OpenAIServer) -> None:
    openai_server.script(whole("text"), streamed(frames("text")))
    async with AsyncOpenAI(config=settings(openai_server)) as client:
        answer = await client.chat.completions.create(**ASK)
        stream = await client.chat.completions.create(**ASK, stream=True)
        found = [chunk async for chunk in stream]
        rows = client.ledger.rows()
    assert answer.choices[0].message.content == TEXT
    assert "".join(chunk.choices[0].delta.content or "" for chunk in found) == TEXT
    assert {chunk.model for chunk in found} == {answer.model} == {MODEL}
    assert all(chunk.choices for chunk in found), "the usage chunk is yielded only if requested"
    for call in (answer.meta, stream.meta):
        assert (call.usage.prompt, call.usage.cached, call.usage.completion) == (2_325, 2_000, 12)
        assert not call.usage.estimated
        assert (call.status, call.served_model, call.request_id) == ("ok", MODEL, "req-1")
        assert call.speculation is None
        assert call.counts == {"tool_calls": 0}
    assert stream.meta.cost == answer.meta.cost
    # 125 fresh, 2,000 read, 50 written for 5 minutes and 150 for an hour, 12 out
    dollars = 125 * Decimal("3.3") + 2_000 * Decimal("0.33") + 50 * Decimal("4.125") + 150 * Decimal("6.6")
    assert answer.meta.cost.total == (dollars + 12 * Decimal("16.5")) / 1_000_000
    assert stream.meta.ttft_s is not None
    assert [row.cost_nano for row in rows] == [answer.meta.cost.nano] * 2


def test_the_synchronous_client_reads_bodies_too(openai_server: OpenAIServer) -> None:
    openai_server.script(streamed(frames("text")), streamed(frames("tools")), whole("text"))
    with OpenAI(config=settings(openai_server)) as client:
        with client.chat.completions.create(
            **ASK, stream=True, stream_options={"include_usage": True}
        ) as stream:
            found = list(stream)
        with client.chat.completions.with_streaming_response.create(**ASK, stream=True) as body:
            chunks = list(body.parse())
        raw = client.chat.completions.with_raw_response.create(**ASK)
        rows = client.ledger.rows()
    assert found[-1].usage is not None
    assert found[-1].usage.prompt_tokens == 2_325
    assert found[-1].metrics == {"latencyMs": 412}
    assert chunks[-1].usage.total_tokens == 340
    assert raw.parse().choices[0].message.content == TEXT
    assert raw.request_id == "req-1"
    assert [row.prompt_tokens for row in rows] == [2_325, 300, 2_325]


async def test_an_answer_is_continued_with_its_reasoning_and_results_of_its_tools(
    openai_server: OpenAIServer,
) -> None:
    openai_server.script(streamed(frames("thinking")), whole("tools"), whole("text"))
    async with AsyncOpenAI(config=settings(openai_server)) as client:
        async with client.chat.completions.stream(**ASK) as stream:
            thought = (await stream.get_final_completion()).choices[0].message
        messages: list[Any] = [*ASK["messages"], thought, *ASK["messages"]]
        called = (await client.chat.completions.create(model=ROUTE, messages=messages)).choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "18"} for call in called.tool_calls or ()
        ]
        await client.chat.completions.create(model=ROUTE, messages=[*messages, called, *results])
    turns = openai_server.requests[2].json["messages"]
    assert turns[1]["content"] == sample("thinking")["answer"]["output"]["message"]["content"]
    assert turns[3]["content"] == sample("tools")["answer"]["output"]["message"]["content"]
    assert [block["toolResult"]["toolUseId"] for block in turns[4]["content"]] == ["tooluse_1", "tooluse_2"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_routers_choice_is_the_served_model_and_has_its_price(
    openai_server: OpenAIServer, stream: bool
) -> None:
    openai_server.script(streamed(frames("router")) if stream else whole("router"))
    async with AsyncOpenAI(config=settings(openai_server)) as client:
        model = f"bedrock/{ARN}default-prompt-router/amazon.nova:1"
        answer = await client.chat.completions.create(model=model, messages=ASK["messages"], stream=stream)
        if stream:
            _ = [chunk async for chunk in answer]
    call = answer.meta
    assert call.served_model == f"{ARN}inference-profile/us.amazon.nova-pro-v1:0"
    assert call.cost.total == (1_000 * Decimal("0.8") + 100 * Decimal("3.2")) / 1_000_000


RETRIED = {
    "ThrottlingException": (429, RateLimitError),
    "ServiceQuotaExceededException": (400, RateLimitError),
    "ModelNotReadyException": (429, RateLimitError),
    "ModelTimeoutException": (408, APIStatusError),
    "ServiceUnavailableException": (503, InternalServerError),
    "InternalServerException": (500, InternalServerError),
}
RAISED = {
    "ValidationException": (400, BadRequestError),
    "AccessDeniedException": (403, PermissionDeniedError),
    "UnrecognizedClientException": (403, PermissionDeniedError),
    "ResourceNotFoundException": (404, NotFoundError),
    "ModelErrorException": (424, APIStatusError),
}


@pytest.mark.parametrize("name", [*RETRIED, *RAISED])
def test_errors_have_the_class_of_their_type_and_temporary_ones_are_retried(
    openai_server: OpenAIServer, name: str
) -> None:
    status, expected = {**RETRIED, **RAISED}[name]
    attempts = 2 if name in RETRIED else 1
    openai_server.script(*[failure(status, name, "Not now.")] * attempts)
    with (
        OpenAI(config=settings(openai_server, pacing=False), max_retries=1) as client,
        pytest.raises(expected, match="Not now") as caught,
    ):
        client.chat.completions.create(**ASK)
    assert type(caught.value) is expected
    assert (caught.value.type, caught.value.request_id) == (name, "req-1")
    assert len(openai_server.requests) == caught.value.attempts == attempts


async def test_an_exception_in_a_stream_keeps_the_text_before_it(openai_server: OpenAIServer) -> None:
    events = sample("text")["events"][:3]
    data = b"".join(frame(*event) for event in events)
    data += frame("throttlingException", {"message": f"Slow down, {BEARER}."}, "exception")
    openai_server.script(streamed(data))
    async with AsyncOpenAI(config=settings(openai_server)) as client:
        stream = await client.chat.completions.create(**ASK, stream=True)
        with pytest.raises(APIError, match="Slow down") as caught:
            _ = [chunk async for chunk in stream]
    assert (type(caught.value), caught.value.reported_status) == (APIError, 429)
    assert caught.value.partial == "The quick brown fox"
    assert stream.meta.status == "error"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (frames("text")[:400], APIConnectionError),
        (frames("text")[:300] + b"\0" + frames("text")[301:], APIResponseValidationError),
        (b"".join(frame(*event) for event in sample("text")["events"][:3]), APIConnectionError),
        (b"data: {}\n\n" * 3, APIResponseValidationError),
    ],
    ids=["cut", "damaged", "unfinished", "no frames"],
)
async def test_a_broken_stream_is_one_clear_error(
    openai_server: OpenAIServer, data: bytes, expected: type[APIError]
) -> None:
    openai_server.script(streamed(data))
    async with AsyncOpenAI(config=settings(openai_server), max_retries=0) as client:
        stream = await client.chat.completions.create(**ASK, stream=True)
        with pytest.raises(expected) as caught:
            _ = [chunk async for chunk in stream]
    assert caught.value.attempts == 1
    assert ENVIRONMENT["AWS_SESSION_TOKEN"] not in f"{caught.value} {vars(caught.value)}"


async def test_models_are_listed_with_a_signature(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, {"modelSummaries": [{"modelId": "amazon.nova-pro-v1:0"}]}))
    async with AsyncOpenAI(config=settings(openai_server, default_provider="bedrock")) as client:
        models = await client.models.list()
    assert [model.id for model in models.data] == ["amazon.nova-pro-v1:0"]
    assert openai_server.requests[0].path == "/foundation-models"
    assert is_signed(openai_server.requests[0], openai_server)


async def test_a_call_by_path_is_signed_and_not_translated(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, {"inputTokens": 3}))
    async with AsyncOpenAI(config=settings(openai_server, default_provider="bedrock")) as client:
        found = await client.post("/model/m/count-tokens", cast_to=object, body={"input": {"converse": {}}})
    assert found == {"inputTokens": 3}
    assert openai_server.requests[0].json == {"input": {"converse": {}}}
    assert is_signed(openai_server.requests[0], openai_server)


def test_the_address_follows_from_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    with OpenAI(ledger="off") as client:
        endpoint = client.router.destinations.get("bedrock")
    assert endpoint.base_url == "https://bedrock-runtime.eu-west-1.amazonaws.com"
    assert endpoint.lacks is None
    monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "https://proxy.test/bedrock")
    with OpenAI(ledger="off") as client:
        assert client.router.destinations.get("bedrock").base_url == "https://proxy.test/bedrock"


@pytest.mark.parametrize("region", [None, "us east 1"])
def test_without_a_region_nothing_is_sent_and_the_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, region: str | None
) -> None:
    monkeypatch.delenv("AWS_REGION")
    if region is not None:
        monkeypatch.setenv("AWS_REGION", region)
    with OpenAI(ledger="off") as client, pytest.raises(ConfigurationError, match="AWS_REGION"):
        client.chat.completions.create(**ASK)

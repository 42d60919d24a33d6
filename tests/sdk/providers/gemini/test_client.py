"""Calls to Gemini from the client to a loopback server, streamed and not streamed, with their records."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import pytest
from gemini_bodies import BODIES, PAIRS
from loopback_server import Behaviour, OpenAIServer, events, reply
from pydantic import BaseModel

from specclient import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    AsyncOpenAI,
    AuthenticationError,
    BadRequestError,
    ContentFilterFinishReasonError,
    LengthFinishReasonError,
    NotFoundError,
    OpenAI,
    RateLimitError,
    Settings,
    UnsupportedParameterError,
    pydantic_function_tool,
)
from specclient.http_transport.retry import delay_of
from specclient.types.usage import Usage

pytestmark = pytest.mark.anyio

ASK: Any = [{"role": "user", "content": "hi"}]
MODEL = "gemini/gemini-2.5-flash"


def _settings(server: OpenAIServer) -> Settings:
    provider = {"base_url": f"{server.url}/v1beta", "api_key": "AIza-key"}
    price = {"input": "1", "output": "8", "cached_input": "0.25"}
    return Settings.model_validate({"providers": {"gemini": provider}, "prices": {MODEL: price}})


@pytest.fixture
async def client(openai_server: OpenAIServer) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(config=_settings(openai_server), max_retries=0) as made:
        yield made


def _whole(name: str, status: int = 200) -> Behaviour:
    return reply(status, json.loads((BODIES / f"{name}.json").read_bytes()))


def _stream(name: str) -> Behaviour:
    return events((BODIES / f"{name}.sse").read_bytes())


async def test_a_chat_and_its_record(openai_server: OpenAIServer, client: AsyncOpenAI) -> None:
    openai_server.script(_whole("text"))
    answer = await client.chat.completions.create(model=MODEL, messages=ASK, temperature=0.5)
    (sent,) = openai_server.requests
    assert sent.path == "/v1beta/models/gemini-2.5-flash:generateContent"
    assert sent.headers["x-goog-api-key"] == "AIza-key"
    assert "authorization" not in sent.headers
    assert sent.json["generationConfig"] == {"temperature": 0.5}
    meta = answer.meta
    assert meta.usage == Usage(prompt=9, completion=12, cached=4)
    assert meta.cost.total == Decimal(5 * 1 + 12 * 8) / 10**6 + Decimal(4) * Decimal("0.25") / 10**6
    assert (meta.provider, meta.served_model, meta.status) == ("gemini", "gemini-2.5-flash", "ok")
    assert meta.speculation is None


@pytest.mark.parametrize("name", PAIRS)
async def test_a_stream_equals_the_complete_response(
    openai_server: OpenAIServer, client: AsyncOpenAI, name: str
) -> None:
    openai_server.script(_whole(name), _stream(name), _stream(name))
    whole = await client.chat.completions.create(model=MODEL, messages=ASK)
    stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
    chunks = [chunk async for chunk in stream]
    assert all(chunk.choices for chunk in chunks), "the usage chunk is yielded only if requested"
    for choice in whole.choices:
        deltas = [c.delta for chunk in chunks for c in chunk.choices if c.index == choice.index]
        assert "".join(delta.content or "" for delta in deltas) == (choice.message.content or "")
        ids = [call.id for delta in deltas for call in delta.tool_calls or ()]
        assert ids == [call.id for call in choice.message.tool_calls or ()]
    assert (stream.meta.status, stream.meta.usage, stream.meta.cost) == (
        "ok",
        whole.meta.usage,
        whole.meta.cost,
    )
    assert stream.meta.cost.total
    with_usage = await client.chat.completions.create(
        model=MODEL, messages=ASK, stream=True, stream_options={"include_usage": True}
    )
    *_, last = [chunk async for chunk in with_usage]
    assert (last.choices, last.usage) == ([], whole.usage)


def test_the_synchronous_client_reads_responses_and_streams(openai_server: OpenAIServer) -> None:
    openai_server.script(_whole("thinking_tools"), _stream("thinking_tools"))
    with OpenAI(config=_settings(openai_server)) as client:
        whole = client.chat.completions.create(model=MODEL, messages=ASK)
        stream = client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text == whole.choices[0].message.content == "Let me look."
    assert stream.meta.usage == whole.meta.usage == Usage(prompt=48, completion=98, reasoning=67)
    assert stream.meta.cost == whole.meta.cost


class Book(BaseModel):
    """A book."""

    title: str
    year: int


class get_weather(BaseModel):  # the class name is the name of the tool
    """Tell the weather."""

    city: str
    days: int = 1


async def test_structured_output_is_parsed_by_the_parse_and_stream_helpers(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    openai_server.script(_whole("structured"), _stream("structured"))
    parsed = await client.chat.completions.parse(model=MODEL, messages=ASK, response_format=Book)
    assert parsed.choices[0].message.parsed == Book(title="Dune", year=1965)
    config = openai_server.requests[0].json["generationConfig"]
    assert config["responseMimeType"] == "application/json"
    assert config["responseJsonSchema"]["required"] == ["title", "year"]
    async with client.chat.completions.stream(model=MODEL, messages=ASK, response_format=Book) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert {"content.delta", "content.done"} <= set(kinds)
    assert final.choices[0].message.parsed == Book(title="Dune", year=1965)


async def test_tools_are_parsed_and_sent_back(openai_server: OpenAIServer, client: AsyncOpenAI) -> None:
    openai_server.script(_whole("thinking_tools"), _stream("thinking_tools"), _whole("text"))
    tools: Any = [pydantic_function_tool(get_weather)]
    parsed = await client.chat.completions.parse(model=MODEL, messages=ASK, tools=tools)
    whole: Any = parsed.choices[0].message.tool_calls
    assert whole[0].function.parsed_arguments == get_weather(city="Zürich", days=2)
    sent = openai_server.requests[0].json
    assert sent["tools"][0]["functionDeclarations"][0]["name"] == "get_weather"
    assert sent["toolConfig"]["functionCallingConfig"] == {"mode": "VALIDATED"}, "the tool is strict"
    async with client.chat.completions.stream(model=MODEL, messages=ASK, tools=tools) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    assert [call.id for call in message.tool_calls or ()] == [call.id for call in whole]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sun"} for call in whole]
    await client.chat.completions.create(model=MODEL, messages=[*ASK, message, *results], tools=tools)
    _, model, user = openai_server.requests[2].json["contents"]
    assert [part.get("thoughtSignature") for part in model["parts"]] == [None, "CiQB0e2Kb1+/aGVsbG8=", None]
    assert [part["functionResponse"]["name"] for part in user["parts"]] == ["get_weather"] * 2


async def test_parse_raises_for_blocked_and_truncated_answers(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    openai_server.script(_whole("blocked"), _whole("cut_while_thinking"))
    with pytest.raises(ContentFilterFinishReasonError):
        await client.chat.completions.parse(model=MODEL, messages=ASK, response_format=Book)
    with pytest.raises(LengthFinishReasonError):
        await client.chat.completions.parse(model=MODEL, messages=ASK, response_format=Book)


async def test_a_stream_of_a_blocked_prompt_has_a_content_filter_finish_reason(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    openai_server.script(_stream("blocked"))
    stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
    (chunk,) = [chunk async for chunk in stream]
    assert (chunk.choices[0].finish_reason, chunk.choices[0].delta.content) == ("content_filter", None)
    assert (chunk.model_extra or {})["promptFeedback"] == {"blockReason": "PROHIBITED_CONTENT"}
    assert stream.meta.usage == Usage(prompt=6, completion=0)


async def test_a_response_without_candidates_and_block_reason_raises(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    nothing = {"candidates": [], "usageMetadata": {"promptTokenCount": 6, "totalTokenCount": 6}}
    openai_server.script(reply(200, nothing), events(b"data: " + json.dumps(nothing).encode() + b"\n\n"))
    with pytest.raises(APIResponseValidationError, match="neither candidates nor a block reason"):
        await client.chat.completions.create(model=MODEL, messages=ASK)
    stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
    with pytest.raises(APIConnectionError, match="ended before the answer did"):
        [chunk async for chunk in stream]


async def test_errors_amid_a_stream_and_truncated_streams_raise(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    openai_server.script(_stream("error_midway"), _stream("cut"))
    stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
    assert (await anext(stream)).choices[0].delta.content == "The quick"
    with pytest.raises(APIError, match="overloaded") as failed:
        await anext(stream)
    assert type(failed.value) is APIError
    assert (failed.value.reported_status, failed.value.type) == (503, "UNAVAILABLE")
    assert (stream.meta.status, stream.meta.error) == ("error", "InternalServerError")
    stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
    await anext(stream)
    with pytest.raises(APIConnectionError, match="ended before the answer did") as cut:
        await anext(stream)
    assert cut.value.partial == "The quick"


@pytest.mark.parametrize("wrapped", [False, True])
async def test_status_errors_are_raised_with_their_class_and_details(
    openai_server: OpenAIServer, client: AsyncOpenAI, wrapped: bool
) -> None:
    def refusal(name: str, status: int) -> Behaviour:
        body = json.loads((BODIES / f"{name}.json").read_bytes())
        return reply(status, [body] if wrapped else body)

    openai_server.script(refusal("error_key", 400), refusal("error_model", 404), refusal("error_rate", 429))
    with pytest.raises(BadRequestError, match="API key not valid") as key:
        await client.chat.completions.create(model=MODEL, messages=ASK)
    assert key.value.type == "INVALID_ARGUMENT"
    assert "AIza-key" not in str(key.value)
    with pytest.raises(NotFoundError, match="models/gemini-9 is not found"):
        await client.chat.completions.create(model="gemini/gemini-9", messages=ASK)
    with pytest.raises(RateLimitError, match="exceeded your current quota") as rate:
        await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
    assert (rate.value.status_code, rate.value.type) == (429, "RESOURCE_EXHAUSTED")
    assert delay_of(rate.value, now=0) == 0.05, "Gemini's RetryInfo"


async def test_a_rate_limited_request_is_retried(openai_server: OpenAIServer) -> None:
    openai_server.script(_whole("error_rate", 429), _whole("text"))
    async with AsyncOpenAI(config=_settings(openai_server), max_retries=1) as client:
        answer = await client.chat.completions.create(model=MODEL, messages=ASK)
    assert answer.meta.attempts == 2


async def test_an_invalid_key_raises_an_authentication_error(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    body = {
        "error": {"code": 401, "message": "Request had invalid credentials.", "status": "UNAUTHENTICATED"}
    }
    openai_server.script(reply(401, body))
    with pytest.raises(AuthenticationError, match="invalid credentials"):
        await client.chat.completions.create(model=MODEL, messages=ASK)


async def test_unsupported_parameters_raise_or_are_dropped(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    with pytest.raises(UnsupportedParameterError, match="provider 'gemini' does not take 'logit_bias'"):
        await client.chat.completions.create(model=MODEL, messages=ASK, logit_bias={"1": 1})
    assert not openai_server.requests
    openai_server.script(_whole("text"))
    await client.chat.completions.create(model=MODEL, messages=ASK, logit_bias={"1": 1}, drop_params=True)
    assert openai_server.requests[0].json.keys() == {"contents"}


async def test_embeddings_are_base64_if_requested(openai_server: OpenAIServer, client: AsyncOpenAI) -> None:
    openai_server.script(_whole("embeddings"), _whole("embeddings"))
    model = "gemini/gemini-embedding-001"
    plain = await client.embeddings.create(model=model, input=["a", "b"], encoding_format="float")
    packed = await client.embeddings.create(model=model, input=["a", "b"], encoding_format="base64")
    for numbers, text in zip(plain.data, packed.data, strict=True):
        encoded: object = text.embedding
        assert isinstance(encoded, str)
        values = struct.unpack(f"<{len(numbers.embedding)}f", base64.b64decode(encoded))
        assert list(values) == pytest.approx(numbers.embedding)


async def test_embeddings_and_their_usage(openai_server: OpenAIServer, client: AsyncOpenAI) -> None:
    openai_server.script(_whole("embeddings"), _whole("embeddings_counted"))
    answer = await client.embeddings.create(
        model="gemini/gemini-embedding-001", input=["a", "b"], dimensions=3
    )
    assert [row.embedding for row in answer.data] == [[0.5, -0.25, 1.0], [0.125, 0.0, 0.75]]
    assert openai_server.requests[0].path == "/v1beta/models/gemini-embedding-001:batchEmbedContents"
    assert [r["outputDimensionality"] for r in openai_server.requests[0].json["requests"]] == [3, 3]
    assert answer.meta.usage.estimated, "the response has no token count"
    counted = await client.embeddings.create(model="gemini/gemini-embedding-001", input="a")
    assert counted.meta.usage == Usage(prompt=3, completion=0)


async def test_models_are_listed_and_calls_by_path_are_sent(openai_server: OpenAIServer) -> None:
    one = json.loads((BODIES / "models.json").read_bytes())["models"][0]
    openai_server.script(_whole("models"), reply(200, one), reply(200, {"cachedContents": []}))
    settings = _settings(openai_server).model_copy(update={"default_provider": "gemini"})
    async with AsyncOpenAI(config=settings) as client:
        ids = [model.id async for model in client.models.list()]
        found = await client.models.retrieve("gemini-2.5-flash")
        assert await client.get("/cachedContents", cast_to=object) == {"cachedContents": []}
    assert ids == ["gemini-2.5-flash", "gemini-embedding-001"]
    assert (found.id, found.owned_by) == ("gemini-2.5-flash", "google")
    assert [f"{sent.path}?{sent.query}" for sent in openai_server.requests] == [
        "/v1beta/models?pageSize=1000",
        "/v1beta/models/gemini-2.5-flash?",
        "/v1beta/cachedContents?",
    ]
    assert all(sent.headers["x-goog-api-key"] == "AIza-key" for sent in openai_server.requests)


async def test_raw_responses_are_geminis_and_parse_to_openai_objects(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    openai_server.script(_whole("text"), _stream("text"))
    raw = await client.with_raw_response.chat.completions.create(model=MODEL, messages=ASK)
    assert "candidates" in json.loads(raw.content)
    assert raw.parse().choices[0].finish_reason == "stop"
    async with client.with_streaming_response.chat.completions.create(
        model=MODEL, messages=ASK, stream=True
    ) as response:
        lines = [line async for line in response.iter_lines()]
    assert lines[0].startswith('data: {"candidates"')
    rows = client.ledger.rows()
    assert [(row.prompt_tokens, row.completion_tokens, row.status) for row in rows] == [(9, 12, "ok")] * 2


async def test_a_method_that_gemini_does_not_serve_raises(
    openai_server: OpenAIServer, client: AsyncOpenAI
) -> None:
    with pytest.raises(NotFoundError, match=r"serves chat\.completions\.create.*not completions\.create"):
        await client.completions.create(model=MODEL, prompt="hi")
    assert not openai_server.requests

"""Chats with Anthropic through the sync and async clients, streamed and not streamed, and their errors."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pydantic
import pytest
from anthropic_bodies import KEY, body, settings, sse
from loopback_server import Behaviour, OpenAIServer, broken_stream, events, reply

from specclient import (
    APIConnectionError,
    APIError,
    APIResponseValidationError,
    AsyncOpenAI,
    AuthenticationError,
    InternalServerError,
    NotFoundError,
    OpenAI,
    UnsupportedParameterError,
)
from specclient.config import PriceSettings

pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "Say something about foxes."}]
MODEL = "anthropic/claude-sonnet-5"
PRICES = {MODEL: PriceSettings(input=Decimal(2), output=Decimal(10), cached_input=Decimal("0.2"))}
TEXT = "The quick brown fox jumps."


def _whole(name: str, status: int = 200) -> Behaviour:
    return reply(status, body(name), {"content-type": "application/json", "request-id": "req_1"})


def _streamed(name: str) -> Behaviour:
    data = body(name)
    return events(*(data[at : at + 97] for at in range(0, len(data), 97)), headers={"request-id": "req_1"})


def _client(server: OpenAIServer, **more: Any) -> AsyncOpenAI:
    return AsyncOpenAI(config=settings(server, prices=PRICES), **more)


async def _read(stream: Any, into: list[str]) -> None:
    async for chunk in stream:
        into.append(chunk.choices[0].delta.content or "")


async def test_a_stream_has_the_text_usage_and_cost_of_the_complete_response(
    openai_server: OpenAIServer,
) -> None:
    openai_server.script(_whole("text.json"), _streamed("text.sse"))
    async with _client(openai_server) as client:
        whole = await client.chat.completions.create(model=MODEL, messages=ASK)
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        found = [chunk async for chunk in stream]
        rows = client.ledger.rows()
    assert whole.choices[0].message.content == TEXT
    assert "".join(c.choices[0].delta.content or "" for c in found) == TEXT
    assert all(chunk.choices for chunk in found), "the usage chunk is yielded only if requested"
    for call in (whole.meta, stream.meta):
        assert (call.usage.prompt, call.usage.cached, call.usage.completion) == (2125, 2000, 12)
        assert call.cost.total is not None
        assert not call.usage.estimated
        assert (call.status, call.served_model, call.request_id) == ("ok", "claude-sonnet-5", "req_1")
        assert call.speculation is None
    assert stream.meta.usage == whole.meta.usage
    assert stream.meta.cost == whole.meta.cost
    assert stream.meta.ttft_s is not None
    assert [row.cost_nano for row in rows] == [whole.meta.cost.nano] * 2
    first, second = openai_server.requests
    assert first.path == "/v1/messages"
    assert first.headers["x-api-key"] == KEY
    assert "stream" not in first.json
    assert second.json == {**first.json, "stream": True}


def test_the_synchronous_client_gives_the_same_answers(openai_server: OpenAIServer) -> None:
    openai_server.script(_whole("text.json"), _streamed("text.sse"))
    with OpenAI(config=settings(openai_server, prices=PRICES)) as client:
        whole = client.chat.completions.create(model=MODEL, messages=ASK)
        with client.chat.completions.create(model=MODEL, messages=ASK, stream=True) as stream:
            text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert whole.choices[0].message.content == text == TEXT
    assert stream.meta.cost == whole.meta.cost


async def test_a_complete_response_to_a_streamed_request_raises(openai_server: OpenAIServer) -> None:
    openai_server.script(_whole("text.json"))
    async with _client(openai_server) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        with pytest.raises(APIResponseValidationError, match="a whole response where a stream was requested"):
            [chunk async for chunk in stream]


async def test_the_usage_chunk_is_yielded_if_requested(openai_server: OpenAIServer) -> None:
    openai_server.script(_streamed("text.sse"))
    async with _client(openai_server) as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        found = [chunk async for chunk in stream]
    assert not found[-1].choices
    assert found[-1].usage is not None
    assert found[-1].usage.prompt_tokens == 2125


class _City(pydantic.BaseModel):
    city: str
    canton: str


async def test_structured_output_is_parsed_streamed_or_not(openai_server: OpenAIServer) -> None:
    openai_server.script(_whole("structured.json"), _streamed("structured.sse"))
    async with _client(openai_server) as client:
        whole = await client.chat.completions.parse(model=MODEL, messages=ASK, response_format=_City)
        async with client.chat.completions.stream(model=MODEL, messages=ASK, response_format=_City) as stream:
            kinds = [event.type async for event in stream]
            streamed = await stream.get_final_completion()
    for answer in (whole, streamed):
        assert answer.choices[0].message.parsed == _City(city="Bern", canton="BE")
    assert kinds.count("content.delta") == 2
    assert kinds[-1] == "chunk" or "content.done" in kinds
    assert whole.choices[0].stop_reason == streamed.choices[0].stop_reason == "end_turn"
    form = openai_server.requests[0].json["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert set(form["schema"]["properties"]) == {"city", "canton"}


async def test_thinking_and_tool_calls_are_sent_back(openai_server: OpenAIServer) -> None:
    openai_server.script(_streamed("thinking.sse"), _whole("tools.json"), _whole("text.json"))
    async with _client(openai_server) as client:
        async with client.chat.completions.stream(model=MODEL, messages=ASK) as stream:
            thought = (await stream.get_final_completion()).choices[0].message
        messages: list[Any] = [*ASK, thought, *ASK]
        called = (await client.chat.completions.create(model=MODEL, messages=messages)).choices[0].message
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": "18"} for call in called.tool_calls or ()
        ]
        await client.chat.completions.create(model=MODEL, messages=[*messages, called, *results])
    sent = openai_server.requests[2].json["messages"]
    assert sent[1]["content"] == json.loads(body("thinking.json"))["content"]
    assert [block["type"] for block in sent[3]["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["tool_use_id"] for block in sent[4]["content"]] == ["toolu_1", "toolu_2"]


async def test_reasoning_counts_as_the_first_token(openai_server: OpenAIServer) -> None:
    head = body("thinking.sse").split(b"event: content_block_stop")[0]
    openai_server.script(broken_stream(head, how="close"))
    async with _client(openai_server) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        with pytest.raises(APIConnectionError):
            async for _ in stream:
                pass
    assert stream.meta.ttft_s is not None
    assert stream.meta.usage.estimated
    assert stream.meta.usage.completion


@pytest.mark.parametrize("how", ["close", "reset", "end"])
async def test_a_truncated_stream_raises_with_its_partial_text(openai_server: OpenAIServer, how: str) -> None:
    head = body("text.sse").split(b"event: message_delta")[0]
    openai_server.script(events(head) if how == "end" else broken_stream(head, how=how))
    async with _client(openai_server) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        with pytest.raises(APIConnectionError) as caught:
            async for _ in stream:
                pass
    assert caught.value.partial == TEXT
    assert stream.meta.status == "error"


async def test_a_stream_with_a_stop_reason_is_complete_without_message_stop(
    openai_server: OpenAIServer,
) -> None:
    openai_server.script(events(body("text.sse").split(b"event: message_stop")[0]))
    async with _client(openai_server) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        assert [chunk async for chunk in stream]
    assert stream.meta.status == "ok"
    assert stream.meta.usage.completion == 12


async def test_an_error_amid_a_stream_is_raised(openai_server: OpenAIServer) -> None:
    openai_server.script(_streamed("overloaded.sse"))
    async with _client(openai_server) as client:
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        texts: list[str] = []
        with pytest.raises(APIError, match="Overloaded") as caught:
            await _read(stream, texts)
    assert "".join(texts) == "The quick brown fox"
    assert (type(caught.value), caught.value.reported_status) == (APIError, 529)
    assert stream.meta.status == "error"


@pytest.mark.parametrize("content", [b"<html> sk-ant-key", b'{"error": {"message": "bad sk-ant-key"}}'])
async def test_an_error_with_status_200_has_its_attempts_and_no_key(
    openai_server: OpenAIServer, content: bytes
) -> None:
    headers = {"retry-after-ms": "1", "content-type": "application/json"}
    openai_server.script(reply(529, body("overloaded.json"), headers), reply(200, content))
    async with _client(openai_server) as client:
        with pytest.raises(APIError) as caught:
            await client.chat.completions.create(model=MODEL, messages=ASK)
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value.body)
    assert caught.value.attempts == 2


async def test_an_overloaded_error_is_retried(openai_server: OpenAIServer) -> None:
    headers = {"retry-after-ms": "1", "content-type": "application/json"}
    openai_server.script(reply(529, body("overloaded.json"), headers), _whole("text.json"))
    async with _client(openai_server) as client:
        answer = await client.chat.completions.create(model=MODEL, messages=ASK)
    assert answer.meta.attempts == 2
    assert openai_server.requests[0].body == openai_server.requests[1].body


@pytest.mark.parametrize(
    ("status", "name", "expected", "words"),
    [
        (401, "authentication.json", AuthenticationError, "invalid x-api-key"),
        (404, "not_found.json", NotFoundError, "model: claude-none"),
        (529, "overloaded.json", InternalServerError, "Overloaded"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_status_errors_have_their_class(
    openai_server: OpenAIServer, status: int, name: str, expected: type[Exception], words: str, stream: bool
) -> None:
    openai_server.script(_whole(name, status))
    async with _client(openai_server, max_retries=0) as client:
        with pytest.raises(expected, match=words) as caught:
            await client.chat.completions.create(model=MODEL, messages=ASK, stream=stream)
    assert KEY not in str(caught.value)
    assert caught.value.request_id == "req_1"  # type: ignore[attr-defined]
    assert caught.value.type == json.loads(body(name))["error"]["type"]  # type: ignore[attr-defined]


async def test_raw_responses_are_anthropics_and_parse_to_openai_objects(openai_server: OpenAIServer) -> None:
    openai_server.script(_whole("text.json"), _whole("text.json"), _streamed("text.sse"))
    async with _client(openai_server) as client:
        raw = await client.chat.completions.with_raw_response.create(model=MODEL, messages=ASK)
        assert json.loads(raw.content)["type"] == "message"
        assert raw.headers["request-id"] == "req_1"
        assert raw.parse().choices[0].message.content == TEXT
        calling = client.chat.completions.with_streaming_response.create(model=MODEL, messages=ASK)
        async with calling as response:
            assert json.loads(await response.read())["type"] == "message"
            assert (await response.parse()).choices[0].message.content == TEXT
        calling = client.chat.completions.with_streaming_response.create(
            model=MODEL, messages=ASK, stream=True
        )
        async with calling as response:
            lines = [line async for line in response.iter_lines()]
        rows = client.ledger.rows()
    assert "event: message_start" in lines
    assert [row.completion_tokens for row in rows] == [12, 12, 12]


async def test_models_are_listed(openai_server: OpenAIServer) -> None:
    openai_server.script(_whole("models.json"), _whole("models.json"))
    async with _client(openai_server) as client:
        found = [model async for model in client.models.list(provider="anthropic")]
    assert [model.id for model in found] == ["claude-opus-5", "claude-haiku-4-5-20251001"]
    assert found[0].created == 1784851200
    assert found[0].owned_by == "anthropic"
    assert found[0].display_name == "Claude Opus 5"
    (request,) = openai_server.requests
    assert (request.path, request.query) == ("/v1/models", "limit=1000")
    assert request.headers["anthropic-version"] == "2023-06-01"


async def test_one_model_is_retrieved(openai_server: OpenAIServer) -> None:
    (row, _) = json.loads(body("models.json"))["data"]
    openai_server.script(reply(200, row), _whole("not_found.json", 404))
    async with AsyncOpenAI(config=settings(openai_server, default_provider="anthropic")) as client:
        model = await client.models.retrieve("claude-opus-5")
        with pytest.raises(NotFoundError, match="claude-none"):
            await client.models.retrieve("claude-none")
    assert (model.id, model.created, model.object) == ("claude-opus-5", 1784851200, "model")
    assert [request.path for request in openai_server.requests] == [
        "/v1/models/claude-opus-5",
        "/v1/models/claude-none",
    ]


async def test_unsupported_parameters_and_methods_raise_before_a_request_is_sent(
    openai_server: OpenAIServer,
) -> None:
    openai_server.script(_whole("text.json"))
    async with _client(openai_server) as client:
        with pytest.raises(UnsupportedParameterError, match="'anthropic' does not take 'seed'"):
            await client.chat.completions.create(model=MODEL, messages=ASK, seed=1)
        with pytest.raises(NotFoundError, match=r"'anthropic' .* not embeddings.create"):
            await client.embeddings.create(model="anthropic/x", input="x")
        assert not openai_server.requests
        await client.chat.completions.create(model=MODEL, messages=ASK, seed=1, drop_params=True)
    assert "seed" not in openai_server.requests[0].json


async def test_calls_by_path_are_sent_with_the_key_and_the_version(openai_server: OpenAIServer) -> None:
    openai_server.script(reply(200, {"input_tokens": 14}))
    config = settings(openai_server, default_provider="anthropic")
    async with AsyncOpenAI(config=config) as client:
        counted = await client.post("/messages/count_tokens", cast_to=object, body={"messages": ASK})
    assert counted == {"input_tokens": 14}
    assert openai_server.requests[0].headers["x-api-key"] == KEY
    assert openai_server.requests[0].headers["anthropic-version"] == "2023-06-01"


async def test_invalid_counts_are_replaced_by_an_estimate(openai_server: OpenAIServer) -> None:
    invalid = {**json.loads(body("text.json")), "usage": {"input_tokens": "25", "output_tokens": -1}}
    openai_server.script(reply(200, invalid))
    openai_server.script(
        events(
            sse(
                {"type": "message_start", "message": {"usage": {"input_tokens": "many"}}},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a b"}},
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": None},
                },
            )
        )
    )
    async with _client(openai_server) as client:
        whole = await client.chat.completions.create(model=MODEL, messages=ASK)
        stream = await client.chat.completions.create(model=MODEL, messages=ASK, stream=True)
        assert [chunk async for chunk in stream]
    assert whole.usage is None
    assert whole.meta.usage.estimated
    assert stream.meta.usage.estimated
    assert stream.meta.cost.estimated

"""Encoding and decoding of the OpenAI API, with bodies as vendors send them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from specclient.errors import (
    APIError,
    APIResponseValidationError,
    APIStatusError,
    BadRequestError,
    ConfigurationError,
    InternalServerError,
    OpenAIError,
    RateLimitError,
    UnsupportedParameterError,
)
from specclient.providers import OpenAIDialect, Preset, usage_requested
from specclient.providers.openai.quirks import Quirks
from specclient.types import inference_methods
from specclient.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
from specclient.types.completion import Completion
from specclient.types.request import PerCallOptions, Request
from specclient.types.usage import Usage
from specclient.types.wire import Secrets, WireResponse

DIALECT = OpenAIDialect()
ENDPOINT = Preset("mine", "http://host/v1").endpoint(key=SecretStr("sk-1"))
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def encode(
    params: dict[str, Any] = CHAT,
    endpoint: Any = ENDPOINT,
    method: Any = inference_methods.CHAT,
    **fields: Any,
) -> Any:
    return DIALECT.encode(Request(method, "mine/m", params, **fields), endpoint, "m")


def sent(*args: Any, **fields: Any) -> Any:
    return json.loads(encode(*args, **fields).content)


def reply(body: Any, status: int = 200) -> WireResponse:
    return WireResponse(status, {}, body if isinstance(body, bytes) else json.dumps(body).encode())


def chat(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": "yo"}}], "model": "m", **fields}


# --- encode


def test_a_chat_is_encoded() -> None:
    wire = encode({**CHAT, "temperature": 0.5, "max_tokens": None})
    assert (wire.method, wire.url, wire.deployment) == ("POST", "http://host/v1/chat/completions", "mine/m")
    assert json.loads(wire.content) == {"model": "m", **CHAT, "temperature": 0.5, "max_tokens": None}
    assert wire.headers["authorization"] == "Bearer sk-1"
    assert wire.headers["content-type"] == "application/json"
    assert wire.headers["accept"] == "application/json"
    assert wire.headers["user-agent"].startswith("specclient/")


def test_a_text_completion_is_encoded() -> None:
    wire = encode({"prompt": "Once"}, method=inference_methods.COMPLETION)
    assert wire.url == "http://host/v1/completions"
    assert json.loads(wire.content) == {"model": "m", "prompt": "Once"}


def test_text_is_sent_as_utf8_and_not_escaped() -> None:
    assert "grüße 🦊".encode() in encode({"messages": [{"role": "user", "content": "grüße 🦊"}]}).content


@pytest.mark.parametrize(
    ("params", "body", "expected", "requested"),
    [
        ({}, {}, {"include_usage": True}, False),
        ({"stream_options": {"include_usage": True}}, {}, {"include_usage": True}, True),
        ({"stream_options": {"include_usage": False, "x": 1}}, {}, {"include_usage": True, "x": 1}, False),
        ({"stream_options": None}, {}, {"include_usage": True}, False),
        ({}, {"stream_options": {"include_usage": True}}, {"include_usage": True}, True),
        ({}, {"stream_options": {"x": 1}}, {"include_usage": True, "x": 1}, False),
        ({}, {"stream_options": {"include_usage": False}}, {"include_usage": True}, False),
        ({}, {"stream_options": None}, {"include_usage": True}, False),
        (
            {"stream_options": {"include_usage": True}},
            {"stream_options": {"x": 1}},
            {"include_usage": True, "x": 1},
            False,
        ),
    ],
)
def test_streams_request_usage_and_record_whether_the_caller_did(
    params: Any, body: Any, expected: Any, requested: bool
) -> None:
    request = Request(
        inference_methods.CHAT, "mine/m", {**CHAT, **params}, stream=True, options=PerCallOptions(body=body)
    )
    wire = DIALECT.encode(request, ENDPOINT, "m")
    assert json.loads(wire.content)["stream_options"] == expected
    assert json.loads(wire.content)["stream"] is True
    assert wire.headers["accept"] == "application/json"
    assert usage_requested(request) is requested


def test_stream_options_are_not_sent_to_an_endpoint_that_refuses_them() -> None:
    endpoint = Preset("x", "http://h", quirks=Quirks(refused=("stream_options",))).endpoint()
    assert sent(CHAT, endpoint=endpoint, stream=True) == {"model": "m", **CHAT, "stream": True}
    for options in ({"include_usage": True}, {}, None):
        body = sent({**CHAT, "stream_options": options}, endpoint=endpoint, stream=True)
        assert body == {"model": "m", **CHAT, "stream": True}
    obfuscated = {**CHAT, "stream_options": {"include_obfuscation": False}}
    whole = {**CHAT, "stream_options": {"include_usage": True}}
    for params, stream in ((obfuscated, True), (obfuscated, False), (whole, False)):
        with pytest.raises(UnsupportedParameterError, match="'x' does not take 'stream_options'"):
            encode(params, endpoint=endpoint, stream=stream)
        dropping = PerCallOptions(drop_params=True)
        assert "stream_options" not in sent(params, endpoint=endpoint, stream=stream, options=dropping)


def test_without_requests_usage_the_other_stream_options_are_sent() -> None:
    endpoint = replace(ENDPOINT, requests_usage=False)
    assert "stream_options" not in sent(endpoint=endpoint, stream=True)
    options = {"include_usage": True, "include_obfuscation": False}
    body = sent({**CHAT, "stream_options": options}, endpoint=endpoint, stream=True)
    assert body["stream_options"] == {"include_obfuscation": False}


@pytest.mark.parametrize(
    ("base", "query", "url"),
    [
        ("http://host", {}, "http://host/chat/completions"),
        ("http://host/", {}, "http://host/chat/completions"),
        ("http://host/a/b/", {}, "http://host/a/b/chat/completions"),
        ("http://host/v1?api-version=1", {}, "http://host/v1/chat/completions?api-version=1"),
        ("http://host/v1?a=1", {"b": True, "c": ["x y", 2], "d": None}, None),
    ],
)
def test_urls_keep_the_path_and_the_query_of_the_base_url(base: str, query: Any, url: str | None) -> None:
    endpoint = Preset("x", base).endpoint(query={"z": 1} if url is None else {})
    wire = encode(endpoint=endpoint, options=PerCallOptions(query=query))
    assert wire.url == (url or "http://host/v1/chat/completions?a=1&z=1&b=true&c%5B%5D=x+y&c%5B%5D=2")


def test_headers_of_the_endpoint_and_the_call_override_the_defaults_and_none_removes_them() -> None:
    endpoint = Preset("x", "http://h").endpoint(
        key=SecretStr("k"), organization="org", project="proj", headers={"X-Team": "a", "User-Agent": None}
    )
    wire = encode(endpoint=endpoint, options=PerCallOptions(headers={"x-team": "b", "Authorization": None}))
    assert wire.headers == {
        "accept": "application/json",
        "content-type": "application/json",
        "openai-organization": "org",
        "openai-project": "proj",
        "x-team": "b",
    }


def test_a_custom_authorization_header_replaces_a_required_key() -> None:
    endpoint = Preset("x", "http://h", ("K",), key_required=True).endpoint(
        headers={"Authorization": "Basic abc"}
    )
    assert encode(endpoint=endpoint).headers["authorization"] == "Basic abc"


def test_the_error_of_an_invalid_header_does_not_show_its_value() -> None:
    with pytest.raises(ConfigurationError, match="header 'X-Key'") as caught:
        encode(options=PerCallOptions(headers={"X-Key": "sk-1\r\nx: y"}))
    assert "sk-1" not in str(caught.value)


def test_the_options_of_the_call_are_applied() -> None:
    wire = encode(options=PerCallOptions(body={"model": "other", "top_k": 3}, timeout=7, max_retries=0))
    assert json.loads(wire.content) == {**CHAT, "model": "other", "top_k": 3}
    assert (wire.timeout, wire.max_retries) == (7, 0)


def test_a_received_message_is_sent_back_unchanged() -> None:
    message = ChatCompletionMessage.model_validate_json(
        b'{"role": "assistant", "content": "yo", "vendor": 1}'
    )
    body = sent({"messages": (m for m in [CHAT["messages"][0], message])})
    assert body["messages"] == [*CHAT["messages"], {"role": "assistant", "content": "yo", "vendor": 1}]


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "NaN and infinity"),
        ([{"x": float("-inf")}], "NaN and infinity"),
        (object(), "type object has no JSON form"),
        (b"bytes", "type bytes has no JSON form"),
        ("half \ud83e", "surrogate"),
        (LOOP, "ircular"),
        ({(1, 2): 3}, "keys must be"),
    ],
)
def test_the_error_of_a_value_without_a_json_form_names_its_parameter(value: Any, reason: str) -> None:
    with pytest.raises(
        BadRequestError, match=f"parameter 'stop' cannot be sent as JSON: .*{reason}"
    ) as caught:
        encode({**CHAT, "stop": value})
    assert caught.value.status_code == 400


# --- decode


def test_complete_responses_are_decoded() -> None:
    answer = DIALECT.decode(inference_methods.CHAT, reply(chat(usage={"prompt_tokens": 1}, vendor={"x": 1})))
    assert isinstance(answer, ChatCompletion)
    assert answer.choices[0].message.content == "yo"
    assert answer.model_extra == {"vendor": {"x": 1}}
    text = DIALECT.decode(inference_methods.COMPLETION, reply({"choices": [{"text": "upon"}]}))
    assert isinstance(text, Completion)
    assert text.choices[0].text == "upon"


def test_blank_lines_before_a_body_are_ignored() -> None:
    assert DIALECT.decode(inference_methods.CHAT, reply(b"\n\n\n" + json.dumps(chat()).encode()))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>" + b"x" * 500,
        b'{"choices": [',
        b"[]",
        b"null",
        b'{"choices": 3}',
        b'{"id": "x"}',
        b"\xff\xfe",
    ],
)
def test_the_error_of_an_invalid_response_shows_its_beginning(content: bytes) -> None:
    with pytest.raises(APIResponseValidationError, match="does not match the API") as caught:
        DIALECT.decode(inference_methods.CHAT, reply(content))
    assert caught.value.status_code == 200
    assert caught.value.body == content.decode("utf-8", "replace")[:200]
    assert len(str(caught.value)) < 500


def failure_of(answer: WireResponse, method: Any) -> APIError:
    with pytest.raises(APIError) as caught:
        method(answer)
    return caught.value


@pytest.mark.parametrize("models", [False, True])
@pytest.mark.parametrize(
    "content",
    [
        b"<html>sk-secret-key",
        b'{"choices": 3, "data": [{"id": ["sk-secret-key"]}]}',
        b'{"error": {"message": "bad sk-secret-key", "code": "sk-secret-key"}}',
        b"x" * 190 + b"sk-secret-key",
    ],
)
def test_the_error_of_a_response_has_its_attempts_and_no_secret(content: bytes, models: bool) -> None:
    answer = WireResponse(200, {}, content, 3, lambda: Secrets([("x-key", "sk-secret-key")]))
    error = failure_of(
        answer, DIALECT.decode_models if models else lambda a: DIALECT.decode(inference_methods.CHAT, a)
    )
    assert error.attempts == 3
    assert (error.__cause__, error.__context__) == (None, None)  # pydantic's errors quote their input
    assert "sk-secret" not in f"{error} {error!r} {vars(error)}"


def test_chunks_are_decoded() -> None:
    chunk = DIALECT.decode_event(inference_methods.CHAT, b'{"choices": [{"delta": {"content": "y"}}]}')
    assert isinstance(chunk, ChatCompletionChunk)
    assert chunk.choices[0].delta.content == "y"
    text = DIALECT.decode_event(inference_methods.COMPLETION, b'{"choices": [{"text": "u"}]}')
    assert isinstance(text, Completion)
    assert DIALECT.decode_event(inference_methods.CHAT, b"[DONE]") is None


EMPTY = "An error without a message: {'type': 'overloaded_error', 'message': ''}"


@pytest.mark.parametrize(
    ("body", "cls", "status", "message"),
    [
        ({"error": {"message": "slow", "type": "rate_limit_error"}}, RateLimitError, 429, "slow"),
        (
            {"error": {"message": "down", "type": "server_error", "code": None}},
            InternalServerError,
            500,
            "down",
        ),
        ({"error": {"message": "busy", "code": 503}}, InternalServerError, 503, "busy"),
        ({"error": {"message": "long", "code": "context_length_exceeded"}}, BadRequestError, 400, "long"),
        (
            {"object": "error", "message": "no", "type": "BadRequestError", "code": 400},
            BadRequestError,
            400,
            "no",
        ),
        ({"error": "oom", "error_type": "generation"}, APIError, None, "oom"),
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
            InternalServerError,
            529,
            "x",
        ),
        (
            [{"error": {"code": 429, "message": "q", "status": "RESOURCE_EXHAUSTED"}}],
            RateLimitError,
            429,
            "q",
        ),
        ({"error": {"message": "pay", "code": 402}}, APIStatusError, 402, "pay"),
        ({"error": {"strange": 1}}, APIError, None, "An error without a message: {'strange': 1}"),
        (
            {"choices": [{"delta": {}, "finish_reason": "error"}], "error": {"code": 502, "message": "gone"}},
            InternalServerError,
            502,
            "gone",
        ),
    ],
)
@pytest.mark.parametrize("event", [None, "error"])
def test_errors_amid_a_stream_are_raised_with_their_class(
    body: Any, cls: type[APIError], status: int | None, message: str, event: Any
) -> None:
    with pytest.raises(APIError) as caught:
        DIALECT.decode_event(inference_methods.CHAT, json.dumps(body).encode(), event)
    assert type(caught.value) is cls
    assert getattr(caught.value, "status_code", None) == status
    assert str(caught.value) == message


def test_an_error_with_status_200_is_raised() -> None:
    fault = {"message": "slow", "code": 429, "type": "t", "param": "p"}
    with pytest.raises(RateLimitError, match="slow") as caught:
        DIALECT.decode(inference_methods.CHAT, reply({"error": fault}))
    assert (caught.value.code, caught.value.type, caught.value.param) == ("429", "t", "p")


def test_a_null_error_field_in_a_response_is_ignored() -> None:
    assert DIALECT.decode(inference_methods.CHAT, reply(chat(error=None)))


KEYS = ["error", "choices", "message", "code", "type", "usage", "object", "delta", "x_groq"]
json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()), st.booleans())
def test_arbitrary_bytes_are_decoded_or_raise_an_api_error(data: bytes, error: bool) -> None:
    try:
        chunk = DIALECT.decode_event(inference_methods.CHAT, data, "error" if error else None)
    except OpenAIError:
        return
    if chunk is None:
        assert data.strip() == b"[DONE]"
    else:
        DIALECT.usage(chunk)


# --- usage


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}, Usage(prompt=5, completion=7)),
        ({"prompt_tokens": 5}, Usage(prompt=5)),
        ({}, Usage()),
        (
            {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}},
            Usage(prompt=5, completion=7, cached=0),
        ),
        (
            {"prompt_tokens": 50, "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 6}},
            Usage(prompt=50, cached=40, cache_write=6),
        ),
        (
            {"prompt_tokens": 50, "prompt_cache_hit_tokens": 30, "prompt_cache_miss_tokens": 20},
            Usage(prompt=50, cached=30),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 40,
                "total_tokens": 49,
                "completion_tokens_details": {
                    "accepted_prediction_tokens": 18,
                    "rejected_prediction_tokens": 10,
                    "reasoning_tokens": 0,
                },
            },
            Usage(prompt=9, completion=40, reasoning=0, accepted_prediction=18, rejected_prediction=10),
        ),
        (  # xAI: reasoning tokens in addition to the completion
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {"reasoning_tokens": 94},
            },
            Usage(prompt=32, completion=103, reasoning=94),
        ),
        (  # SGLang: reasoning at the top
            {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12, "reasoning_tokens": 4},
            Usage(prompt=3, completion=9, reasoning=4),
        ),
    ],
)
def test_the_usage_of_vendors_is_read(usage: Any, expected: Usage) -> None:
    assert DIALECT.usage(DIALECT.decode(inference_methods.CHAT, reply(chat(usage=usage)))) == expected


def test_missing_usage_is_none() -> None:
    assert DIALECT.usage(DIALECT.decode(inference_methods.CHAT, reply(chat()))) is None


def test_the_usage_of_groqs_streams_is_read() -> None:
    body = {"choices": [], "x_groq": {"id": "r", "usage": {"prompt_tokens": 4, "completion_tokens": 6}}}
    chunk = DIALECT.decode_event(inference_methods.CHAT, json.dumps(body).encode())
    assert DIALECT.usage(chunk) == Usage(prompt=4, completion=6)


# --- models


def test_model_lists_are_encoded_and_decoded() -> None:
    wire = DIALECT.encode_models(ENDPOINT)
    assert (wire.method, wire.url, wire.content) == ("GET", "http://host/v1/models", None)
    rows = [{"id": "a", "owned_by": "x"}, {"id": "b", "extra": 1}]
    for body in ({"object": "list", "data": rows}, rows):
        assert [model.id for model in DIALECT.decode_models(reply(body))] == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"data": 3}', b'[{"name": "x"}]', b"7"])
def test_invalid_model_lists_raise(content: bytes) -> None:
    with pytest.raises(APIResponseValidationError):
        DIALECT.decode_models(reply(content))

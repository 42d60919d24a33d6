"""The limit of an answer that a budget has reserved, in the request that each provider gets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic_bodies import ENDPOINT as ANTHROPIC
from gemini_bodies import ENDPOINT as GEMINI
from pydantic import SecretStr

from specclient.call.answer_limit import limited_request
from specclient.providers import dialect_of, preset
from specclient.providers.endpoint import Endpoint
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, RESPONSE
from specclient.types.request import NativeRequest, PerCallOptions, Request

MESSAGES = [{"role": "user", "content": "hi"}]


def sent(request: Request, endpoint: Endpoint, model: str = "m") -> dict[str, Any]:
    """Return the body that an endpoint gets."""
    content = dialect_of(endpoint).encode(request, endpoint, model).content
    assert content is not None
    body: dict[str, Any] = json.loads(content)
    return body


@pytest.mark.parametrize(
    ("name", "model", "field"),
    [
        ("openai", "gpt-4.1", "max_tokens"),
        ("openai", "gpt-5-mini", "max_completion_tokens"),
        ("openrouter", "openai/o3", "max_completion_tokens"),
        ("mistral", "codestral", "max_tokens"),
        ("deepseek", "deepseek-chat", "max_tokens"),
        ("vllm", "openai/gpt-oss-20b", "max_tokens"),
    ],
)
def test_the_limit_has_the_name_that_the_provider_has_for_it(name: str, model: str, field: str) -> None:
    request = limited_request(Request(CHAT, "m", {"messages": MESSAGES}), 50, model)
    found = sent(request, preset(name).endpoint(key=SecretStr("k")), model)
    assert {n: v for n, v in found.items() if "max" in n} == {field: 50}


def test_the_limit_is_sent_beside_a_prediction() -> None:
    """OpenAI refuses ``max_completion_tokens`` there."""
    guess = {"prediction": {"type": "content", "content": "x"}}
    request = limited_request(Request(CHAT, "m", {"messages": MESSAGES, **guess}), 50, "gpt-4o")
    assert sent(request, preset("openai").endpoint(key=SecretStr("k")), "gpt-4o")["max_tokens"] == 50


@pytest.mark.parametrize(
    "given", [{}, {"max_tokens": 0}, {"max_tokens": -1}, {"max_completion_tokens": None}]
)
@pytest.mark.parametrize("place", ["params", "body"])
def test_a_limit_that_is_none_is_replaced(given: dict[str, Any], place: str) -> None:
    params, body = (given, {}) if place == "params" else ({}, given)
    request = Request(CHAT, "m", {"messages": MESSAGES, **params}, options=PerCallOptions(body=body))
    limited = limited_request(request, 50, "m")
    for each in (preset("openai").endpoint(key=SecretStr("k")), ANTHROPIC, GEMINI):
        assert "50" in json.dumps(sent(limited, each))
        assert not {"max_tokens": 0, "max_completion_tokens": None}.items() & sent(limited, each).items()


def test_limits_of_the_other_operations() -> None:
    completed = limited_request(Request(COMPLETION, "m", {"prompt": "x", "max_tokens": None}), 16, "m")
    assert completed.params == {"prompt": "x", "max_tokens": 16}
    zero = Request(COMPLETION, "m", {"prompt": "x", "max_tokens": 0})  # a limit: nothing is generated
    assert limited_request(zero, None, "m") is zero
    assert limited_request(Request(RESPONSE, "m", {"input": "x"}), 9, "m").params["max_output_tokens"] == 9
    embedded = Request(EMBEDDING, "m", {"input": "x"})
    assert limited_request(embedded, 9, "m") is embedded


def test_a_request_with_a_limit_stays_as_it_is() -> None:
    params = {"messages": MESSAGES, "max_tokens": 5}
    native = NativeRequest("anthropic", {"messages": MESSAGES, "max_tokens": 5}, params)
    request = Request(CHAT, "m", params, options=PerCallOptions(native=native))
    assert limited_request(request, None, "m") is request


def test_a_request_in_a_vendors_own_form_gets_the_limit_there() -> None:
    params = {"messages": MESSAGES, "max_tokens": 0}
    native = NativeRequest("anthropic", {"messages": MESSAGES, "max_tokens": 0, "x": 1}, params)
    request = Request(CHAT, "m", params, options=PerCallOptions(native=native))
    body = sent(limited_request(request, 50, "m"), ANTHROPIC)
    assert (body["max_tokens"], body["x"]) == (50, 1)
    for name, settings in (
        ("generationConfig", {"maxOutputTokens": 0, "topK": 3}),
        ("generation_config", {"max_output_tokens": -1, "topK": 3}),
    ):
        params = {"messages": MESSAGES}
        written = {"contents": [{"parts": [{"text": "hi"}]}], name: settings}
        options = PerCallOptions(native=NativeRequest("gemini", written, params))
        body = sent(limited_request(Request(CHAT, "m", params, options=options), 50, "m"), GEMINI)
        assert body[name] == {"topK": 3, "maxOutputTokens": 50}

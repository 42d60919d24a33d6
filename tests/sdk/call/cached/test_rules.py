"""Which calls the response cache may answer."""

from __future__ import annotations

import pytest

from specclient.call.cached.rules import is_cacheable, is_random
from specclient.types.inference_methods import CHAT, COMPLETION, EMBEDDING, MODERATION, RESPONSE
from specclient.types.request import PerCallOptions, Request


def request(method=CHAT, body=None, **params) -> Request:
    return Request(method, "m", params, options=PerCallOptions(body=body or {}))


@pytest.mark.parametrize("method", [CHAT, COMPLETION, RESPONSE])
@pytest.mark.parametrize(
    ("params", "random"),
    [
        ({}, True),
        ({"temperature": None}, True),
        ({"temperature": 1}, True),
        ({"temperature": 1e-9}, True),
        ({"temperature": False}, True),
        ({"top_p": 0.1}, True),
        ({"seed": None}, True),
        ({"temperature": 0}, False),
        ({"temperature": 0.0}, False),
        ({"top_p": 0}, False),
        ({"seed": 7}, False),
        ({"seed": 0, "temperature": 1}, False),
    ],
)
def test_sampling_is_random_unless_it_is_greedy_or_seeded(method, params, random):
    assert is_random(request(method, **params)) is random


def test_extra_fields_count_as_parameters_and_win():
    assert not is_random(request(body={"top_k": 1}))
    assert not is_random(request(body={"temperature": 0}, temperature=1))
    assert is_random(request(body={"temperature": 1}, temperature=0))


def test_embeddings_are_not_random():
    assert not is_random(request(EMBEDDING, input="x"))


@pytest.mark.parametrize(
    ("tools", "random"),
    [
        ([{"type": "function", "function": {"name": "f"}}], False),
        ([{"type": "custom", "custom": {"name": "f"}}], False),
        ([{"type": "web_search"}], True),
        ([{"type": "function", "name": "f"}, {"type": "file_search"}], True),
        ([{"type": "mcp"}], True),
        ([{"name": "f"}], True),
    ],
)
def test_tools_that_the_provider_runs_are_random(tools, random):
    assert is_random(request(RESPONSE, temperature=0, tools=tools)) is random


def test_a_web_search_of_a_chat_is_random():
    assert is_random(request(temperature=0, web_search_options={}))


@pytest.mark.parametrize(
    ("call", "cacheable"),
    [
        (request(), True),
        (request(COMPLETION, prompt="x"), True),
        (request(EMBEDDING, input="x"), True),
        (request(MODERATION, input="x"), False),
        (request(RESPONSE, input="x"), True),
        (request(RESPONSE, input="x", previous_response_id="resp_1"), True),
        (request(RESPONSE, input="x", background=True), False),
        (request(RESPONSE, body={"background": True}), False),
        (request(RESPONSE, input="x", conversation="conv_1"), False),
        (request(RESPONSE, prompt={"id": "pmpt_1"}), False),
        (request(RESPONSE, prompt={"id": "pmpt_1", "version": "2"}), True),
        (Request(CHAT, "m", content=b"{}"), False),
    ],
)
def test_calls_with_other_effects_or_sources_are_not_cacheable(call, cacheable):
    assert is_cacheable(call) is cacheable

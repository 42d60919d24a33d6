"""The usage of each vendor in common fields: each token is counted once, and invalid counts are None."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.providers.usage import cached_in, usage_of, with_cached
from specclient.types.chat import ChatCompletion
from specclient.types.embedding import CreateEmbeddingResponse
from specclient.types.responses.models import Response
from specclient.types.usage import Usage

TOKENS = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}


def counted(usage: Any, **other_fields: Any) -> Usage | None:
    body = {"choices": [], "model": "m", "usage": usage, **other_fields}
    return usage_of(ChatCompletion.received(json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("usage", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 30}}, 30),  # OpenAI, xAI, OpenRouter
        ({"prompt_cache_hit_tokens": 30, "prompt_cache_miss_tokens": 20}, 30),  # DeepSeek
        (
            {
                "prompt_tokens_details": {"cached_tokens": 30},
                "prompt_cache_hit_tokens": 30,
                "prompt_cache_miss_tokens": 20,
            },
            30,
        ),  # DeepSeek sends the count twice
        ({"prompt_tokens_details": {"cached_tokens": 0}, "prompt_cache_hit_tokens": 0}, 0),
        ({"prompt_tokens_details": {"cached_tokens": -4}, "prompt_cache_hit_tokens": 30}, 30),
        ({"prompt_tokens_details": {"cached_tokens": "many"}}, None),
        ({"prompt_tokens_details": "none"}, None),
        ({}, None),
    ],
)
def test_tokens_read_from_a_cache_are_part_of_the_prompt(usage: Any, cached: int | None) -> None:
    assert counted({**TOKENS, **usage}) == Usage(prompt=50, completion=9, cached=cached)


@pytest.mark.parametrize(
    ("value", "cached"), [(8, 8), ("8", 8), (0, 0), ("-8", None), ("8.5", None), (True, None), ("51", None)]
)
def test_fireworks_cached_tokens_are_read_from_perf_metrics_or_headers(
    value: Any, cached: int | None
) -> None:
    expected = Usage(prompt=50, completion=9, cached=cached)
    assert counted(TOKENS, perf_metrics={"cached-prompt-tokens": value}) == expected
    headers = {"fireworks-cached-prompt-tokens": str(value)}
    assert with_cached(Usage(prompt=50, completion=9), cached_in(headers)) == expected


def test_cached_tokens_of_the_usage_precede_perf_metrics_and_headers() -> None:
    usage = {**TOKENS, "prompt_tokens_details": {"cached_tokens": 3}}
    found = counted(usage, perf_metrics={"cached-prompt-tokens": 8})
    assert found is not None
    assert found.cached == 3
    assert with_cached(found, 8).cached == 3
    assert with_cached(Usage(), 8) == Usage()
    assert cached_in({}) is None


@pytest.mark.parametrize("odd", [-1, "7", 7.5, None, [7], 10**40])
def test_invalid_counts_are_unknown(odd: Any) -> None:
    found = counted(
        {
            "prompt_tokens": odd,
            "completion_tokens": odd,
            "total_tokens": odd,
            "prompt_tokens_details": {"cached_tokens": odd, "cache_write_tokens": odd},
            "completion_tokens_details": {"reasoning_tokens": odd, "rejected_prediction_tokens": odd},
        }
    )
    assert found is not None
    assert {found.cached, found.cache_write, found.reasoning, found.rejected_prediction} <= {None, 7}
    assert {found.prompt, found.completion} <= {None, 7, 0}


def test_the_usage_of_responses_and_embeddings() -> None:
    usage = {
        "input_tokens": 40,
        "output_tokens": 8,
        "input_tokens_details": {"cached_tokens": 30},
        "output_tokens_details": {"reasoning_tokens": -2},
    }
    assert usage_of(Response.received(json.dumps({"usage": usage}).encode())) == Usage(
        prompt=40, completion=8, cached=30
    )
    embedded = {"data": [], "usage": {"prompt_tokens": 5, "total_tokens": 5}}
    assert usage_of(CreateEmbeddingResponse.received(json.dumps(embedded).encode())) == Usage(
        prompt=5, completion=0
    )
    assert usage_of(Response.received(b'{"usage": "none"}')) is None


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
names = ["prompt_tokens", "completion_tokens", "total_tokens", "reasoning_tokens", "prompt_cache_hit_tokens"]
details = st.dictionaries(st.sampled_from(["cached_tokens", "reasoning_tokens"]), odd) | odd
usages = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(names, odd),
        "prompt_tokens_details": details,
        "completion_tokens_details": details,
    },
)


@given(usage=usages, other_fields=odd)
def test_arbitrary_usage_gives_valid_counts_or_none(usage: Any, other_fields: Any) -> None:
    body = json.dumps({"choices": [], "usage": usage, "perf_metrics": other_fields, "x_groq": other_fields})
    found = usage_of(ChatCompletion.received(body.encode()))
    if found is not None:
        counts = (found.prompt, found.completion, found.cached, found.cache_write, found.reasoning)
        assert all(count is None or (type(count) is int and count >= 0) for count in counts)

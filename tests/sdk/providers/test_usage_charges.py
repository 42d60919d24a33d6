"""Costs, cache durations and non-text tokens reported by responses and streams."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from specclient.providers.anthropic.dialect import AnthropicDialect
from specclient.providers.usage import usage_of
from specclient.types.chat import ChatCompletion, ChatCompletionChunk
from specclient.types.inference_methods import CHAT
from specclient.types.responses.models import Response
from specclient.types.usage import ReportedCharge
from specclient.types.wire import WireResponse

TOKENS = {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59}


def charges(usage: dict[str, Any]) -> tuple[ReportedCharge, ...]:
    body = json.dumps({"choices": [], "model": "m", "usage": {**TOKENS, **usage}}).encode()
    whole, chunk = usage_of(ChatCompletion.received(body)), usage_of(ChatCompletionChunk.received(body))
    assert whole is not None
    assert whole == chunk
    return whole.charges


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, ()),
        (
            {"cost_in_usd_ticks": 37756000},
            (ReportedCharge("cost_in_usd_ticks", Decimal("0.0037756")),),
        ),  # xAI's page
        ({"cost": 0.00014}, (ReportedCharge("cost", Decimal("0.00014")),)),
        ({"cost": 0}, (ReportedCharge("cost", Decimal(0)),)),
        ({"cost": 1e-7}, (ReportedCharge("cost", Decimal("1e-7")),)),
        (
            {"cost": 0.05, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.95}},
            (ReportedCharge("cost", Decimal("1.00")),),
        ),
        (
            {"cost": 0.95, "is_byok": False, "cost_details": {"upstream_inference_cost": 19}},
            (ReportedCharge("cost", Decimal("0.95")),),
        ),
        ({"cost": 0.05, "is_byok": True, "cost_details": {}}, ()),  # a fee alone is not the cost
        ({"cost": -1}, ()),
        ({"cost": "0.5"}, ()),
        ({"cost": True}, ()),
        ({"cost": {"total_cost": 1}}, ()),
        ({"cost_in_usd_ticks": -5}, ()),
        ({"cost_in_usd_ticks": 1.5}, ()),
        ({"cost_usd": 0.5}, ()),
    ],
)
def test_reported_costs_are_read(usage: dict[str, Any], expected: tuple[ReportedCharge, ...]) -> None:
    assert charges(usage) == expected


def test_a_cost_that_is_not_finite_is_ignored() -> None:
    body = b'{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "cost": %b}}'
    for odd in (b"NaN", b"Infinity", b"1e999"):
        found = usage_of(ChatCompletion.received(body % odd))
        assert found is not None
        assert found.charges == ()


def test_a_cost_reported_by_the_responses_api_is_read() -> None:
    usage = {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7, "cost_in_usd_ticks": 10**10}
    found = usage_of(Response.received(json.dumps({"id": "r", "output": [], "usage": usage}).encode()))
    assert found is not None
    assert found.charges == (ReportedCharge("cost_in_usd_ticks", Decimal(1)),)


@pytest.mark.parametrize(("hour", "expected"), [(40, 40), (0, 0), (-1, None), ("40", None), (None, None)])
def test_cache_writes_for_an_hour_are_a_part_of_all_cache_writes(hour: Any, expected: int | None) -> None:
    usage = {
        "input_tokens": 10,
        "output_tokens": 3,
        "cache_creation_input_tokens": 100,
        "cache_read_input_tokens": 7,
        "cache_creation": {"ephemeral_5m_input_tokens": 60, "ephemeral_1h_input_tokens": hour},
    }
    body = {"id": "m", "model": "claude", "role": "assistant", "content": [], "usage": usage}
    dialect = AnthropicDialect()
    found = dialect.usage(dialect.decode(CHAT, WireResponse(200, {}, json.dumps(body).encode())))
    assert found is not None
    assert (found.prompt, found.cached, found.cache_write) == (117, 7, 100)
    assert found.cache_write_1h == expected


def test_audio_images_and_searches_are_counted_by_kind() -> None:
    details = {
        "prompt_tokens_details": {"audio_tokens": 20, "image_tokens": 10, "text_tokens": 20},
        "completion_tokens_details": {"audio_tokens": 5, "image_tokens": 1},
        "server_tool_use": {"web_search_requests": 2},
    }
    found = usage_of(ChatCompletion.received(json.dumps({"choices": [], "usage": TOKENS | details}).encode()))
    assert found is not None
    assert (found.audio_prompt, found.image_prompt, found.searches) == (20, 10, 2)
    assert (found.audio_completion, found.image_completion) == (5, 1)


def test_transcribed_speech_is_counted_as_audio() -> None:
    """The usage of OpenAI's transcriptions, whose details have another name than those of responses."""
    usage = {
        "type": "tokens",
        "input_tokens": 14,
        "input_token_details": {"text_tokens": 2, "audio_tokens": 12},
        "output_tokens": 45,
        "total_tokens": 59,
    }
    found = usage_of(Response.received(json.dumps({"usage": usage}).encode()))
    assert found is not None
    assert (found.prompt, found.completion, found.audio_prompt) == (14, 45, 12)

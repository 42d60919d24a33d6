"""A streamed call costs exactly the same as one that is not streamed, in every vendor's dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback_server import OpenAIServer, events, reply
from paths import DATA

from specclient import OpenAI, Provider
from specclient.config import Settings
from specclient.prices.prices import Prices
from specclient.providers import dialect
from specclient.types.call import Call
from specclient.types.capabilities import UNKNOWN_CAPABILITIES, Capabilities
from specclient.types.inference_methods import CHAT
from specclient.types.wire import WireResponse

ASK: Any = [{"role": "user", "content": "x"}]
AT = datetime(2026, 11, 1, tzinfo=UTC)

RECORDED = [
    (kind, model, vendor, path.stem)
    for kind, model, vendor in (
        ("anthropic", "claude-sonnet-4-5", "anthropic"),
        ("gemini", "gemini-2.5-flash", "google"),
    )
    for path in sorted((DATA / kind).glob("*.sse"))
    if path.with_suffix(".json").is_file() and path.stem != "overloaded"  # whose JSON is an error
]


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


def complete_and_streamed(
    server: OpenAIServer,
    dialect_name: str,
    vendor: str,
    model: str,
    whole: bytes,
    stream: bytes,
    known: Capabilities = UNKNOWN_CAPABILITIES,
    **settings: Any,
) -> list[Call]:
    """Return the records of the same call, not streamed and streamed."""
    json_type = {"content-type": "application/json"}
    server.script(reply(200, whole, json_type), events(stream))
    mine = Provider(
        name="mine",
        base_url=server.base_url,
        dialect=dialect_name,
        key="k",
        price_provider=vendor,
        capabilities=known,
    )
    with OpenAI(providers=[mine], config=Settings(**settings)) as client:
        ask: Any = {"model": f"mine/{model}", "messages": ASK}
        answer = client.chat.completions.create(**ask)
        chunks = client.chat.completions.create(**ask, stream=True)
        for _ in chunks:
            pass
        return [answer.meta, chunks.meta]


@pytest.mark.parametrize(("dialect_name", "model", "vendor", "name"), RECORDED)
def test_recorded_responses_cost_the_same_streamed(
    server: OpenAIServer, dialect_name: str, model: str, vendor: str, name: str
) -> None:
    whole, stream = ((DATA / dialect_name / f"{name}.{kind}").read_bytes() for kind in ("json", "sse"))
    complete, streamed = complete_and_streamed(server, dialect_name, vendor, model, whole, stream)
    assert complete.usage == streamed.usage
    assert complete.cost == streamed.cost
    if complete.usage.traffic == "priority":
        assert complete.cost.source == "the service tier 'priority' is paid by its reservation, not by tokens"
        return
    assert complete.cost.total
    assert not complete.cost.estimated
    assert sum(complete.cost.by_kind.values()) == complete.cost.total


def test_every_kind_of_cached_tokens_is_billed_at_its_own_rate(server: OpenAIServer) -> None:
    whole, stream = ((DATA / "anthropic" / f"text.{kind}").read_bytes() for kind in ("json", "sse"))
    one, _ = complete_and_streamed(server, "anthropic", "anthropic", "claude-sonnet-4-5", whole, stream)
    million = Decimal(1_000_000)
    assert one.cost.by_kind == {
        "input": 25 * 2 / million,
        "cached_input": 2000 * Decimal("0.2") / million,
        "cache_write": 60 * Decimal("2.5") / million,
        "cache_write_1h": 40 * 4 / million,
        "output": 12 * 10 / million,
    }
    assert "claude-sonnet-5" in one.cost.source  # the served model, not the requested one


@pytest.mark.parametrize(
    ("vendor", "usage", "dollars", "source"),
    [
        ("openrouter", {"cost": 0.00014}, "0.00014", "reported by the provider: usage.cost"),
        (
            "x-ai",
            {"cost_in_usd_ticks": 37756000},
            "0.0037756",
            "reported by the provider: usage.cost_in_usd_ticks",
        ),
    ],
)
def test_a_cost_reported_by_the_vendor_applies_streamed_or_not(
    server: OpenAIServer, vendor: str, usage: dict[str, Any], dollars: str, source: str
) -> None:
    tokens = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **usage}
    calls = complete_and_streamed(server, "openai", vendor, "grok-4", *_openai(tokens))
    for call in calls:
        assert (call.cost.total, call.cost.source) == (Decimal(dollars), source)
        assert not call.cost.estimated


@pytest.mark.parametrize(("billed", "rejected"), [(None, "0.000032"), (True, "0.000032"), (False, None)])
def test_rejected_tokens_are_billed_unless_the_vendor_does_not(
    server: OpenAIServer, billed: bool | None, rejected: str | None
) -> None:
    usage = {
        "prompt_tokens": 0,
        "completion_tokens": 77,
        "total_tokens": 77,
        "completion_tokens_details": {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 4},
    }
    known = Capabilities(rejected_billed=billed)
    for call in complete_and_streamed(server, "openai", "openai", "gpt-4.1", *_openai(usage), known):
        assert call.cost.total == Decimal("0.000616")  # 77 at $8 a million, however they are divided
        assert call.cost.by_kind.get("rejected_prediction") == (Decimal(rejected) if rejected else None)


def test_a_price_per_gpu_second_is_charged_for_the_latency_of_the_call(server: OpenAIServer) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    tables = {"mine/m": {"per_gpu_second": "3600"}}
    for call in complete_and_streamed(server, "openai", "openai", "m", *_openai(usage), prices=tables):
        assert call.cost.by_kind.keys() == {"engine"}
        assert call.cost.total == pytest.approx(Decimal(call.latency_s) * 3600, abs=Decimal("1e-6"))
        assert call.cost.estimated


def _openai(usage: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return a response with this usage, and the equal stream."""
    frame = {"id": "c", "created": 1, "model": "m"}
    choice = {"index": 0, "finish_reason": "stop"}
    whole = {
        **frame,
        "object": "chat.completion",
        "choices": [{**choice, "message": {"role": "assistant", "content": "hi"}}],
        "usage": usage,
    }
    chunks = [
        {**frame, "object": "chat.completion.chunk", "choices": [{**choice, "delta": {"content": "hi"}}]},
        {**frame, "object": "chat.completion.chunk", "choices": [], "usage": usage},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return json.dumps(whole).encode(), "".join([*lines, "data: [DONE]\n\n"]).encode()


counts = st.integers(0, 10**6)
details = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("cached_tokens", "cache_write_tokens", "reasoning_tokens", "rejected_prediction_tokens"), counts
    ),
)


@given(
    prompt=counts,
    completion=counts,
    inputs=details,
    outputs=details,
    extra=st.fixed_dictionaries(
        {},
        optional={"cost": st.floats(0, 10), "cost_in_usd_ticks": counts, "prompt_cache_hit_tokens": counts},
    ),
    vendor=st.sampled_from(["openai", "openrouter", "x-ai", "mistral", "deepseek", "*"]),
    billed=st.sampled_from([True, False, None]),
)
def test_any_openai_usage_costs_the_same_in_the_last_chunk_of_a_stream(
    prompt: int,
    completion: int,
    inputs: dict[str, int],
    outputs: dict[str, int],
    extra: dict[str, Any],
    vendor: str,
    billed: bool | None,
) -> None:
    usage_fields = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": inputs,
        "completion_tokens_details": outputs,
        **extra,
    }
    whole, stream = _openai(usage_fields)
    openai = dialect("openai")
    read = openai.events(CHAT)
    last = read(stream.split(b"\n\n")[1].removeprefix(b"data: "), None)
    prices = Prices(Settings(), now=lambda: AT)
    costs = []
    for answer in (openai.decode(CHAT, WireResponse(200, {}, whole)), last):
        usage = openai.usage(answer)
        assert usage is not None
        costs.append(
            prices.price(
                usage, "mine", "gpt-4.1", price_provider=vendor, at=AT, rejected_billed=billed, latency_s=1.0
            )
        )
    assert costs[0] == costs[1]
    if costs[0].total is not None:
        assert sum(costs[0].by_kind.values()) == costs[0].total

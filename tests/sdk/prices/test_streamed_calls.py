"""A streamed call costs what the same call costs whole, in every vendor's language, to the last digit."""

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
    if path.with_suffix(".json").is_file() and path.stem != "overloaded"  # an error, whole
]


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


def both(
    server: OpenAIServer,
    speaks: str,
    vendor: str,
    model: str,
    whole: bytes,
    stream: bytes,
    known: Capabilities = UNKNOWN_CAPABILITIES,
    **settings: Any,
) -> list[Call]:
    """Return the records of one call asked for whole, and as a stream read to its end."""
    json_type = {"content-type": "application/json"}
    server.script(reply(200, whole, json_type), events(stream))
    mine = Provider(
        name="mine",
        base_url=server.base_url,
        dialect=speaks,
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


@pytest.mark.parametrize(("speaks", "model", "vendor", "name"), RECORDED)
def test_recorded_answers(server: OpenAIServer, speaks: str, model: str, vendor: str, name: str) -> None:
    whole, stream = ((DATA / speaks / f"{name}.{kind}").read_bytes() for kind in ("json", "sse"))
    one, other = both(server, speaks, vendor, model, whole, stream)
    assert one.usage == other.usage
    assert one.cost == other.cost
    assert one.cost.total
    assert not one.cost.estimated
    assert sum(one.cost.by_kind.values()) == one.cost.total


def test_every_kind_of_cache_is_billed_at_its_own_rate(server: OpenAIServer) -> None:
    whole, stream = ((DATA / "anthropic" / f"text.{kind}").read_bytes() for kind in ("json", "sse"))
    one, _ = both(server, "anthropic", "anthropic", "claude-sonnet-4-5", whole, stream)
    million = Decimal(1_000_000)
    assert one.cost.by_kind == {
        "input": 25 * 2 / million,
        "cached_input": 2000 * Decimal("0.2") / million,
        "cache_write": 60 * Decimal("2.5") / million,
        "cache_write_1h": 40 * 4 / million,
        "output": 12 * 10 / million,
    }
    assert "claude-sonnet-5" in one.cost.source  # the model that served, not the one that was asked for


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
def test_what_the_vendor_says_wins_streamed_as_whole(
    server: OpenAIServer, vendor: str, usage: dict[str, Any], dollars: str, source: str
) -> None:
    tokens = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, **usage}
    calls = both(server, "openai", vendor, "grok-4", *_openai(tokens))
    for call in calls:
        assert (call.cost.total, call.cost.source) == (Decimal(dollars), source)
        assert not call.cost.estimated


@pytest.mark.parametrize(("billed", "rejected"), [(None, "0.000032"), (True, "0.000032"), (False, None)])
def test_rejected_tokens_are_billed_where_the_vendor_bills_them(
    server: OpenAIServer, billed: bool | None, rejected: str | None
) -> None:
    usage = {
        "prompt_tokens": 0,
        "completion_tokens": 77,
        "total_tokens": 77,
        "completion_tokens_details": {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 4},
    }
    known = Capabilities(rejected_billed=billed)
    for call in both(server, "openai", "openai", "gpt-4.1", *_openai(usage), known):
        assert call.cost.total == Decimal("0.000616")  # 77 at $8 a million, however they are parted
        assert call.cost.by_kind.get("rejected_prediction") == (Decimal(rejected) if rejected else None)


def test_a_server_paid_by_the_second_is_paid_by_the_seconds_of_the_call(server: OpenAIServer) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    tables = {"mine/m": {"per_gpu_second": "3600"}}
    for call in both(server, "openai", "openai", "m", *_openai(usage), prices=tables):
        assert call.cost.by_kind.keys() == {"engine"}
        assert call.cost.total == pytest.approx(Decimal(call.latency_s) * 3600, abs=Decimal("1e-6"))
        assert call.cost.estimated


def _openai(usage: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return a whole answer of this usage, and the stream that says the same."""
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
def test_any_usage_of_openais_form_costs_the_same_in_a_last_chunk(
    prompt: int,
    completion: int,
    inputs: dict[str, int],
    outputs: dict[str, int],
    extra: dict[str, Any],
    vendor: str,
    billed: bool | None,
) -> None:
    told = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": inputs,
        "completion_tokens_details": outputs,
        **extra,
    }
    whole, stream = _openai(told)
    speaks = dialect("openai")
    read = speaks.events(CHAT)
    last = read(stream.split(b"\n\n")[1].removeprefix(b"data: "), None)
    prices = Prices(Settings(), now=lambda: AT)
    costs = []
    for answer in (speaks.decode(CHAT, WireResponse(200, {}, whole)), last):
        usage = speaks.usage(answer)
        assert usage is not None
        costs.append(
            prices.price(
                usage, "mine", "gpt-4.1", price_provider=vendor, at=AT, rejected_billed=billed, latency_s=1.0
            )
        )
    assert costs[0] == costs[1]
    if costs[0].total is not None:
        assert sum(costs[0].by_kind.values()) == costs[0].total

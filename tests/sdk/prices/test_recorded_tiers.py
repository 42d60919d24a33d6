"""Answers as vendors send them, whole and streamed, cost what the tier that they name costs.

Prices of tiers are those that the catalogue lists from the vendors' pages; a tier without a listed price is
unpriced, and one that is paid by a reservation, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import anthropic_bodies
import pytest
from paths import DATA

from specclient.call.recorder import CallRecorder
from specclient.config import Settings
from specclient.http_transport.sse import SSEDecoder
from specclient.prices.prices import Prices
from specclient.providers import dialect
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import Usage
from specclient.types.wire import WireResponse

PRICES = Prices(Settings())


def recorder(vendor: str, model: str, price_provider: str) -> CallRecorder:
    route = Decision(chosen=f"{vendor}/{model}", provider=vendor, model=model)
    request = Request(CHAT, route.chosen, {"messages": [{"role": "user", "content": "x"}]})
    return CallRecorder(
        request, route, PRICES, clock=lambda: 0.0, hosted=True, price_provider=price_provider,
        rejected_billed=None,
    )  # fmt: skip


def whole(name: str, model: str, price_provider: str, body: Mapping[str, Any]) -> Call:
    wire, record = dialect(name), recorder(name, model, price_provider)
    answer = wire.decode(CHAT, WireResponse(200, {}, json.dumps(body).encode()))
    record.note_answer(answer, wire.usage(answer))
    return record.close()


def streamed(name: str, model: str, price_provider: str, stream: bytes) -> Call:
    wire, record = dialect(name), recorder(name, model, price_provider)
    read = wire.events(CHAT)
    for event in SSEDecoder().feed(stream):
        found = read(event.data, event.event)
        for chunk in found if isinstance(found, list) else [] if found is None else [found]:
            record.note_chunk(chunk, wire.usage(chunk))
    return record.close()


def price(call: Call, tier: str | None, price_provider: str) -> Decimal | None:
    """Return what the tokens of a call cost in a tier, by the catalogue."""
    usage = Usage(**{name: getattr(call.usage, name) for name in TOKENS}, traffic=tier)
    model = call.served_model or call.route.model
    now = datetime.now(UTC)
    return PRICES.price(usage, call.provider, model, price_provider=price_provider, at=now).total


TOKENS = ("prompt", "completion", "cached", "cache_write", "cache_write_1h", "reasoning")


def check(
    calls: list[Call], tier: str, price_provider: str, share: Decimal | None, *, estimated: bool = False
) -> None:
    """Check that all calls have the tier's price, and this share of the standard one; None for unpriced."""
    for call in calls:
        assert call.cost.tier == ("standard" if tier in ("standard", "default", "on_demand") else tier)
        assert call.cost.estimated == estimated
        assert call.cost.total == price(call, tier, price_provider)
        standard = price(call, None, price_provider)
        assert standard
        assert (None if call.cost.total is None else call.cost.total / standard) == share


@pytest.mark.parametrize(
    ("tier", "share"), [("standard", Decimal(1)), ("batch", Decimal("0.5")), ("priority", None)]
)
def test_anthropics_service_tiers(tier: str, share: Decimal | None) -> None:
    model = "claude-sonnet-5"
    body = json.loads(anthropic_bodies.body("text.json"))
    body["usage"]["service_tier"] = tier
    stream = anthropic_bodies.body("text.sse").replace(
        b'"service_tier": "standard"', f'"service_tier": "{tier}"'.encode()
    )
    assert tier.encode() in stream
    calls = [whole("anthropic", model, "anthropic", body), streamed("anthropic", model, "anthropic", stream)]
    check(calls, tier, "anthropic", share)
    assert calls[0].usage.cache_write_1h == 40, "tokens written for an hour have a price of their own"


def test_anthropics_fast_mode() -> None:
    body = json.loads(anthropic_bodies.body("text.json")) | {"model": "claude-opus-5"}
    body["usage"] |= {"speed": "fast", "service_tier": None}
    call = whole("anthropic", "claude-opus-5", "anthropic", body)
    standard = price(call, None, "anthropic")
    assert call.cost.total == price(call, "fast", "anthropic")
    assert standard
    assert call.cost.total > standard  # type: ignore[operator]


@pytest.mark.parametrize(
    ("model", "tier", "share"),
    [
        ("gemini-2.5-flash", "standard", Decimal(1)),
        ("gemini-2.5-flash", "flex", Decimal("0.5")),
        ("gemini-2.5-flash", "priority", Decimal("1.8")),
        ("gemini-2.5-flash", "fast", None),
        ("gemini-3.8-flash-tts", "flex", Decimal("0.5")),
        ("gemini-3.8-flash-tts", "priority", Decimal("1.8")),
    ],
)
def test_geminis_service_tiers(model: str, tier: str, share: Decimal | None) -> None:
    body = json.loads((DATA / "gemini" / "text.json").read_text()) | {"modelVersion": model}
    body["usageMetadata"] = {"promptTokenCount": 1000, "candidatesTokenCount": 100, "serviceTier": tier}
    chunk = b"data: " + json.dumps(body).encode() + b"\n\n"
    check(
        [whole("gemini", model, "google", body), streamed("gemini", model, "google", chunk)],
        tier,
        "google",
        share,
        estimated=(model, tier) == ("gemini-2.5-flash", "flex"),
    )


GROQ = "openai/gpt-oss-120b"


@pytest.mark.parametrize(
    ("tier", "share"), [("on_demand", Decimal(1)), ("flex", Decimal(1)), ("performance", None)]
)
def test_groqs_service_tiers(tier: str, share: Decimal | None) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    head = {"id": "c", "created": 1, "model": GROQ, "service_tier": tier}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    body = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
    delta = {"index": 0, "delta": {"content": "x"}, "finish_reason": "stop"}
    chunk = {
        **head,
        "object": "chat.completion.chunk",
        "choices": [delta],
        "x_groq": {"id": "r", "usage": usage},
    }
    stream = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
    check(
        [whole("openai", GROQ, "groq", body), streamed("openai", GROQ, "groq", stream)], tier, "groq", share
    )


@pytest.mark.parametrize(("tier", "share"), [("default", Decimal(1)), ("flex", None), ("priority", None)])
def test_bedrocks_service_tiers(tier: str, share: Decimal | None) -> None:
    body = json.loads((DATA / "bedrock" / "text.json").read_text())
    body = body.get("answer", body)
    body = next((value for value in body.values() if isinstance(value, dict) and "output" in value), body)
    body = body | {"serviceTier": {"type": tier}}
    model = "anthropic.claude-sonnet-4-5-20250929-v1:0"
    check([whole("bedrock", model, "aws", body)], tier, "aws", share)

"""Regions have the price that the vendor's page states for them, and never the standard one in silence."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import anthropic_bodies
import pytest

from specclient.call.decode import usage_reader
from specclient.config import Settings
from specclient.prices.prices import Prices
from specclient.prices.region_prices import REGION_PRICES
from specclient.providers import Endpoint, dialect, dialect_of
from specclient.providers.presets.registry import preset_for_url, region_of
from specclient.types.inference_methods import CHAT
from specclient.types.usage import Cost, Usage
from specclient.types.wire import WireResponse

NOW = datetime(2026, 11, 27, tzinfo=UTC)


def cost(model: str, region: str | None, vendor: str = "openai", **settings: object) -> Cost:
    usage = Usage(prompt=10_000, completion=1000, cached=2000, region=region)
    prices = Prices(Settings.model_validate(settings))
    return prices.price(usage, vendor, model, price_provider=vendor, at=NOW)


@pytest.mark.parametrize(
    ("model", "factor"),
    [
        ("gpt-4.1", "1"), ("gpt-5", "1"), ("gpt-5-mini", "1"), ("gpt-5.2-pro", "1"), ("o3", "1"),
        ("gpt-5.4", "1.1"), ("gpt-5.4-nano", "1.1"), ("gpt-5.5", "1.1"), ("gpt-5.6-luna", "1.1"),
        ("gpt-6-sol", "1.1"),
    ],
)  # fmt: skip
def test_openais_regions_cost_a_tenth_more_since_march_2026(model: str, factor: str) -> None:
    standard, regional = cost(model, None), cost(model, "eu")
    assert standard.total
    assert regional.total == standard.total * Decimal(factor)
    assert regional.estimated == (factor != "1")
    assert factor == "1" or "https://developers.openai.com/api/docs/pricing, 2026-07-30" in regional.source


def test_the_address_names_openais_region() -> None:
    addresses = [
        "https://eu.api.openai.com/v1",
        "https://mtls-us.api.openai.com/v1",
        "https://api.openai.com/v1",
    ]
    assert [region_of(each) for each in addresses] == ["eu", "us", None]
    assert region_of("https://eu.api.openai.com.example/v1") is None
    assert preset_for_url(addresses[0]) == preset_for_url(addresses[2])
    endpoint = Endpoint(name="mine", base_url=addresses[0])
    body = {"choices": [], "id": "c", "created": 1, "model": "gpt-5.4", "object": "chat.completion"}
    wire = WireResponse(200, {}, json.dumps(body | {"usage": {"prompt_tokens": 1}}).encode())
    answer = dialect_of(endpoint).decode(CHAT, wire)
    assert usage_reader(endpoint)(answer) == Usage(prompt=1, region="eu")


@pytest.mark.parametrize(("region", "factor"), [("us", "1.1"), ("global", "1"), ("not_available", "1")])
def test_an_answer_names_anthropics_region(region: str, factor: str) -> None:
    body = json.loads(anthropic_bodies.body("text.json"))
    body["usage"]["inference_geo"] = region
    answer = dialect("anthropic").decode(CHAT, WireResponse(200, {}, json.dumps(body).encode()))
    usage = dialect("anthropic").usage(answer)
    assert usage is not None
    assert usage.region == region
    standard, regional = cost("claude-opus-5", None, "anthropic"), cost("claude-opus-5", region, "anthropic")
    assert standard.total
    assert regional.total == standard.total * Decimal(factor)
    assert not regional.estimated


def test_a_region_that_no_page_states_is_unpriced_and_a_table_prices_it() -> None:
    found = cost("claude-opus-5", "eu", "anthropic")
    assert found.total is None
    assert "in the region 'eu'; set [prices.\"anthropic/claude-opus-5\"]" in found.source
    table = {"anthropic/claude-opus-5": {"input": "1", "output": "1"}}
    assert cost("claude-opus-5", "eu", "anthropic", prices=table).total == Decimal("0.011")


def test_every_row_has_a_page_and_a_date() -> None:
    assert all(row.source.startswith("https://") and row.read <= NOW.date() for row in REGION_PRICES)


def test_a_table_of_a_tier_has_the_price_of_every_region() -> None:
    table = {"openai/gpt-5.4": {"tiers": {"flex": {"input": 1, "output": 1}}}}
    prices = Prices(Settings.model_validate({"prices": table}))
    for region in (None, "eu"):
        usage = Usage(prompt=10**6, completion=0, traffic="flex", region=region)
        assert prices.price(usage, "openai", "gpt-5.4", price_provider="openai", at=NOW).total == 1

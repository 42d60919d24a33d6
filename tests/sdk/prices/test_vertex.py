"""Prices of Vertex AI by location and traffic; what no page states is unpriced."""

from __future__ import annotations

from decimal import Decimal

import pytest

from specclient.prices.catalogue import find_model
from specclient.prices.rates import PriceRates
from specclient.prices.vertex import dearest_traffic, factor_of
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request


@pytest.mark.parametrize(
    ("model", "regional"),
    [
        ("claude-3-7-sonnet@20250219", "1"),
        ("claude-opus-4@20250514", "1"),
        ("claude-opus-4-20250514", "1"),
        ("claude-opus-4-1@20250805", "1"),
        ("claude-sonnet-4-5@20250929", "1.1"),
        ("anthropic/claude-haiku-4-5", "1.1"),
        ("claude-opus-4-10", "1.1"),
        ("gemini-2.5-pro", "1"),
        ("gemini-3.1-flash-lite", "1.1"),
        ("gemini-3.8-flash", "1.1"),
        ("gemini-3.8-live", None),
        ("gemini-3-pro-preview", None),
        ("gemini-2.0-flash", None),
        ("unheard-of", None),
    ],
)
def test_a_model_outside_global_has_its_factor_or_none(model: str, regional: str | None) -> None:
    found = factor_of("vertex-regional", model, None)
    assert (None if found is None else found.factor) == (None if regional is None else Decimal(regional))


@pytest.mark.parametrize(
    ("model", "traffic", "factor"),
    [
        ("gemini-3.5-flash", None, "1"),
        ("gemini-3.5-flash", "ON_DEMAND", "1"),
        ("gemini-3.5-flash", "ON_DEMAND_PRIORITY", "1.8"),
        ("gemini-3.5-flash", "ON_DEMAND_FLEX", "0.5"),
        ("gemini-3.5-flash", "priority", "1.8"),
        ("gemini-3.5-flash", "flex", "0.5"),
        ("claude-opus-4-5", "default", "1"),
        ("claude-opus-4-5", "batch", None),
        ("gemini-2.5-flash", "ON_DEMAND_PRIORITY", "1.8"),
        ("gemini-2.5-flash", "ON_DEMAND_FLEX", None),
        ("gemini-3.5-flash", "PROVISIONED_THROUGHPUT", None),
        ("gemini-3.5-flash", "SOMETHING_NEW", None),
        ("gemini-2.0-flash", None, None),
        ("gemini-3.8-flash-cyber", None, None),
    ],
)
def test_traffic_has_its_factor_or_none(model: str, traffic: str | None, factor: str | None) -> None:
    found = factor_of("vertex", model, traffic)
    assert (None if found is None else found.factor) == (None if factor is None else Decimal(factor))


def test_a_factor_applies_to_tokens_alone() -> None:
    rates = PriceRates(
        input=Decimal(2), cached_input=Decimal("0.2"), per_call=Decimal(3), per_search=Decimal(4)
    )
    assert rates.times(Decimal("1.1")) == PriceRates(
        input=Decimal("2.2"), cached_input=Decimal("0.22"), per_call=Decimal(3), per_search=Decimal(4)
    )
    assert rates.times(Decimal(1)) is rates


def test_models_are_found_by_name_version_and_publisher() -> None:
    for name in ("claude-sonnet-4-5@20250929", "anthropic/claude-sonnet-4-5", "claude-sonnet-4-5-20250929"):
        found = find_model("vertex-regional", name)
        assert found is not None
        assert (found.vendor, found.model.id) == ("google", "claude-sonnet-4-5")
    assert find_model("vertex", "text-embedding-005") is None


@pytest.mark.parametrize(
    ("request_", "traffic"),
    [
        (Request(CHAT, "vertex/m", {"messages": []}), None),
        (Request(CHAT, "vertex/m", {"service_tier": "flex"}), None),
        (Request(CHAT, "vertex/m", {"service_tier": "priority"}), "ON_DEMAND_PRIORITY"),
        (
            Request(CHAT, "vertex/m", options=PerCallOptions(body={"serviceTier": "PRIORITY"})),
            "ON_DEMAND_PRIORITY",
        ),
        (
            Request(
                CHAT,
                "vertex/m",
                options=PerCallOptions(headers={"X-Vertex-AI-LLM-Shared-Request-Type": "priority"}),
            ),
            "ON_DEMAND_PRIORITY",
        ),
    ],
)
def test_the_dearest_traffic_that_a_request_asks_for(request_: Request, traffic: str | None) -> None:
    assert dearest_traffic(request_) == traffic

"""Calls are priced by the service tier that served them; a tier without a known price is unpriced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import Usage as CatalogueUsage
from genai_prices import calc_price
from genai_prices.data_snapshot import get_snapshot
from loopback_server import OpenAIServer, events, reply

from specclient import OpenAI, Provider
from specclient.budgets.bounds import bound_of
from specclient.config import Settings
from specclient.errors import ConfigurationError
from specclient.ledger.row import LedgerRow
from specclient.prices.prices import Prices
from specclient.prices.service_tiers import requested_tier, tier_name
from specclient.routing.learn.estimator import Estimator
from specclient.types.call import Call
from specclient.types.inference_methods import CHAT
from specclient.types.request import PerCallOptions, Request
from specclient.types.route import Decision
from specclient.types.usage import Cost, Usage

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
TOKENS = Usage(prompt=1000, completion=100)

#: The variants of the catalogue: vendor, model, the key that selects the variant, and the tier.
VARIANTS = sorted(
    {
        (provider.id, model.id, key, tier)
        for provider in get_snapshot().providers
        for model in provider.models
        for variant in model.price_variants or ()
        for key, tier in variant.when.items()
        if key in ("service_tier", "processing", "speed")
        and tier != "default"
        and provider.find_model(model.id) is model
        and {"input_mtok", "output_mtok"} <= vars(model.get_prices(AT)).keys()
    }
)


def _price(model: str, tier: str | None, vendor: str = "openai", **settings: Any) -> Cost:
    usage = Usage(prompt=1000, completion=100, traffic=tier)
    return Prices(Settings(**settings)).price(usage, vendor, model, price_provider=vendor, at=AT)


def test_the_catalogue_lists_many_tiers() -> None:
    assert len(VARIANTS) > 100


@pytest.mark.parametrize(("vendor", "model", "key", "tier"), VARIANTS)
def test_every_listed_tier_has_the_catalogues_own_price(vendor: str, model: str, key: str, tier: str) -> None:
    theirs = calc_price(
        CatalogueUsage(input_tokens=1000, output_tokens=100),
        model,
        provider_id=vendor,
        genai_request_timestamp=AT,
        price_context={key: tier},
    )
    ours = _price(model, tier, vendor)
    assert ours.total == theirs.total_price
    assert not ours.estimated
    assert f"service tier {tier}" in ours.source


@pytest.mark.parametrize("tier", [None, "default", "auto", "standard", "on_demand"])
def test_the_standard_tier_has_the_listed_price(tier: str | None) -> None:
    cost = _price("gpt-5", tier)
    assert cost.tier == (None if tier is None else "standard")
    assert replace(cost, tier=None) == _price("gpt-5", None)


def test_tiers_of_openai_cost_as_published() -> None:
    """https://platform.openai.com/docs/pricing, as of 2026-11: flex is half, priority is more."""
    standard, flex, batch, priority = (
        _price("gpt-5", tier).total for tier in (None, "flex", "batch", "priority")
    )
    assert standard is not None
    assert priority is not None
    assert flex == batch == standard / 2
    assert priority > standard


@pytest.mark.parametrize(
    ("model", "tier", "vendor", "source"),
    [
        (
            "gpt-4o",
            "flex",
            "openai",
            "no price for openai/gpt-4o in the service tier 'flex'; set "
            '[prices."openai/gpt-4o".tiers.flex] in specclient.toml',
        ),
        ("gpt-5", "scale", "openai", "the service tier 'scale' is paid by its reservation, not by tokens"),
        (
            "claude-opus-5",
            "priority",
            "anthropic",
            "the service tier 'priority' is paid by its reservation, not by tokens",
        ),
    ],
)
def test_a_tier_without_a_price_is_unpriced_and_not_the_standard_one(
    model: str, tier: str, vendor: str, source: str
) -> None:
    assert _price(model, None, vendor).total
    assert _price(model, tier, vendor) == Cost(source=source, tier=tier)


@pytest.mark.parametrize("tier", ["priority", "flex"])
@pytest.mark.parametrize("model", ["gpt-5", "claude-opus-5"])
def test_a_vendor_that_is_priced_by_anothers_list_has_no_tiers_of_it(model: str, tier: str) -> None:
    assert _price(model, None, "azure").total
    assert _price(model, tier, "azure").total is None


def test_a_batch_of_azure_costs_half_as_its_page_says() -> None:
    standard, batch = _price("gpt-5", None, "azure"), _price("gpt-5", "batch", "azure")
    assert standard.total
    assert batch.total == standard.total / 2
    assert "https://azure.microsoft.com/en-us/pricing/details/azure-openai/, 2026-10-07" in batch.source


def test_groqs_flex_tier_has_the_standard_price() -> None:
    model = "openai/gpt-oss-120b"
    assert _price(model, "flex", "groq") == replace(_price(model, None, "groq"), tier="flex")
    assert _price(model, "performance", "groq").total is None


def test_a_tier_before_its_price_was_listed_is_unpriced() -> None:
    usage = Usage(prompt=1000, completion=100, traffic="priority")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert Prices(Settings()).price(usage, "openai", "gpt-4.1", price_provider="openai", at=at).total is None


def test_a_table_may_have_prices_of_tiers() -> None:
    tiers = {"flex": {"input": 1, "output": 2}}
    table = {"prices": {"openai/gpt-5": {"input": 10, "output": 20, "tiers": tiers}}}
    assert _price("gpt-5", "flex", **table).total == Decimal("0.0012")
    assert _price("gpt-5", None, **table) == Cost(
        Decimal("0.012"),
        {"input": Decimal("0.01"), "output": Decimal("0.002")},
        '[prices."openai/gpt-5"] in the configuration',
    )
    priority = _price("gpt-5", "priority", **table)
    assert (priority.total, priority.estimated) == (Decimal("0.012"), True)
    assert "it has no price for the service tier 'priority'" in priority.source


def test_a_table_of_tiers_alone_leaves_the_standard_price_to_the_catalogue() -> None:
    table = {"prices": {"openai/gpt-5": {"tiers": {"priority": {"input": 1, "output": 2}}}}}
    assert _price("gpt-5", None, **table) == _price("gpt-5", None)
    assert _price("gpt-5", "flex", **table) == _price("gpt-5", "flex")
    assert _price("gpt-5", "priority", **table).source == (
        '[prices."openai/gpt-5".tiers.priority] in the configuration'
    )


def test_an_incomplete_price_of_a_tier_is_refused() -> None:
    with pytest.raises((ConfigurationError, ValueError), match="a price has input and output"):
        Settings(prices={"openai/gpt-5": {"tiers": {"flex": {"input": 1}}}})


@pytest.mark.parametrize(
    ("params", "body", "tier"),
    [
        ({}, {}, None),
        ({"service_tier": "auto"}, {}, None),
        ({"service_tier": "flex"}, {}, "flex"),
        ({"service_tier": "flex"}, {"service_tier": "priority"}, "priority"),
        ({}, {"speed": "fast"}, "fast"),
        ({"service_tier": 5}, {}, None),
    ],
)
def test_the_requested_tier(params: dict[str, Any], body: dict[str, Any], tier: str | None) -> None:
    assert requested_tier(Request(CHAT, "openai/gpt-5", params, options=PerCallOptions(body=body))) == tier


def test_the_bound_of_a_priority_call_has_its_price() -> None:
    def nano(**more: str) -> int:
        asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000, **more}
        route = Decision(chosen="openai/gpt-5", provider="openai", model="gpt-5")
        request = Request(CHAT, "openai/gpt-5", asked)
        found = bound_of(request, route, Prices(Settings()), Estimator(), "openai").nano
        assert found is not None
        return found

    assert nano(service_tier="flex") == nano()  # it may be served by the standard tier
    assert nano(service_tier="priority") > 1.5 * nano()


@pytest.mark.parametrize(
    ("served", "requested", "name"),
    [
        ("ON_DEMAND_FLEX", None, "flex"),
        ("ON_DEMAND", None, "standard"),
        ("PROVISIONED_THROUGHPUT", None, "provisioned_throughput"),
        ("Priority", "flex", "priority"),
        (None, "flex", "flex"),
        (None, None, None),
    ],
)
def test_the_name_of_a_tier_in_records(served: str | None, requested: str | None, name: str | None) -> None:
    assert tier_name(served, requested) == name


# Recorded answers


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


def _whole(tier: str | None) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    served = {} if tier is None else {"service_tier": tier}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-5-2025-08-07"}
    return json.dumps({**head, "choices": [choice], "usage": USAGE, **served}).encode()


def _stream(tier: str | None) -> bytes:
    served = {} if tier is None else {"service_tier": tier}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-2025-08-07", **served}
    choice = {"index": 0, "delta": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    chunks = [{**head, "choices": [choice]}, {**head, "choices": [], "usage": USAGE}]
    return b"".join(b"data: %b\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"


def _response(tier: str | None) -> bytes:
    usage = {"input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    part = {"type": "output_text", "text": "x", "annotations": []}
    item = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    head = {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-2025-08-07",
        "status": "completed",
    }
    body = {**head, "output": [item], "usage": {**usage, **details}, "service_tier": tier}
    return json.dumps(body).encode()


def _calls(server: OpenAIServer, served: str | None, **asked: Any) -> list[Call]:
    """Return the records of a chat completion, whole and streamed, and of a response."""
    kind = {"content-type": "application/json"}
    server.script(
        reply(200, _whole(served), kind), events(_stream(served)), reply(200, _response(served), kind)
    )
    mine = Provider(name="mine", base_url=server.base_url, key="k", price_provider="openai")
    with OpenAI(providers=[mine], ledger="off") as client:
        ask: Any = {"model": "mine/gpt-5", **asked}
        messages: Any = [{"role": "user", "content": "x"}]
        whole = client.chat.completions.create(**ask, messages=messages)
        stream = client.chat.completions.create(**ask, messages=messages, stream=True)
        for _ in stream:
            pass
        response = client.responses.create(**ask, input="x")
        return [whole.meta, stream.meta, response.meta]


@pytest.mark.parametrize("served", ["flex", "priority", "default"])
@pytest.mark.parametrize("asked", [{}, {"service_tier": "flex"}], ids=["not asked", "flex asked"])
def test_the_tier_that_served_decides(server: OpenAIServer, served: str, asked: dict[str, str]) -> None:
    for call in _calls(server, served, **asked):
        assert call.usage.traffic == served
        assert call.cost.total == _price("gpt-5", served).total
        assert not call.cost.estimated
        assert LedgerRow.of(call).tier == ("standard" if served == "default" else served)


def test_the_requested_tier_is_assumed_if_the_answer_names_none(server: OpenAIServer) -> None:
    for call in _calls(server, None, service_tier="flex"):
        assert call.cost.total == _price("gpt-5", "flex").total
        assert call.cost.estimated
        assert "the requested 'flex' is assumed" in call.cost.source
        assert LedgerRow.of(call).tier == "flex"
    for call in _calls(server, None):
        assert LedgerRow.of(call).tier is None
        assert call.cost.total == _price("gpt-5", None).total
        assert not call.cost.estimated

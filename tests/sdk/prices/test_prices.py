"""Prices: each token is billed once, exactly, at the price of the call's date; unknown costs are None."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal, localcontext

import pytest
from genai_prices import Usage as CatalogueUsage
from genai_prices import calc_price
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from specclient.config import ANY_VENDOR, Settings
from specclient.prices.prices import Prices
from specclient.types.usage import ReportedCharge, Usage

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)

#: Models of the catalogue that have a price for input and output tokens.
PRICED = [
    (provider.id, model.id)
    for provider in get_snapshot().providers
    for model in provider.models
    if provider.find_model(model.id) is model
    and {"input_mtok", "output_mtok"} <= vars(model.get_prices(AT)).keys()
]


class AtVendors(Prices):
    """Prices at each vendor's own endpoint, whose preset names the vendor."""

    def price(self, usage, provider, model, **more):
        return super().price(usage, provider, model, **{"price_provider": provider, **more})

    def predict(self, prompt, completion, provider, model, **more):
        return super().predict(prompt, completion, provider, model, **{"price_provider": provider, **more})


def prices(**settings):
    return AtVendors(Settings(**settings), now=lambda: AT)


def test_cached_tokens_are_billed_once_at_the_cached_price():
    cost = prices().price(Usage(prompt=1000, cached=100, completion=10), "openai", "gpt-4.1", at=AT)
    assert cost.by_kind == {
        "input": Decimal("0.0018"),  # 900 at $2 a million
        "cached_input": Decimal("0.00005"),  # 100 at $0.50
        "output": Decimal("0.00008"),  # 10 at $8
    }
    assert cost.total == Decimal("0.00193")
    assert cost.source == "genai-prices: openai/gpt-4.1 on 2026-06-01"
    assert not cost.estimated


@given(
    which=st.sampled_from(PRICED),
    prompt=st.integers(0, 2_000_000),
    completion=st.integers(0, 200_000),
    parts=st.tuples(st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 1)),
)
def test_costs_equal_those_of_genai_prices_for_the_whole_catalogue(which, prompt, completion, parts):
    provider, model = which
    cached, written, reasoning = int(prompt * parts[0]), int(prompt * parts[1]), int(completion * parts[2])
    usage = Usage(
        prompt=prompt, completion=completion, cached=cached, cache_write=written, reasoning=reasoning
    )
    cost = prices().price(usage, provider, model, at=AT)
    listed = {
        "input_tokens": prompt,
        "output_tokens": completion,
        "cache_read_tokens": cached,
        "cache_write_tokens": written,
        "output_reasoning_tokens": reasoning,
    }
    theirs = calc_price(CatalogueUsage(**listed), model, provider_id=provider, genai_request_timestamp=AT)
    assert cost.total == theirs.total_price
    assert sum(cost.by_kind.values()) == cost.total


@pytest.mark.parametrize(("prompt", "rate"), [(200_000, "1.25"), (200_001, "2.5")])
def test_above_a_tier_its_price_applies_to_every_token(prompt, rate):
    cost = prices().price(Usage(prompt=prompt, completion=0), "google", "gemini-2.5-pro", at=AT)
    assert cost.total == Decimal(rate) * prompt / 1_000_000


def test_the_price_at_the_date_of_the_call_applies():
    usage = Usage(prompt=1_000_000, completion=0)
    before = prices().price(usage, "openai", "o3", at=datetime(2025, 5, 1, tzinfo=UTC))
    after = prices().price(usage, "openai", "o3", at=datetime(2025, 7, 1, tzinfo=UTC))
    assert (before.total, after.total) == (Decimal(10), Decimal(2))


def test_costs_do_not_depend_on_the_decimal_context():
    usage = Usage(prompt=1_234_567, cached=7, completion=89)
    wide = prices().price(usage, "openai", "gpt-4.1", at=AT)
    with localcontext() as context:
        context.prec = 3
        narrow = prices().price(usage, "openai", "gpt-4.1", at=AT)
    assert narrow == wide
    assert wide.total == Decimal("2.4698355")  # 1,234,560 at $2, 7 at $0.50, 89 at $8


def test_a_configured_price_overrides_the_catalogue_and_engine_time():
    table = {
        "openai/gpt-4.1": {"input": "1", "output": "3", "cached_input": "0.1"},
        "local/demo": {"input": "2", "output": "2"},
    }
    usage = Usage(prompt=1000, cached=400, completion=100)
    cost = prices(prices=table).price(usage, "openai", "gpt-4.1", at=AT)
    assert cost.total == Decimal("0.00094")  # 600 at $1, 400 at $0.10, 100 at $3
    assert cost.source == '[prices."openai/gpt-4.1"] in the configuration'
    local = prices(prices=table).price(usage, "local", "demo", at=AT, engine_s=9.0)
    assert local.total == Decimal("0.0022")  # cached tokens without a price are billed as input
    assert set(local.by_kind) == {"input", "output"}


def test_engine_time_at_a_configured_rate_is_not_estimated():
    cost = prices(local={"device_cost_per_hour": "3.60"}).price(Usage(), "local", "demo", at=AT, engine_s=2.5)
    assert cost.total == cost.by_kind["engine"] == Decimal("0.0025")
    assert not cost.estimated


def test_engine_time_at_the_default_rate_is_estimated():
    cost = prices().price(Usage(), "local", "demo", at=AT, engine_s=36.0)
    assert cost.total == Decimal("0.001")
    assert cost.estimated
    assert "$0.10 an hour (assumed; set device_cost_per_hour" in cost.source


@given(seconds=st.floats(0, 1e6), rate=st.decimals(0, 100, places=4))
def test_engine_costs_are_whole_nano_dollars(seconds, rate):
    cost = prices(local={"device_cost_per_hour": rate}).price(Usage(), "local", "m", at=AT, engine_s=seconds)
    assert cost.total == Decimal(cost.nano).scaleb(-9)
    assert abs(cost.total * 3600 - rate * Decimal(seconds)) < Decimal("2e-6")


def test_the_cost_of_unknown_engine_time_is_unknown():
    cost = prices().price(Usage(prompt=5, completion=5), "local", "demo", at=AT)
    assert cost.total is None
    assert cost.source.startswith("engine time unknown")


@pytest.mark.parametrize(
    ("usage", "unknown"),
    [
        (Usage(prompt=10), "completion tokens unknown"),
        (Usage(completion=10), "prompt tokens unknown"),
        (Usage(), "prompt and completion tokens unknown"),
    ],
)
def test_the_cost_of_unknown_token_counts_is_unknown(usage, unknown):
    cost = prices().price(usage, "openai", "gpt-4.1", at=AT)
    assert cost.total is None
    assert cost.source.startswith(unknown)


def test_a_missing_price_is_logged_once_for_each_model(caplog):
    caplog.set_level(logging.WARNING, logger="specclient")
    both = prices()
    usage = Usage(prompt=1, completion=1)
    for model in ("warned-once", "warned-once", "warned-too"):
        cost = both.price(usage, "elsewhere", model, at=AT)
        assert cost.total is None
        assert (
            cost.source
            == f'no price for elsewhere/{model}; set [prices."elsewhere/{model}"] in specclient.toml'
        )
    assert [r.getMessage().split(";")[0] for r in caplog.records] == [
        "no price for elsewhere/warned-once",
        "no price for elsewhere/warned-too",
    ]


def test_a_vendors_prices_apply_only_if_the_endpoint_names_the_vendor():
    usage = Usage(prompt=1000, completion=0)
    assert prices().price(usage, "my-openai", "gpt-4.1", price_provider=None, at=AT).total is None
    named = prices().price(usage, "my-openai", "gpt-4.1", price_provider="openai", at=AT)
    assert named.total == Decimal("0.002")


def test_the_cost_of_estimated_tokens_is_estimated():
    usage = Usage(prompt=10, completion=10, estimated=True)
    assert prices().price(usage, "openai", "gpt-4.1", at=AT).estimated


def test_cached_tokens_above_the_prompt_are_limited_and_the_cost_is_estimated():
    usage = Usage(prompt=10, cached=50, completion=0)
    cost = prices().price(usage, "openai", "gpt-4.1", at=AT)
    assert cost.total == Decimal("0.000005")  # ten cached tokens, not fifty, and no negative count
    assert cost.estimated
    assert "exceeded their whole" in cost.source


def test_the_cost_of_generated_tokens_without_a_price_is_unknown():
    embedding = next(
        (p.id, m.id)
        for p in get_snapshot().providers
        for m in p.models
        if "input_mtok" in vars(m.get_prices(AT)) and "output_mtok" not in vars(m.get_prices(AT))
    )
    assert prices().price(Usage(prompt=5, completion=5), *embedding, at=AT).total is None
    assert prices().price(Usage(prompt=5, completion=0), *embedding, at=AT).total is not None


def test_predict_does_not_log_missing_prices(caplog):
    caplog.set_level(logging.WARNING, logger="specclient")
    assert prices().predict(1000, 100, "openai", "gpt-4.1") == Decimal("0.0028")
    assert prices(local={"device_cost_per_hour": 36}).predict(9, 9, "local", "demo", engine_s=1.0) == Decimal(
        "0.01"
    )
    assert prices().predict(9, 9, "local", "demo") is None
    assert prices().predict(9, 9, "nowhere", "predicted-only") is None
    assert not caplog.records


def test_the_catalogue_is_not_imported_before_it_is_needed():
    script = """
import sys
from datetime import UTC, datetime
from specclient.config import Settings
from specclient.prices.prices import Prices
from specclient.types.usage import Usage

usage, at = Usage(prompt=1, completion=1), datetime(2026, 6, 1, tzinfo=UTC)
prices = Prices(Settings(prices={"openai/mine": {"input": "1", "output": "3"}}))
prices.price(usage, "somewhere", "unpriced", at=at)
prices.predict(1, 1, "somewhere", "unpriced")
prices.price(usage, "local", "demo", at=at, engine_s=1.0)
prices.price(usage, "openai", "mine", price_provider="openai", at=at)
assert not {"genai_prices", "httpx2"} & set(sys.modules), "loaded for a price that is not the catalogue's"
prices.price(usage, "openai", "gpt-4.1", price_provider="openai", at=at)
assert "genai_prices" in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


# --- the user's own prices


def test_every_kind_of_token_is_billed_at_its_own_price():
    table = {
        "input": 1, "output": 10, "cached_input": "0.1", "cache_write": "1.25", "cache_write_1h": 2,
        "reasoning": 20, "rejected_prediction": 5, "per_call": "0.01",
    }  # fmt: skip
    usage = Usage(
        prompt=1_000, cached=100, cache_write=300, cache_write_1h=200,
        completion=500, reasoning=50, rejected_prediction=40,
    )  # fmt: skip
    cost = prices(prices={"mine/m": table}).price(usage, "mine", "m", at=AT)
    assert cost.by_kind == {
        "cached_input": Decimal("0.00001"),  # 100 at $0.10
        "cache_write": Decimal("0.000125"),  # 100 at $1.25
        "cache_write_1h": Decimal("0.0004"),  # 200 at $2
        "input": Decimal("0.0006"),  # 600 at $1
        "reasoning": Decimal("0.001"),  # 50 at $20
        "rejected_prediction": Decimal("0.0002"),  # 40 at $5
        "output": Decimal("0.0041"),  # 410 at $10
        "request": Decimal("0.01"),
    }
    assert sum(cost.by_kind.values()) == cost.total
    assert not cost.estimated


def test_a_price_per_gpu_second_uses_engine_time_or_else_the_latency():
    both = prices(prices={"mine/m": {"per_gpu_second": "0.001"}, "local/m": {"per_gpu_second": "0.001"}})
    known = both.price(Usage(), "local", "m", at=AT, engine_s=2.0, latency_s=5.0)
    assert (known.total, dict(known.by_kind), known.estimated) == (
        Decimal("0.002"), {"engine": Decimal("0.002")}, False,
    )  # fmt: skip
    estimated = both.price(Usage(), "mine", "m", at=AT, latency_s=5.0)
    assert (estimated.total, estimated.estimated) == (Decimal("0.005"), True)
    assert estimated.source.endswith("by the seconds the call took")
    assert both.price(Usage(), "mine", "m", at=AT).total is None


def test_a_price_per_call_needs_no_token_counts():
    cost = prices(prices={"mine/m": {"per_call": "0.02"}}).price(Usage(), "mine", "m", at=AT)
    assert (cost.total, dict(cost.by_kind)) == (Decimal("0.02"), {"request": Decimal("0.02")})


def test_the_most_specific_configured_price_applies():
    def flat(dollars):
        return {"per_call": dollars}

    table = {"mine/*": flat(1), "mine/llama-*": flat(2), "mine/llama-3": flat(3), "other/*": flat(4)}
    configured = prices(prices=table)
    for model, dollars in (("qwen", 1), ("llama-2", 2), ("llama-3", 3)):
        cost = configured.price(Usage(), "mine", model, at=AT)
        assert cost.total == dollars
    assert cost.source == '[prices."mine/llama-3"] in the configuration'
    assert configured.price(Usage(), "mine", "x", at=AT).source == '[prices."mine/*"] in the configuration'
    assert configured.price(Usage(), "min", "e/x", at=AT).total is None


def test_a_price_of_the_requested_model_applies_to_its_snapshots():
    both = prices(prices={"openai/gpt-4.1": {"per_call": 1}, "openai/gpt-4.1-2026-01-01": {"per_call": 2}})
    for served, dollars in (("gpt-4.1-2025-04-14", 1), ("gpt-4.1-2026-01-01", 2), (None, 1)):
        assert both.price(Usage(), "openai", "gpt-4.1", served=served, at=AT).total == dollars


# --- the engine in this process


def test_electricity_is_a_separate_kind_of_cost():
    local = {"device_cost_per_hour": "3.60", "watts": 500, "electricity_cost_per_kwh": "0.36"}
    cost = prices(local=local).price(Usage(), "local", "demo", at=AT, engine_s=10)
    assert cost.by_kind == {"engine": Decimal("0.01"), "electricity": Decimal("0.0005")}
    assert cost.total == Decimal("0.0105")
    assert cost.source == "engine time at $3.60 an hour and its electricity"
    assert not cost.estimated


# --- predicted tokens


@pytest.mark.parametrize("billed", [True, None])
def test_rejected_prediction_tokens_are_a_part_of_the_output_cost(billed):
    usage = Usage(prompt=0, completion=77, accepted_prediction=6, rejected_prediction=4)
    cost = prices().price(usage, "openai", "gpt-4.1", at=AT, rejected_billed=billed)
    plain = prices().price(Usage(prompt=0, completion=77), "openai", "gpt-4.1", at=AT)
    assert cost.total == plain.total == Decimal("0.000616")  # 77 at $8 a million
    assert cost.by_kind["rejected_prediction"] == Decimal("0.000032")
    assert cost.by_kind["output"] == Decimal("0.000584")


def test_rejected_tokens_that_are_not_billed_have_no_cost():
    usage = Usage(prompt=0, completion=77, rejected_prediction=400)
    route = ("mistral", "codestral-2501")
    cost = prices().price(usage, *route, at=AT, rejected_billed=False)
    plain = prices().price(replace(usage, rejected_prediction=None), *route, at=AT)
    assert cost.total == plain.total
    assert "rejected_prediction" not in cost.by_kind
    assert not cost.estimated


def test_rejected_tokens_above_the_completion_are_limited_and_the_cost_is_estimated():
    usage = Usage(prompt=0, completion=10, reasoning=6, rejected_prediction=9)
    cost = prices().price(usage, "openai", "gpt-4.1", at=AT)
    assert cost.total == Decimal("0.00008")
    assert cost.by_kind["rejected_prediction"] == Decimal("0.000032")  # four, since six are of reasoning
    assert cost.estimated


# --- caches


def test_cache_writes_for_an_hour_have_their_own_price():
    usage = Usage(prompt=100_000, completion=0, cache_write=100_000, cache_write_1h=40_000)
    cost = prices().price(usage, "anthropic", "claude-sonnet-4-5", at=AT)
    five_minutes, hour = Decimal("3.75"), Decimal("6")
    assert cost.by_kind["cache_write"] == five_minutes * Decimal("0.06")
    assert cost.by_kind["cache_write_1h"] == hour * Decimal("0.04")
    assert cost.by_kind["input"] == 0


def test_cache_writes_for_an_hour_without_a_price_cost_as_those_for_five_minutes():
    table = {"mine/m": {"input": 1, "output": 1, "cache_write": 2}}
    usage = Usage(prompt=100, completion=0, cache_write=100, cache_write_1h=100)
    cost = prices(prices=table).price(usage, "mine", "m", at=AT)
    assert (cost.total, cost.estimated) == (Decimal("0.0002"), True)


# --- audio, images and web searches


def test_audio_and_images_have_their_own_prices():
    usage = Usage(prompt=1000, completion=200, audio_prompt=400, audio_completion=150)
    cost = prices().price(usage, "openai", "gpt-audio", at=AT)
    assert cost.by_kind == {
        "audio_input": Decimal("0.0128"),  # 400 at $32
        "input": Decimal("0.0015"),  # 600 at $2.50
        "audio_output": Decimal("0.0096"),  # 150 at $64
        "output": Decimal("0.0005"),  # 50 at $10
    }
    assert not cost.estimated
    usage = Usage(prompt=1000, completion=0, image_prompt=900)
    cost = prices().price(usage, "openai", "gpt-realtime", at=AT)
    assert cost.by_kind["image_input"] == Decimal("0.0045")  # 900 at $5
    assert cost.by_kind["input"] == Decimal("0.0004")  # 100 at $4


def test_cached_audio_and_images_have_their_own_prices():
    """The parts of the cache that a Realtime response reports, at the prices of gpt-realtime-mini."""
    usage = Usage(
        prompt=1000,
        completion=0,
        cached=500,
        cached_audio=300,
        cached_image=100,
        audio_prompt=400,
        image_prompt=150,
    )
    cost = prices().price(usage, "openai", "gpt-realtime-mini", at=AT)
    assert cost.by_kind == {
        "cached_input": Decimal("0.000006"),  # 100 of text at $0.06
        "cached_audio_input": Decimal("0.00009"),  # 300 at $0.30
        "cached_image_input": Decimal("0.000008"),  # 100 at $0.08
        "audio_input": Decimal("0.001"),  # 100 that were not cached, at $10
        "image_input": Decimal("0.00004"),  # 50 at $0.80
        "input": Decimal("0.00021"),  # 350 of text at $0.60
        "output": Decimal(0),
    }
    assert not cost.estimated


def test_cached_media_of_unknown_kind_are_estimated():
    usage = Usage(prompt=1000, completion=0, cached=300, audio_prompt=400)
    assert prices().price(usage, "openai", "gpt-realtime", at=AT).estimated
    assert not prices().price(replace(usage, cached=0), "openai", "gpt-realtime", at=AT).estimated


def test_audio_priced_as_text_is_estimated():
    usage = Usage(prompt=1000, completion=0, audio_prompt=400)
    assert prices().price(usage, "openai", "gpt-4o-audio-preview", at=AT).estimated


def test_overlapping_parts_are_estimated_only_if_their_prices_differ():
    usage = Usage(prompt=1000, completion=0, cached=900, image_prompt=1000)
    assert prices().price(usage, "openai", "gpt-realtime", at=AT).estimated
    assert not prices().price(usage, "openai", "gpt-4.1", at=AT).estimated


def test_web_searches_are_billed():
    usage = Usage(prompt=0, completion=0, searches=3)
    cost = prices().price(usage, "anthropic", "claude-sonnet-4-5", at=AT)
    assert cost.by_kind == {"input": 0, "output": 0, "web_search": Decimal("0.03")}  # $10 a thousand
    assert cost.total == Decimal("0.03")


def test_a_price_may_depend_on_the_hour_of_the_day():
    """DeepSeek's discount in the catalogue: half the price at night in Beijing."""
    usage = Usage(prompt=1_000_000, completion=0)
    at = [datetime(2025, 5, 1, hour, tzinfo=UTC) for hour in (12, 20)]
    day, night = (prices().price(usage, "deepseek", "deepseek-chat", at=each).total for each in at)
    assert night == day / 2


# --- costs reported by the vendor


@pytest.mark.parametrize(
    ("vendor", "field", "reported"),
    [("openrouter", "cost", True), ("x-ai", "cost_in_usd_ticks", True), ("x-ai", "cost", False),
     ("openai", "cost", False), (ANY_VENDOR, "cost", False), (None, "cost", False)],
)  # fmt: skip
def test_a_cost_reported_by_the_vendor_overrides_other_prices(vendor, field, reported):
    usage = Usage(
        prompt=10,
        completion=10,
        charges=(ReportedCharge("elsewhere", Decimal(9)), ReportedCharge(field, Decimal("0.5"))),
    )
    own = {"mine/m": {"per_call": 1}}
    cost = Prices(Settings(prices=own)).price(usage, "mine", "m", price_provider=vendor, at=AT)
    if reported:
        assert (cost.total, dict(cost.by_kind)) == (Decimal("0.5"), {"reported": Decimal("0.5")})
        assert cost.source == f"reported by the provider: usage.{field}"
    else:
        assert cost.total == 1


# --- the model that is priced


def test_the_served_model_is_priced_if_the_catalogue_has_it():
    usage = Usage(prompt=1_000_000, completion=0)
    for served in ("gpt-4.1-mini-2025-04-14", "gpt-4.1-mini"):
        cost = prices().price(usage, "azure", "my-deployment", served=served, at=AT)
        assert cost.total == Decimal("0.4")
        assert "azure/gpt-4.1-mini on" in cost.source
    requested = prices().price(usage, "openai", "gpt-4.1", served="whatever-it-calls-itself", at=AT)
    assert requested.total == Decimal(2)


def test_an_unknown_endpoint_is_priced_by_model_name_which_the_source_states():
    usage = Usage(prompt=1_000_000, completion=0)
    for model in ("gpt-4.1", "openai/gpt-4.1"):
        cost = prices().price(usage, "gateway", model, price_provider=ANY_VENDOR, at=AT)
        assert cost.total == 2
        assert cost.estimated
        assert cost.source == (
            "genai-prices: openai/gpt-4.1 on 2026-06-01; priced by model name; the endpoint is not known"
        )
    unknown = prices().price(usage, "gateway", "my-own-finetune", price_provider=ANY_VENDOR, at=AT)
    assert unknown.total is None


@given(
    counts=st.lists(st.integers(0, 10**6), min_size=7, max_size=7),
    rates=st.fixed_dictionaries(
        {"input": st.decimals(0, 100, places=6), "output": st.decimals(0, 100, places=6)},
        optional={
            name: st.decimals(0, 100, places=6)
            for name in (
                "cached_input",
                "cache_write",
                "cache_write_1h",
                "reasoning",
                "rejected_prediction",
                "per_call",
            )
        },
    ),
    billed=st.sampled_from([True, False, None]),
)
def test_costs_by_kind_sum_to_the_total_and_are_not_negative(counts, rates, billed):
    parts = ("cached", "cache_write", "cache_write_1h", "reasoning", "rejected_prediction")
    names = ("prompt", "completion", *parts)
    usage = Usage(**dict(zip(names, counts, strict=True)))
    cost = prices(prices={"mine/m": rates}).price(usage, "mine", "m", at=AT, rejected_billed=billed)
    assert sum(cost.by_kind.values()) == cost.total
    assert all(dollars >= 0 for dollars in cost.by_kind.values())
    highest_input = max(
        rates.get(name, 0) for name in ("input", "cached_input", "cache_write", "cache_write_1h")
    )
    highest_output = max(rates.get(name, 0) for name in ("output", "reasoning", "rejected_prediction"))
    most = (usage.prompt * highest_input + usage.completion * highest_output) / 1_000_000 + rates.get(
        "per_call", 0
    )
    assert cost.total <= most

"""Every token is billed once, exactly, at the price of the call's own date; what is unknown is not zero."""

from __future__ import annotations

import logging
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal, localcontext

import pytest
from genai_prices import Usage as CatalogueUsage
from genai_prices import calc_price
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from specclient.config import Settings
from specclient.costs.prices import Prices
from specclient.types.usage import Usage

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)

#: Models whose tokens have a price in both directions, as the catalogue lists them.
PRICED = [
    (provider.id, model.id)
    for provider in get_snapshot().providers
    for model in provider.models
    if provider.find_model(model.id) is model
    and {"input_mtok", "output_mtok"} <= vars(model.get_prices(AT)).keys()
]


class AtVendors(Prices):
    """Prices as at each vendor's own endpoint, whose preset names the vendor."""

    def price(self, usage, provider, model, **more):
        return super().price(usage, provider, model, **{"price_provider": provider, **more})

    def predict(self, prompt, completion, provider, model, **more):
        return super().predict(prompt, completion, provider, model, **{"price_provider": provider, **more})


def prices(**settings):
    return AtVendors(Settings(**settings), now=lambda: AT)


def test_cached_tokens_are_billed_once_at_their_own_price():
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
def test_the_whole_catalogue_agrees_with_its_own_arithmetic(which, prompt, completion, parts):
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
def test_above_a_tier_every_token_pays_its_price(prompt, rate):
    cost = prices().price(Usage(prompt=prompt, completion=0), "google", "gemini-2.5-pro", at=AT)
    assert cost.total == Decimal(rate) * prompt / 1_000_000


def test_a_price_that_changed_is_taken_as_it_was():
    usage = Usage(prompt=1_000_000, completion=0)
    before = prices().price(usage, "openai", "o3", at=datetime(2025, 5, 1, tzinfo=UTC))
    after = prices().price(usage, "openai", "o3", at=datetime(2025, 7, 1, tzinfo=UTC))
    assert (before.total, after.total) == (Decimal(10), Decimal(2))


def test_exact_whatever_decimal_context_the_thread_has():
    usage = Usage(prompt=1_234_567, cached=7, completion=89)
    wide = prices().price(usage, "openai", "gpt-4.1", at=AT)
    with localcontext() as context:
        context.prec = 3
        narrow = prices().price(usage, "openai", "gpt-4.1", at=AT)
    assert narrow == wide
    assert wide.total == Decimal("2.4698355")  # 1,234,560 at $2, 7 at $0.50, 89 at $8


def test_the_users_price_stands_over_the_catalogue_and_the_engine():
    table = {
        "openai/gpt-4.1": {"input": "1", "output": "3", "cached_input": "0.1"},
        "local/demo": {"input": "2", "output": "2"},
    }
    usage = Usage(prompt=1000, cached=400, completion=100)
    cost = prices(prices=table).price(usage, "openai", "gpt-4.1", at=AT)
    assert cost.total == Decimal("0.00094")  # 600 at $1, 400 at $0.10, 100 at $3
    assert cost.source == '[prices."openai/gpt-4.1"] in the configuration'
    local = prices(prices=table).price(usage, "local", "demo", at=AT, engine_s=9.0)
    assert local.total == Decimal("0.0022")  # no price for cached tokens: they are input like the rest
    assert set(local.by_kind) == {"input", "output"}


def test_engine_time_at_the_users_rate_is_no_estimate():
    cost = prices(local={"device_cost_per_hour": "3.60"}).price(Usage(), "local", "demo", at=AT, engine_s=2.5)
    assert cost.total == cost.by_kind["engine"] == Decimal("0.0025")
    assert not cost.estimated


def test_engine_time_at_the_assumed_rate_says_so():
    cost = prices().price(Usage(), "local", "demo", at=AT, engine_s=36.0)
    assert cost.total == Decimal("0.001")
    assert cost.estimated
    assert "$0.10 an hour (assumed; set device_cost_per_hour" in cost.source


@given(seconds=st.floats(0, 1e6), rate=st.decimals(0, 100, places=4))
def test_engine_time_is_whole_nano_dollars(seconds, rate):
    cost = prices(local={"device_cost_per_hour": rate}).price(Usage(), "local", "m", at=AT, engine_s=seconds)
    assert cost.total == Decimal(cost.nano).scaleb(-9)
    assert abs(cost.total * 3600 - rate * Decimal(seconds)) < Decimal("2e-6")


def test_unknown_engine_time_is_not_free():
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
def test_unknown_counts_are_not_zero(usage, unknown):
    cost = prices().price(usage, "openai", "gpt-4.1", at=AT)
    assert cost.total is None
    assert cost.source.startswith(unknown)


def test_no_price_is_said_once_for_each_model(caplog):
    caplog.set_level(logging.WARNING, logger="specclient")
    both = prices()
    usage = Usage(prompt=1, completion=1)
    for model in ("said-once", "said-once", "said-too"):
        cost = both.price(usage, "elsewhere", model, at=AT)
        assert cost.total is None
        assert (
            cost.source
            == f'no price for elsewhere/{model}; set [prices."elsewhere/{model}"] in specclient.toml'
        )
    assert [r.getMessage().split(";")[0] for r in caplog.records] == [
        "no price for elsewhere/said-once",
        "no price for elsewhere/said-too",
    ]


def test_an_endpoint_is_not_billed_as_a_vendor_it_sounds_like():
    usage = Usage(prompt=1000, completion=0)
    for name in ("my-openai", "openai"):  # the second: moved to another base URL
        assert prices().price(usage, name, "gpt-4.1", price_provider=None, at=AT).total is None
    named = prices().price(usage, "my-openai", "gpt-4.1", price_provider="openai", at=AT)
    assert named.total == Decimal("0.002")


def test_estimated_tokens_make_an_estimated_cost():
    usage = Usage(prompt=10, completion=10, estimated=True)
    assert prices().price(usage, "openai", "gpt-4.1", at=AT).estimated


def test_parts_above_their_whole_are_cut_and_marked():
    usage = Usage(prompt=10, cached=50, completion=0)
    cost = prices().price(usage, "openai", "gpt-4.1", at=AT)
    assert cost.total == Decimal("0.000005")  # ten cached tokens, not fifty, and none at a negative price
    assert cost.estimated
    assert "exceeded their whole" in cost.source


def test_generated_tokens_without_a_price_are_unpriced():
    embedding = next(
        (p.id, m.id)
        for p in get_snapshot().providers
        for m in p.models
        if "input_mtok" in vars(m.get_prices(AT)) and "output_mtok" not in vars(m.get_prices(AT))
    )
    assert prices().price(Usage(prompt=5, completion=5), *embedding, at=AT).total is None
    assert prices().price(Usage(prompt=5, completion=0), *embedding, at=AT).total is not None


def test_predict_prices_without_a_warning(caplog):
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
from specclient.costs.prices import Prices
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

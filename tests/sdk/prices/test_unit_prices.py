"""Prices of units beside those of time, of calls and of tokens."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from specclient.budgets.bounds import bound_of
from specclient.config import Settings
from specclient.prices.prices import Prices
from specclient.routing.learn.estimator import Estimator
from specclient.types.inference_methods import CHAT
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import Usage, UsageUnit

NOW = datetime(2026, 11, 27, tzinfo=UTC)
HEARD = Usage(units=(UsageUnit("audio_second", Decimal(30)),))
PRICES = Prices(
    Settings.model_validate(
        {
            "prices": {
                "mine/timed": {"per_gpu_second": "0.5"},
                "mine/flat": {"per_call": "0.05"},
                "units/*": {"units": {"web_search": "0.01"}},
            },
            "local": {"device_cost_per_hour": 3600},
        }
    )
)


@pytest.mark.parametrize(
    ("route", "total"), [("mine/timed", "1"), ("mine/flat", "0.05"), ("local/whisper", "2")]
)
def test_what_is_paid_by_time_or_by_the_call_has_a_price_whatever_units_it_reports(
    route: str, total: str
) -> None:
    provider, _, model = route.partition("/")
    assert PRICES.price(HEARD, provider, model, at=NOW, engine_s=2.0).total == Decimal(total)


def test_tokens_without_a_price_are_named_where_only_units_have_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    used = Usage(prompt=1000, completion=10, searches=1)
    cost = PRICES.price(used, "units", "m", at=NOW)
    assert (cost.total, cost.estimated) == (Decimal("0.01"), True)
    assert "without a price for its tokens" in cost.source
    with caplog.at_level(logging.WARNING):
        cost = PRICES.price(Usage(prompt=1000, completion=10), "units", "m", at=NOW)
    assert cost.total is None
    assert 'no price for units/m; set [prices."units/m"]' in cost.source
    assert cost.source in caplog.text


def test_a_price_of_units_alone_is_no_bound_of_tokens() -> None:
    request = Request(CHAT, "units/m", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 9})
    route = Decision(chosen="units/m", provider="units", model="m")
    bound = bound_of(request, route, PRICES, Estimator(), None, strict=True)
    assert (bound.nano, bound.priced) == (None, False)

"""The price of writing a prompt to a cache counts in the decisions of sessions whose calls write it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from specclient import Settings
from specclient.prices.billing import PriceRates, Quote
from specclient.prices.prices import Prices
from specclient.routing.choose.policy_tables import PolicyTables
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.tariff import Tariff
from specclient.routing.learn.adaptive_percentile import AdaptivePercentile
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.route_estimate import AnswerLength
from specclient.routing.learn.session_caches import HeldPrefix
from specclient.types.policy import Policy
from specclient.types.route import Decision
from specclient.types.usage import Usage

#: Dollars per million prompt tokens, cached ones, and written ones.
RATES = {"a/m": ("10", "8", "12.5"), "b/m": ("9", "9", "11.25")}


def _decide(held: HeldPrefix) -> Decision:
    options = []
    for route, rates in RATES.items():
        listed, cached, written = map(Decimal, rates)
        quote = Quote(
            PriceRates(input=listed, output=Decimal(1), cached_input=cached, cache_write=written), "a test"
        )
        options.append(RouteOption(route, route[0], "m", tariff=Tariff.of(quote)))
    tables = PolicyTables(Policy(), options, "chat", AdaptivePercentile(0.95))
    request = RouteRequest("chat", 10_000, AnswerLength(100, 100, 100), held={"a/m": held})
    return tables.decide(Estimator(priors={}), request, None)


def test_a_session_that_writes_stays_where_the_least_is_written() -> None:
    """The other route is cheaper by its price of input, and dearer once the whole prompt is written there."""
    assert _decide(HeldPrefix(9000, 0.5)).chosen == "b/m"
    writes = _decide(HeldPrefix(9000, 0.5, written=True))
    assert writes.chosen == "a/m"
    costs = {each.route: each.cost for each in writes.candidates}
    assert costs == {"a/m": Decimal("0.10485"), "b/m": Decimal("0.1126")}


@pytest.mark.parametrize(("written", "expected"), [(8000, True), (0, False), (None, False)])
def test_a_session_writes_as_its_last_call_did(written: int | None, expected: bool) -> None:
    estimates = Estimator(priors={})
    sample = CallSample(
        route="a/m", at=1.0, session="s", latency_s=1.0, prompt_tokens=9000, completion_tokens=5
    )
    estimates.learn(replace(sample, at=estimates._seconds(), written_tokens=written))
    assert estimates.held("s", 10_000)["a/m"].written is expected


def test_exact_dollars_are_those_of_the_bill() -> None:
    table = {"input": "3", "output": "15", "cached_input": "0.3", "cache_write": "3.75"}
    prices = Prices(Settings.model_validate({"prices": {"a/b": table}}))
    tariff = Tariff.of(prices.quote("a", "b", prompt=10_000))
    assert tariff is not None
    billed = prices.price(
        Usage(prompt=10_000, completion=70, cached=4000, cache_write=6000), "a", "b", at=datetime.now(UTC)
    )
    assert tariff.dollars(10_000, 70, None, None, 4000, writes=True) == billed.total

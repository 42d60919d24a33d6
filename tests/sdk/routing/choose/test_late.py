"""Calls that no candidate is expected to serve in time go to the nearest one, if most calls are in time."""

from __future__ import annotations

from decimal import Decimal
from random import Random

import pytest

from specclient.errors import NoRouteError
from specclient.prices.rates import PriceRates, Quote
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.choose.tariff import Tariff
from specclient.routing.learn.adaptive_percentile import AdaptivePercentile
from specclient.routing.learn.route_estimate import AnswerLength, RouteEstimate
from specclient.types.policy import Policy
from specclient.types.route import Decision

POLICY = Policy(max_ttft_s=1.0, max_cost_usd=5)


def decide(*ttfts: float, policy: Policy = POLICY, late: bool = True, **more: object) -> Decision:
    """Decide among a/m, b/m, … with these times to the first token, at $1, $2, … a call."""
    options = tuple(
        RouteOption(
            f"{name}/m", name, "m", tariff=Tariff.of(Quote(PriceRates(per_call=Decimal(1 + n)), "a test"))
        )
        for n, name in zip(range(len(ttfts)), "abcd", strict=False)
    )
    table = ScoreTable(policy, options, "chat")
    limited = more.get("limited", ())
    table.update(
        [
            RouteEstimate(
                evidence=90, calls=90, ttft_s=s, token_s=0.01, ttft_limit_s=s, assumed=False,
                limited=option.route in limited,  # type: ignore[operator]
            )
            for s, option in zip(ttfts, options, strict=True)
        ]
    )  # fmt: skip
    return table.decide(RouteRequest("chat", 100, AnswerLength(1, 10, 20)), Explorer(Random(1)), late=late)


def test_the_nearest_route_serves_a_call_that_no_route_serves_in_time() -> None:
    found = decide(1.5, 1.2, 3.0)
    assert (found.chosen, found.explored) == ("b/m", False)
    assert [other.route for other in found.alternatives] == ["a/m", "c/m"]
    assert found.reason.startswith("nearest to the limits of time, which no candidate is expected to keep")
    assert [candidate.verdict for candidate in found.candidates] == ["refused", "chosen", "refused"]
    with pytest.raises(NoRouteError, match=r"exceeds max_ttft_s 1 by 0\.2 s"):
        decide(1.5, 1.2, 3.0, late=False)


def test_late_routes_are_fallbacks_after_those_in_time() -> None:
    found = decide(3.0, 0.9, 1.1, 0.5)
    assert found.chosen == "b/m"
    assert [other.route for other in found.alternatives] == ["d/m", "c/m", "a/m"]
    assert [other.route for other in decide(3.0, 0.9, 1.1, 0.5, late=False).alternatives] == ["d/m"]


def test_limits_of_cost_hold_for_late_calls_too() -> None:
    policy = Policy(max_ttft_s=1.0, max_cost_usd=1.5)
    found = decide(2.0, 1.2, policy=policy)
    assert found.chosen == "a/m"
    assert not found.alternatives
    with pytest.raises(NoRouteError):
        decide(2.0, 1.2, policy=Policy(max_ttft_s=1.0, max_cost_usd=0.5))


def test_a_limited_route_is_taken_last() -> None:
    found = decide(0.5, 0.6, 0.7, limited=("a/m",))
    assert found.chosen == "b/m"
    assert [other.route for other in found.alternatives] == ["c/m", "a/m"]
    assert "its rate limit has refused a call" in found.candidates[0].reason
    assert decide(0.5, limited=("a/m",)).chosen == "a/m", "nothing else is left"


def test_calls_are_late_only_while_most_calls_keep_their_limits() -> None:
    margin = AdaptivePercentile(0.95)
    found = [margin.mostly_kept]  # nothing is known yet
    margin.add(True)
    found.append(margin.mostly_kept)
    for kept in (False, True):
        for _ in range(200):
            margin.add(kept)
        found.append(margin.mostly_kept)
    assert found == [False, True, False, True]

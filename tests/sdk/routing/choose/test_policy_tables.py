"""Decisions with prompt caches: a session stays on the route that holds its prompt if that pays."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from failover_servers import kit, status
from loopback_server import reply

from specclient.errors import NoRouteError
from specclient.prices.rates import PriceRates, Quote
from specclient.routing.choose.decisions import choose_in_order
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

NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: Dollars per million prompt tokens, and per million cached ones.
RATES = {"a/m": (10, 1), "b/m": (9, None), "c/m": (9, 1)}


def _estimates() -> Estimator:
    """Return the estimates of routes that read 2,000 tokens a second, and answer in a second."""
    estimates = Estimator(priors={}, now=lambda: NOW)
    for number in range(60):
        for route in RATES:
            first = 0.1 + (1000 if number % 2 else 10_000) / 2000
            estimates.learn(
                CallSample(
                    route=route,
                    at=NOW.timestamp() - 60 + number,
                    task="chat",
                    ttft_s=first,
                    latency_s=first + 1.0,
                    prompt_tokens=1000 if number % 2 else 10_000,
                    completion_tokens=100,
                )
            )
    return estimates


def _decide(policy: Policy, **held: HeldPrefix) -> Decision:
    options = _options()
    tables = PolicyTables(policy, options, "chat", AdaptivePercentile(policy.percentile))
    return tables.decide(_estimates(), _request(**held), None)


def _options() -> list[RouteOption]:
    options = []
    for route in ("b/m", "a/m"):
        listed, cached = RATES[route]
        rates = PriceRates(
            input=Decimal(listed),
            output=Decimal(1),
            cached_input=None if cached is None else Decimal(cached),
        )
        options.append(RouteOption(route, route[0], "m", tariff=Tariff.of(Quote(rates, "a test"))))
    return options


def _request(**held: HeldPrefix) -> RouteRequest:
    prefix = {f"{name}/m": each for name, each in held.items()}
    return RouteRequest("chat", 10_000, AnswerLength(100, 100, 100), held=prefix)


def test_a_session_stays_while_its_cache_saves_more_than_another_route() -> None:
    kept = _decide(Policy(), a=HeldPrefix(9000, 0.5))
    assert kept.chosen == "a/m"
    assert kept.reason.endswith("4500 tokens of the prompt are expected in its cache")
    by_route = {each.route: each for each in kept.candidates}
    assert by_route["a/m"].cost == Decimal("0.0596")
    assert by_route["b/m"].cost == Decimal("0.0901")
    assert [each.route for each in kept.alternatives] == ["b/m"]


def test_a_decision_tells_whether_its_scores_count_caches() -> None:
    """Session affinity decides for the others: prompts that no route holds, and routes in a given order."""
    held, options = HeldPrefix(9000, 0.5), _options()
    assert _decide(Policy(), a=held).counts_caches
    assert not _decide(Policy()).counts_caches
    estimates = _estimates().all_of([each.route for each in options])
    assert not choose_in_order(Policy(), options, estimates, _request(a=held)).counts_caches


@pytest.mark.parametrize("held", [{}, {"a": HeldPrefix(9000, 0.1)}, {"c": HeldPrefix(9000, 1.0)}])
def test_a_session_leaves_where_its_cache_saves_less(held: dict[str, HeldPrefix]) -> None:
    assert _decide(Policy(), **held).chosen == "b/m"


def test_under_minimize_latency_the_saved_prefill_time_counts() -> None:
    fast = Policy(minimize="latency")
    assert _decide(fast, a=HeldPrefix(9000, 0.9)).chosen == "a/m"
    assert _decide(fast, b=HeldPrefix(9000, 0.4), a=HeldPrefix(100, 1.0)).chosen == "b/m"


def test_a_limit_of_time_counts_on_a_cache_that_is_sure_enough() -> None:
    """Reading the whole prompt takes five seconds."""
    policy = Policy(max_ttft_s=3, explore=0, percentile=0.9)
    assert _decide(policy, b=HeldPrefix(9000, 0.99)).chosen == "b/m"
    with pytest.raises(NoRouteError, match=r"b/m: predicted 4.88 s exceeds max_ttft_s 3"):
        _decide(policy, b=HeldPrefix(9000, 0.6))


def _body(cached: int) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}],
        "usage": {
            "prompt_tokens": 10_000,
            "completion_tokens": 1,
            "total_tokens": 10_001,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


@pytest.mark.anyio
async def test_a_session_stays_with_the_route_that_answered_after_failover(tmp_path: Path) -> None:
    """The second route costs twice as much, unless its cache is used. A wrong key teaches nothing."""
    prices = {f"s{i}/m": {"input": 10 + 10 * i, "cached_input": 1, "output": 10} for i in range(2)}
    ask = [{"role": "user", "content": "word " * 9000}]
    async with kit(tmp_path, settings={"candidates": ["s0/m", "s1/m"], "prices": prices}) as made:
        del made.client.router.decide  # the kit's own order of routes
        made.servers[0].script(status(401), reply(200, _body(0)))
        made.servers[1].script(*[reply(200, _body(0))] * 2)
        chosen = []
        for session, messages in (("s", ask), ("s", ask), ("t", ask)):
            answer = await made.client.chat.completions.create(
                model="auto", messages=messages, session=session, policy=Policy(explore=0)
            )
            chosen.append((session, answer.meta.route.chosen))
        assert chosen == [("s", "s1/m"), ("s", "s1/m"), ("t", "s0/m")]

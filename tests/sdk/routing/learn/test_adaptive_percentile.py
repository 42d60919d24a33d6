"""The adaptive percentile: it falls while more of the policy's calls meet their limits than promised."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.client.core import ClientCore
from specclient.config import Settings
from specclient.errors import ConfigurationError, NoRouteError
from specclient.prices.rates import PriceRates, Quote
from specclient.routing.choose.policy_tables import PolicyTables
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.choose.tariff import Tariff
from specclient.routing.learn.adaptive_percentile import AdaptivePercentile, kept_limits
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.route_estimate import AnswerLength
from specclient.types import inference_methods
from specclient.types.call import Call
from specclient.types.policy import PercentileScope, Policy
from specclient.types.request import Request
from specclient.types.route import Decision
from specclient.types.usage import Usage

START = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.floats(0.01, 0.99), st.lists(st.booleans(), max_size=300))
def test_the_percentile_stays_between_its_floor_and_the_promise(promised, ends):
    margin = AdaptivePercentile(promised)
    assert margin.percentile == promised
    for end in ends:
        margin.add(end)
        may = 1 - promised
        assert max(1 - 2 * may, promised / 2) - 1e-9 <= margin.percentile <= promised + 1e-9


@pytest.mark.parametrize("missed", [0.4, 0.7, 0.95], ids="{} of the permitted misses".format)
def test_calls_miss_limits_at_the_promised_rate_when_estimates_are_cautious(missed):
    margin, rng, ends = AdaptivePercentile(0.95), Random(1), []
    for _ in range(20_000):
        ends.append(rng.random() >= missed * (1 - margin.percentile))
        margin.add(ends[-1])
    share = ends.count(False) / len(ends)
    assert share == pytest.approx(min(0.05, missed * 0.1), rel=0.1)


def test_too_many_misses_restore_the_promised_percentile():
    margin = AdaptivePercentile(0.95)
    for _ in range(500):
        margin.add(True)
    assert margin.percentile == pytest.approx(0.9)
    for _ in range(25):
        margin.add(False)
    assert margin.percentile == 0.95


def test_early_calls_move_the_percentile_further_than_late_ones():
    early, late = AdaptivePercentile(0.95), AdaptivePercentile(0.95)
    for _ in range(4000):
        late.add(True)
    for _ in range(25):
        late.add(False)
    assert late.percentile == early.percentile == 0.95
    for _ in range(150):
        early.add(True)
        late.add(True)
    assert early.percentile == pytest.approx(0.9)
    assert 0.9 < late.percentile <= 0.95


POLICY = Policy(max_latency_s=2.0, max_ttft_s=0.5)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"latency_s": 2.1}, False),
        ({"ttft_s": 0.6}, False),
        ({"ttft_s": None}, True),
        ({"failed": True, "latency_s": 0.1}, None),
        ({"failed": True, "latency_s": 0.4}, False),
    ],
)
def test_a_finished_call_is_checked_against_its_policys_limits(changed, expected):
    given = {"route": "x/y", "at": 0.0, "ttft_s": 0.4, "latency_s": 1.9}
    assert kept_limits(CallSample(**(given | changed)), POLICY) is expected


def test_a_call_that_cannot_be_judged_is_not_counted():
    sample = CallSample(route="x/y", at=0.0, latency_s=1.9)
    assert kept_limits(sample, Policy()) is None
    assert kept_limits(sample, Policy(max_ttft_s=0.5)) is None, "it was not streamed"
    alone = Policy(max_latency_s=2.0, fallbacks=False)
    assert kept_limits(CallSample(route="x/y", at=0.0, failed=True, latency_s=0.1), alone) is False


def record_calls(estimates, at, seconds, policy):
    """Record one finished call on each of two routes: a cheap one of varying speed, and a fast one."""
    for route, took in (("cheap/m", seconds), ("fast/m", 0.5)):
        estimates.learn(
            CallSample(
                route=route,
                at=START.timestamp() + at,
                task="chat",
                latency_s=took,
                ttft_s=took / 10,
                prompt_tokens=100,
                completion_tokens=50,
                policy=policy,
            )
        )


def test_a_cheap_route_is_used_only_while_few_calls_miss_their_limit():
    clock = [START]
    estimates = Estimator(priors={}, now=lambda: clock[0])
    rng = Random(3)
    for at in range(300):
        record_calls(estimates, at, rng.lognormvariate(0.0, 0.3), None)
    clock[0] = datetime.fromtimestamp(START.timestamp() + 300, UTC)

    def limit(share):
        estimate = estimates.of("cheap/m", "chat", share, 100)
        return estimate.limit_factor * estimate.latency_s(50)

    policy = Policy(minimize="latency", max_latency_s=(limit(0.95) + limit(0.9)) / 2, deny=("fast/",))
    routes = (RouteOption("cheap/m", "cheap", "m"), RouteOption("fast/m", "fast", "m"))
    table = ScoreTable(policy, routes, "chat")
    asked = RouteRequest("chat", 100, AnswerLength(50, 50, 50))
    margin = estimates.margin(policy)

    def chosen():
        share = margin.percentile
        table.update(estimates.all_of(table.routes, "chat", share, 100), share=share)
        return table.decide(asked)

    with pytest.raises(NoRouteError, match="exceeds max_latency_s"):
        chosen()
    for _ in range(500):
        margin.add(True)
    decision = chosen()
    assert decision.chosen == "cheap/m"
    assert decision.candidates[0].latency_range_s[1] <= policy.max_latency_s
    assert "0.9 of its calls need to keep the limits, as more than 0.95 of all do" in decision.reason
    usual = estimates.of("cheap/m", "chat", 0.95, 100)
    assert decision.first.latency_limit_s == pytest.approx(usual.limit_factor * usual.latency_s(50)), (
        "hedge delays do not change"
    )
    assert decision.first.patience_s == pytest.approx(usual.ttft_limit_s)
    for _ in range(25):
        margin.add(False)
    with pytest.raises(NoRouteError, match="exceeds max_latency_s"):
        chosen()


def test_finished_calls_count_for_equal_policies_only():
    estimates = Estimator(priors={}, now=lambda: START)
    policy, other = Policy(max_latency_s=2.0), Policy(max_latency_s=3.0)
    for at in range(300):
        record_calls(estimates, at, 1.0, policy)
    assert estimates.margin(Policy(max_latency_s=2.0)).percentile < 0.95
    assert estimates.margin(other).percentile == 0.95


def test_a_router_applies_the_policys_adaptive_percentile():
    settings = {
        "ledger": "off",
        "candidates": ["mine/small"],
        "providers": {"mine": {"base_url": "https://models.example/v1"}},
        "prices": {"mine/small": {"input": 1, "output": 4}},
    }
    core = ClientCore({"config": Settings.model_validate(settings), "api_key": "none"})
    router, estimates, rng = core.pipeline.router, core.shared.estimates, Random(3)
    now = datetime.now(UTC)
    for _ in range(300):
        took = rng.lognormvariate(0.0, 0.3)
        estimates.learn(
            CallSample(
                route="mine/small", at=now.timestamp(), task="chat", latency_s=took, completion_tokens=50
            )
        )
    request = Request(inference_methods.CHAT, "auto", {"messages": [{"role": "user", "content": "hello"}]})
    asked = estimates.length("chat", 10).median

    def limit(share):
        found = estimates.of("mine/small", "chat", share, 10)
        return found.limit_factor * found.latency_s(asked)

    policy = Policy(max_latency_s=(limit(0.95) + limit(0.9)) / 2, explore=0)
    with pytest.raises(NoRouteError, match="exceeds max_latency_s"):
        router.decide(replace(request, policy=policy))
    other = Decision("mine/other", "mine", "other", policy=policy, task="code")
    done = {"status": "ok", "usage": Usage(completion=50), "latency_s": 1.0}
    for number in range(300):  # on another route, so that this route's estimate does not change
        each = {"id": str(number), "started_at": now, "operation": "chat", "model": "auto", "route": other}
        estimates.observe(Call(**(each | done)))
    assert router.decide(replace(request, policy=policy)).chosen == "mine/small"


@given(
    st.floats(0.5, 0.99), st.lists(st.tuples(st.booleans(), st.floats(1e-6, 10)), min_size=1, max_size=300)
)
def test_the_probability_required_of_a_call_stays_between_its_bounds(promised, calls):
    margin, may = AdaptivePercentile(promised), 1 - promised
    for kept, cost in calls:
        required = margin.required(cost)
        assert max(1 - 3 * may, promised / 2) - 1e-9 <= required <= 1 - 0.35 * may + 1e-9
        margin.add(kept)
    assert margin.required(None) == margin.required(0.0) == margin.percentile


def test_permitted_misses_go_to_the_calls_that_cost_most():
    margin = AdaptivePercentile(0.95)
    for _ in range(300):
        margin.required(0.001)
        margin.required(0.02)
        margin.add(True)
    cheap, costly = margin.required(0.001), margin.required(0.02)
    assert cheap > 0.95 > margin.percentile > costly
    assert costly == pytest.approx(1 - 0.05 * 2**1.5)


def test_too_many_misses_make_every_call_stricter():
    margin = AdaptivePercentile(0.95)
    usual = [margin.required(1.0), margin.required(1.0)][-1]
    for _ in range(100):
        margin.add(False)
    assert margin.required(1.0) > usual == 0.95
    assert margin.percentile == 0.95, "no route that meets the policy as written is refused"


def test_a_cheap_call_is_served_as_the_policy_says_where_no_route_is_more_certain():
    now = START.timestamp() + 300
    estimates = Estimator(priors={}, now=lambda: datetime.fromtimestamp(now, UTC))
    rng = Random(3)
    for at in range(300):
        record_calls(estimates, at, rng.lognormvariate(0.0, 0.3), None)

    def limit(share):
        estimate = estimates.of("cheap/m", "chat", share, 100)
        return estimate.limit_factor * estimate.latency_s(50)

    price = Tariff.of(Quote(PriceRates(input=Decimal(1), output=Decimal(1)), "a test"))
    routes = (RouteOption("cheap/m", "cheap", "m", tariff=price),)
    policy = Policy(max_latency_s=(limit(0.95) + limit(1 - 0.05 * 2**-1.5)) / 2)
    margin = AdaptivePercentile(0.95)
    margin.required(1.0)
    tables = PolicyTables(policy, routes, "chat", margin)
    asked = RouteRequest("chat", 100, AnswerLength(50, 50, 50))
    assert margin.required(150e-6) > 0.95
    assert tables.decide(estimates, asked, None).chosen == "cheap/m"


@pytest.mark.parametrize(
    ("per", "others"),
    [("policy", True), ("task", False), ("length", False)],
)
def test_the_promise_holds_for_all_calls_or_for_each_kind(per: PercentileScope, others: bool):
    """Late calls of one kind make only calls that share their promise stricter."""
    policy = Policy(max_latency_s=1, percentile_per=per)
    estimates = Estimator(priors={}, now=lambda: START)
    for at in range(400):
        late, kind = at % 4 == 0, ("long_context", 20_000) if at % 4 == 0 else ("chat", 100)
        estimates.learn(
            CallSample(
                route="a/m", at=START.timestamp() + at, task=kind[0], latency_s=2.0 if late else 0.5,
                prompt_tokens=kind[1], completion_tokens=10, policy=policy,
            )
        )  # fmt: skip
    kinds = (("chat", 200), ("long_context", 16_384))
    short, long = (estimates.margin(policy, *kind) for kind in kinds)
    assert (short is long) == others
    assert long.percentile == 0.95
    assert (short.percentile < 0.95) == (not others)
    assert estimates.margin(policy, "chat", 1023) is short
    assert (estimates.margin(policy, "chat", 4096) is short) == (per != "length")


def test_an_unknown_scope_is_refused():
    with pytest.raises(ConfigurationError, match="percentile_per is 'call'; it must be one of 'policy', 'ta"):
        Policy(percentile_per="call")

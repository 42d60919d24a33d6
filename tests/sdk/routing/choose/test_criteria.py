"""A criterion added as one object applies to decisions, reasons, limits, configuration and simulations."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal

import pytest

from specclient.client.core import ClientCore
from specclient.config import Settings
from specclient.errors import ConfigurationError, NoRouteError
from specclient.ledger.encoding import decision_values
from specclient.prices.rates import PriceRates, Quote
from specclient.routing.choose.decisions import choose
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.choose.tariff import Tariff
from specclient.routing.choose.token_sum import NonlinearError, TokenSum, as_token_sum
from specclient.routing.learn.route_estimate import AnswerLength, RouteEstimate
from specclient.routing.simulate.comparison import compare
from specclient.routing.simulate.world import WORLDS, World
from specclient.types import inference_methods
from specclient.types.criterion import COST, CRITERIA, Bound, Criterion
from specclient.types.policy import Policy
from specclient.types.request import Request

GRAMS = {"a/small": 0.001, "b/big": 0.004, "c/dirty": 0.02}
CO2 = Criterion(
    "co2_g",
    "g CO2",
    predict=lambda call: GRAMS.get(call.route, 0.01) * call.completion_tokens,
    bounds=(Bound("max_co2_g"),),
)
REQUEST = RouteRequest("chat", 1000, AnswerLength(100, 200, 400))


@pytest.fixture
def co2():
    with CRITERIA.added(CO2) as criterion:
        yield criterion


def options():
    """Return options of which the cheapest emits the most CO2."""
    prices = {"a/small": "0.003", "b/big": "0.002", "c/dirty": "0.001"}
    return [
        RouteOption(
            route, *route.split("/"), tariff=Tariff.of(Quote(PriceRates(per_call=Decimal(cost)), "a"))
        )
        for route, cost in prices.items()
    ]


def estimate(seconds: float = 2.0) -> RouteEstimate:
    return RouteEstimate(
        evidence=9, calls=9, ttft_s=seconds / 2, token_s=seconds / 400, ttft_limit_s=1.0, uncertain=False
    )


def decide(policy, listed=None, request=REQUEST):
    return choose(policy, listed or options(), lambda _: estimate(), request)


def test_an_added_criterion_is_minimized_and_stated_in_the_reason(co2):
    decision = decide(Policy(minimize="co2_g"))
    assert decision.chosen == "a/small"
    assert decision.reason == (
        "least co2 g: predicted $0.003, predicted 2 s, predicted 0.2 g CO2 (9 calls measured)"
    )
    assert [c.figures["co2_g"] for c in decision.candidates] == pytest.approx([0.2, 0.8, 4])
    assert decision.candidates[1].figures["cost"] == pytest.approx(0.002)
    assert decision.candidates[2].reason.endswith("20× the chosen route")
    assert pickle.loads(pickle.dumps(decision)).candidates == tuple(decision.candidates)


def test_an_added_criterion_is_weighed_against_cost(co2):
    assert decide(Policy(minimize={"cost": 1, "co2_g": 0.0001})).chosen == "c/dirty"
    decision = decide(Policy(minimize={"cost": 1, "co2_g": 0.001}))
    assert decision.chosen == "b/big"
    assert decision.reason.startswith("best by cost and co2 g: ")


def test_a_route_over_the_criterions_limit_is_refused(co2):
    decision = decide(Policy(limits={"max_co2_g": 1}))
    assert decision.chosen == "b/big"
    dirty = decision.candidates[2]
    assert dirty.verdict == "refused"
    assert dirty.reason == "predicted 4 g CO2 exceeds max_co2_g 1 by 3 g CO2"
    with pytest.raises(NoRouteError, match=r"nearest is a/small: change max_co2_g from 0.1 to 0.2"):
        decide(Policy(limits={"max_co2_g": 0.1}))


def test_an_unknown_value_is_refused_under_a_limit():
    known = Criterion("co2_g", "g CO2", predict=lambda c: GRAMS.get(c.route), bounds=CO2.bounds)
    unknown = RouteOption("d/new", "d", "new", tariff=options()[0].tariff)
    with CRITERIA.added(known):
        decision = decide(Policy(limits={"max_co2_g": 1}), [*options(), unknown])
        assert decision.candidates[3].reason == "its co2 g is unknown, so max_co2_g 1 cannot be kept"
        assert decide(Policy(minimize="co2_g"), [unknown, *options()]).chosen == "a/small"
        assert "co2 g unknown" in decide(Policy(minimize="co2_g"), [unknown, *options()]).candidates[0].reason


@pytest.mark.parametrize(
    "predict",
    [
        lambda call: GRAMS[call.route] * max(call.completion_tokens, 100),
        lambda call: GRAMS[call.route] * math.sqrt(call.completion_tokens) * 200**0.5,
        lambda call: GRAMS[call.route] * call.completion_tokens * call.latency_s / 2,
    ],
)
def test_a_value_not_linear_in_tokens_is_evaluated_for_each_call(predict):
    with CRITERIA.added(Criterion("co2_g", "g CO2", predict=predict, bounds=CO2.bounds)):
        assert decide(Policy(minimize="co2_g")).chosen == "a/small"
        decision = decide(Policy(limits={"max_co2_g": 1}))
        assert decision.chosen == "b/big"
        assert decision.candidates[2].verdict == "refused"


@pytest.mark.parametrize("limit", [1, 0.5, 0.25])
def test_all_routes_over_the_limit_are_skipped(co2, monkeypatch, limit):
    listed = [
        RouteOption(f"x/{n}", "x", str(n), tariff=Tariff.of(Quote(PriceRates(per_call=Decimal(n + 1)), "a")))
        for n in range(40)
    ]
    for n in range(40):
        monkeypatch.setitem(GRAMS, f"x/{n}", (40 - n) / 4000)
    decision = decide(Policy(limits={"max_co2_g": limit}), listed)
    assert decision.chosen == f"x/{40 - round(limit * 20)}"


def test_a_value_equal_to_its_limit_is_allowed(co2):
    figure = decide(Policy(minimize="co2_g")).candidates[1].figures["co2_g"]
    assert decide(Policy(limits={"max_co2_g": figure})).chosen == "b/big"
    assert decide(Policy(limits={"max_co2_g": math.nextafter(figure, 0)})).chosen == "a/small"


def test_unknown_and_duplicate_criterion_names_are_errors(co2):
    with pytest.raises(ConfigurationError, match=r"it must be 'cost', .*'co2_g', or their weights"):
        Policy(minimize="co2")
    with pytest.raises(ConfigurationError, match=r"policy\.limits has 'max_co2'; it may have max_cost_usd,"):
        Policy(limits={"max_co2": 1})
    with pytest.raises(ConfigurationError, match=r"policy\.max_co2_g is -1; it must be 0 or more"):
        Policy(limits={"max_co2_g": -1})
    with pytest.raises(ConfigurationError, match="criterion 'co2_g' exists already"):
        CRITERIA.add(CO2)
    with pytest.raises(ConfigurationError, match="the bound 'max_cost_usd';"):
        CRITERIA.add(Criterion("price", "USD", predict=COST.predict, bounds=COST.bounds))
    dear = Bound("max_price", flag="--max-cost")
    with pytest.raises(ConfigurationError, match="the option --max-cost;"):
        CRITERIA.add(Criterion("price", "USD", predict=COST.predict, bounds=(dear,)))


def test_a_limit_with_its_own_policy_field_sets_that_field():
    assert Policy(limits={"max_cost_usd": 1, "max_latency_s": 2}) == Policy(max_cost_usd=1, max_latency_s=2)
    assert Policy(max_cost_usd=1).limit("max_cost_usd") == 1
    assert Policy(max_cost_usd=1).limits == {}


def test_a_policy_naming_a_removed_criterion_raises_and_old_decisions_still_read():
    with CRITERIA.added(CO2):
        policy = Policy(limits={"max_co2_g": 1})
        decision = decide(policy)
    assert decision.candidates[2].figures["co2_g"] == pytest.approx(4)
    with pytest.raises(ConfigurationError, match="'max_co2_g', and there is no such criterion or bound"):
        decide(policy)
    assert "co2_g" not in decide(Policy()).candidates[0].figures


def test_an_added_criterion_can_be_configured(co2):
    settings = Settings.model_validate({"policies": {"green": {"minimize": "co2_g", "max_co2_g": 0.5}}})
    assert settings.policy_named("green") == Policy(minimize="co2_g", limits={"max_co2_g": 0.5})
    with pytest.raises(ValueError, match="max_co2\n"):
        Settings.model_validate({"policies": {"green": {"max_co2": 0.5}}})


def test_a_router_notices_a_new_criterion():
    settings = Settings.model_validate({"ledger": "off", "candidates": ["a/small", "b/big"]} | {
        "providers": {name: {"base_url": f"http://127.0.0.1:9/{name}"} for name in "ab"}
    })  # fmt: skip
    router = ClientCore({"config": settings, "api_key": "none"}).pipeline.router
    request = Request(inference_methods.CHAT, "auto", {"messages": [{"role": "user", "content": "hi"}]})
    assert "co2_g" not in router.decide(request).candidates[0].figures
    with CRITERIA.added(CO2):
        assert router.decide(request).candidates[0].figures["co2_g"] > 0
    assert "co2_g" not in router.decide(request).candidates[0].figures


def test_an_added_criterion_is_simulated(co2):
    world = World(WORLDS["mixed"], 1, calls=300)
    found = compare(world, Policy(minimize="co2_g"), seed=1)
    for fixed in found.fixed:
        tokens = [call.completion_tokens for call in world.calls]
        assert fixed.figures["co2_g"] == pytest.approx(0.01 * sum(tokens) / len(tokens), rel=0.2)
    limited = compare(world, Policy(limits={"max_co2_g": 1}), seed=1)
    assert limited.oracle.violations > found.oracle.violations


def test_token_sums_support_linear_arithmetic_only():
    tokens = TokenSum(1.0, 2.0, 3.0)
    total = as_token_sum(1 - (2 * tokens + 4) / 2 + Decimal(1))
    assert (total.base, total.by_prompt, total.by_answer) == (-1.0, -2.0, -3.0)
    for operation in (
        lambda: tokens * tokens,
        lambda: 1 / tokens,
        lambda: tokens > 1,
        lambda: bool(tokens),
        lambda: tokens == 1,
        lambda: math.exp(tokens),
        lambda: as_token_sum("1"),
        lambda: tokens + "1",
    ):
        with pytest.raises(TypeError):
            operation()
    with pytest.raises(NonlinearError):
        _ = tokens * tokens


def test_a_score_table_updates_only_the_rows_of_changed_estimates(co2):
    policy, listed = Policy(minimize={"cost": 1, "co2_g": 1}, max_latency_s=9), options()
    table = ScoreTable(policy, listed, "chat")
    estimates = [estimate() for _ in table.routes]
    table.update(list(estimates))
    first = table.decide(REQUEST)
    estimates[0] = estimate(20.0)
    table.update(list(estimates))
    assert (first.chosen, table.decide(REQUEST).chosen) == ("a/small", "b/big")


def test_the_ledger_stores_an_added_criterions_value(co2):
    decision = decide(Policy(minimize="co2_g"))
    kept = decision_values(decision)["candidates"]
    assert [each["figures"]["co2_g"] for each in kept] == pytest.approx([0.2, 0.8, 4])


def test_criteria_with_fields_of_their_own_are_no_figures_of_the_ledger():
    with_fields = {"cost", "latency", "ttft", "quality"}
    assert CRITERIA.with_fields == with_fields
    stored = decision_values(decide(Policy()))["candidates"][0]
    assert stored.get("figures", {}).keys() == CRITERIA.keys() - with_fields

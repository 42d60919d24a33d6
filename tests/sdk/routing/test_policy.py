"""The choice is the best of what is allowed, and every candidate is told why, with figures."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.errors import NoRouteError
from specclient.routing.policy import Option, choose, named
from specclient.types.route import Policy


def option(route="a/b", cost=None, latency_s=None, **values):
    provider, _, model = route.partition("/")
    return Option(
        route, provider, model, cost=None if cost is None else Decimal(cost), latency_s=latency_s, **values
    )


def chosen(policy, *options):
    return choose(policy, options).chosen


def reasons(decision):
    return {c.route: (c.verdict, c.reason) for c in decision.candidates}


def test_cheapest_with_its_reasons():
    decision = choose(
        Policy(),
        [option("x/dear", "0.0013", 1.0, evidence=1), option("x/cheap", "0.00042", 4.2, evidence=3)],
    )
    assert (decision.chosen, decision.provider, decision.model) == ("x/cheap", "x", "cheap")
    assert decision.reason == "cheapest: predicted $0.00042, predicted 4.2 s (3 calls measured)"
    assert reasons(decision) == {
        "x/cheap": ("chosen", decision.reason),
        "x/dear": ("left", "predicted $0.0013, predicted 1 s (1 call measured), 3.1× the chosen"),
    }
    assert [c.route for c in decision.candidates] == ["x/dear", "x/cheap"]


def test_fastest():
    decision = choose(Policy(minimize="latency"), [option("x/slow", "0", 4.0), option("x/fast", "9", 0.5)])
    assert decision.chosen == "x/fast"
    assert reasons(decision)["x/slow"][1].endswith("8× the chosen")


def test_limits_are_named_with_the_excess():
    decision = choose(
        Policy(max_cost_usd=0.001, max_latency_s=2),
        [option("x/ok", "0.001", 2.0), option("x/slow", "0.0001", 4.2), option("x/dear", "0.0035", 0.1)],
    )
    assert decision.chosen == "x/ok"  # a limit may be reached
    assert reasons(decision)["x/slow"] == ("refused", "predicted 4.2 s exceeds max_latency_s 2 by 2.2 s")
    assert reasons(decision)["x/dear"] == (
        "refused",
        "predicted $0.0035 exceeds max_cost_usd 0.001 by $0.0025",
    )


def test_a_limit_is_compared_exactly():
    assert chosen(Policy(max_cost_usd=0.1), option("x/y", "0.1")) == "x/y"  # float 0.1 is above a tenth
    with pytest.raises(NoRouteError):
        choose(Policy(max_cost_usd=0.1), [option("x/y", "0.1000000000000000001")])


def test_deny_and_allow_take_names_and_prefixes():
    options = [option("openai/gpt-4.1-mini", "1"), option("local/demo", "2"), option("openai/o3", "3")]
    assert chosen(Policy(deny=("openai/gpt-4.1",)), *options) == "local/demo"
    assert chosen(Policy(allow=("openai/",), deny=("openai/gpt-4.1-mini",)), *options) == "openai/o3"
    told = reasons(choose(Policy(allow=("local/",)), options))
    assert told["openai/o3"] == ("refused", "not among policy.allow 'local/'")
    told = reasons(choose(Policy(deny=("openai/o3", "openai/g")), options))
    assert told["openai/gpt-4.1-mini"] == ("refused", "denied by policy.deny 'openai/g'")


def test_what_is_unavailable_says_the_way_out():
    decision = choose(
        Policy(), [option("x/best", "0", 0.0, unavailable="no key: set X_API_KEY"), option("x/y", "1")]
    )
    assert decision.chosen == "x/y"
    assert reasons(decision)["x/best"] == ("unavailable", "no key: set X_API_KEY")
    assert decision.reason.startswith("the only candidate left")


def test_an_unknown_never_wins_against_a_known():
    assert chosen(Policy(), option("x/unknown", None, 0.1), option("x/known", "9", 9.0)) == "x/known"
    by_latency = Policy(minimize="latency")
    assert chosen(by_latency, option("x/unknown", "0.1"), option("x/known", "9", 9.0)) == "x/known"
    told = reasons(choose(Policy(), [option("x/unknown", None, 0.1), option("x/known", "9")]))
    assert told["x/unknown"][1].endswith("cannot win against a known cost")


def test_ties_are_broken_by_the_other_quantity_then_by_order():
    assert chosen(Policy(), option("x/slow", "1", 2.0), option("x/fast", "1", 1.0)) == "x/fast"
    assert chosen(Policy(), option("x/first", "1", 1.0), option("x/second", "1", 1.0)) == "x/first"
    assert chosen(Policy(), option("x/unknown", "1"), option("x/known", "1", 9.0)) == "x/known"


def test_where_nothing_is_known_order_decides_and_says_so():
    decision = choose(Policy(), [option("x/first"), option("x/second")])
    assert decision.chosen == "x/first"
    assert decision.reason == (
        "nothing is known of it yet; no candidate's cost is known, so the given order decides"
    )
    assert (
        reasons(decision)["x/second"][1] == "nothing is known of it yet; after the chosen in the given order"
    )


def test_an_unknown_cost_cannot_keep_a_cost_limit():
    with pytest.raises(NoRouteError, match="its cost is unknown, so max_cost_usd 1 cannot be kept"):
        choose(Policy(max_cost_usd=1), [option("x/y", None, 0.1)])


def test_an_unknown_latency_stays_behind_those_known_to_keep_the_limit():
    policy = Policy(max_latency_s=2)
    assert chosen(policy, option("x/unmeasured", "0.1")) == "x/unmeasured"
    decision = choose(policy, [option("x/unmeasured", "0.1"), option("x/measured", "5", 1.0)])
    assert decision.chosen == "x/measured"
    assert "not known to keep max_latency_s 2" in reasons(decision)["x/unmeasured"][1]


def test_no_route_lists_every_candidate_and_carries_the_decision():
    policy = Policy(max_latency_s=1, deny=("x/no",))
    with pytest.raises(NoRouteError) as raised:
        choose(
            policy, [option("x/no", "1"), option("x/slow", "1", 3.5), option("x/key", unavailable="no key")]
        )
    assert str(raised.value) == (
        "none of 3 candidates satisfies the policy:\n"
        "  x/no: denied by policy.deny 'x/no'\n"
        "  x/slow: predicted 3.5 s exceeds max_latency_s 1 by 2.5 s\n"
        "  x/key: no key"
    )
    assert raised.value.decision.policy is policy
    assert [c.verdict for c in raised.value.decision.candidates] == ["refused", "refused", "unavailable"]


def test_no_candidates_at_all_names_the_setting():
    with pytest.raises(NoRouteError, match="list some under `candidates`"):
        choose(Policy(), [])


def test_a_named_model_is_a_decision_of_one():
    decision = named("local/demo", "local", "demo")
    assert (decision.chosen, decision.provider, decision.model) == ("local/demo", "local", "demo")
    assert [(c.route, c.verdict) for c in decision.candidates] == [("local/demo", "chosen")]
    assert decision.policy is None


amounts = st.none() | st.decimals(0, 10, places=3)
some_options = st.lists(
    st.builds(
        option,
        route=st.sampled_from(["a/x", "a/y", "b/x", "b/y"]),
        cost=amounts,
        latency_s=st.none() | st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        unavailable=st.none() | st.just("no key"),
    ),
    max_size=5,
    unique_by=lambda o: o.route,
)
policies = st.builds(
    Policy,
    minimize=st.sampled_from(["cost", "latency"]),
    max_cost_usd=st.none() | st.floats(0, 10),
    max_latency_s=st.none() | st.floats(0, 4),
    allow=st.lists(st.sampled_from(["a/", "b/x"]), max_size=2),
    deny=st.lists(st.sampled_from(["a/x", "b/"]), max_size=2),
)


def ask(policy, options):
    try:
        return choose(policy, options)
    except NoRouteError as error:
        return error.decision


def keeps(policy, route):
    """The limits, written the other way round: what is known of a chosen route breaks none."""
    if policy.max_cost_usd is not None and (
        route.cost is None or route.cost > Decimal(str(policy.max_cost_usd))
    ):
        return False
    if policy.max_latency_s is not None and (route.latency_s or 0) > policy.max_latency_s:
        return False
    allowed = not policy.allow or any(route.route.startswith(p) for p in policy.allow)
    return allowed and not any(route.route.startswith(p) for p in policy.deny) and route.unavailable is None


@given(policy=policies, options=some_options)
def test_only_what_keeps_the_policy_is_chosen_or_left(policy, options):
    decision = ask(policy, options)
    assert [c.route for c in decision.candidates] == [o.route for o in options]
    for candidate, given_option in zip(decision.candidates, options, strict=True):
        assert (candidate.verdict in ("chosen", "left")) == keeps(policy, given_option)
        assert candidate.reason
    chosen_ones = [c.route for c in decision.candidates if c.verdict == "chosen"]
    assert chosen_ones == ([decision.chosen] if any(keeps(policy, o) for o in options) else [])


@given(policy=policies, options=some_options)
def test_nothing_left_is_known_to_be_better_than_the_chosen(policy, options):
    decision = ask(policy, options)
    best = next((c for c in decision.candidates if c.verdict == "chosen"), None)
    name = "cost" if policy.minimize == "cost" else "latency_s"
    for other in decision.candidates:
        unverified = policy.max_latency_s is not None and other.latency_s is None
        if other.verdict != "left" or getattr(other, name) is None or unverified:
            continue
        assert getattr(best, name) is not None
        assert getattr(best, name) <= getattr(other, name)


@given(policy=policies, options=some_options)
def test_the_same_question_has_the_same_answer(policy, options):
    assert ask(policy, options) == ask(policy, options)

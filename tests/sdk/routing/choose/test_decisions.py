"""A decision chooses the best permitted route and gives every candidate's verdict, reason and figures."""

from __future__ import annotations

import pickle
import random
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specclient.errors import NoRouteError
from specclient.prices.rates import PriceRates, Quote
from specclient.routing.choose.decisions import choose, choose_in_order, named_decision
from specclient.routing.choose.evaluation import DecisionSnapshot
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.route_options import RouteOption, RouteRequest
from specclient.routing.choose.score_table import ScoreTable
from specclient.routing.choose.tariff import Tariff
from specclient.routing.learn.route_estimate import AnswerLength, RouteEstimate
from specclient.types.policy import Policy

ASKED = RouteRequest("chat", 1000, AnswerLength(100, 200, 400))


def priced(dollars_a_call):
    return Tariff.of(Quote(PriceRates(per_call=Decimal(str(dollars_a_call))), "a test"))


def option(route="a/b", cost=None, **values):
    provider, _, model = route.partition("/")
    tariff = None if cost is None else priced(cost)
    return RouteOption(route, provider, model, tariff=tariff, **values)


def known(seconds=None, calls=9, limit_factor=1.0, **values):
    """Return an estimate in which an answer of the test's length takes ``seconds``."""
    if seconds is None:
        return RouteEstimate(**values)
    defaults = {"ttft_limit_s": seconds / 2, "uncertain": False, "assumed": False}
    return RouteEstimate(
        evidence=calls,
        calls=calls,
        ttft_s=seconds / 2,
        token_s=seconds / 400,
        limit_factor=limit_factor,
        **defaults | values,
    )


def ask(policy, *given_options, explorer=None, asked=ASKED):
    """Choose among (option, estimate) pairs."""
    options = [option for option, _ in given_options]
    estimates = {option.route: estimate for option, estimate in given_options}
    return choose(policy, options, estimates.__getitem__, asked, explorer=explorer)


def reasons(decision):
    return {c.route: (c.verdict, c.reason) for c in decision.candidates}


def test_the_cheapest_route_is_chosen_and_reasons_are_given():
    decision = ask(
        Policy(), (option("x/dear", "0.0013"), known(1, 1)), (option("x/cheap", "0.00042"), known(4.2, 3))
    )
    assert (decision.chosen, decision.provider, decision.model) == ("x/cheap", "x", "cheap")
    assert decision.reason == "cheapest: predicted $0.00042, predicted 4.2 s (3 calls measured)"
    assert reasons(decision) == {
        "x/cheap": ("chosen", decision.reason),
        "x/dear": ("left", "predicted $0.0013, predicted 1 s (1 call measured), 3.1× the chosen route"),
    }
    assert [c.route for c in decision.candidates] == ["x/dear", "x/cheap"]
    assert (decision.task, decision.prompt_tokens, decision.explored) == ("chat", 1000, False)


def test_the_fastest_route_is_chosen_under_minimize_latency():
    decision = ask(
        Policy(minimize="latency"), (option("x/slow", 0), known(4)), (option("x/fast", 9), known(0.5))
    )
    assert decision.chosen == "x/fast"
    assert reasons(decision)["x/slow"][1].endswith("8× the chosen route")


def test_cost_and_latency_are_weighted():
    pair = (option("x/dear", "0.005"), known(1)), (option("x/slow", "0.001"), known(4))
    assert ask(Policy(minimize={"cost": 1, "latency": 0.002}), *pair).chosen == "x/dear"  # .007 and .009
    assert ask(Policy(minimize={"cost": 1, "latency": 0.001}), *pair).chosen == "x/slow"  # .006 and .005


def test_a_refusal_names_the_limit_and_the_excess():
    decision = ask(
        Policy(max_cost_usd=0.001, max_latency_s=2),
        (option("x/ok", "0.001"), known(2)),
        (option("x/slow", "0.0001"), known(4.2)),
        (option("x/dear", "0.0035"), known(0.1)),
    )
    assert decision.chosen == "x/ok"  # a value equal to the limit is allowed
    verdicts = reasons(decision)
    assert verdicts["x/slow"] == ("refused", "predicted 4.2 s exceeds max_latency_s 2 by 2.2 s")
    assert verdicts["x/dear"] == ("refused", "predicted $0.0035 exceeds max_cost_usd 0.001 by $0.0025")
    (missed,) = decision.candidates[1].violations
    assert (missed.constraint, missed.limit, missed.predicted) == ("max_latency_s", 2, 4.2)
    assert missed.over == pytest.approx(2.2)


def test_time_limits_apply_to_the_percentile_and_not_to_the_median():
    sure, shaky = (
        (option("x/sure", 2), known(1.5, limit_factor=1.2)),
        (option("x/shaky", 1), known(1, limit_factor=3.0)),
    )
    assert ask(Policy(max_latency_s=4), sure, shaky).chosen == "x/shaky"
    assert ask(Policy(max_latency_s=2), sure, shaky).chosen == "x/sure"
    first = (
        (option("x/first", 2), known(9, ttft_limit_s=0.2)),
        (option("x/late", 1), known(1, ttft_limit_s=0.5)),
    )
    decision = ask(Policy(max_ttft_s=0.3), *first)
    assert decision.chosen == "x/first"
    assert reasons(decision)["x/late"][1] == "predicted 0.5 s exceeds max_ttft_s 0.3 by 0.2 s"
    assert ask(Policy(deadline_s=1.2), sure, shaky).chosen == "x/shaky"  # half of its calls end in time


def test_a_limit_is_compared_exactly():
    assert ask(Policy(max_cost_usd=0.1), (option("x/y", "0.1"), known())).chosen == "x/y"
    with pytest.raises(NoRouteError):
        ask(Policy(max_cost_usd=0.1), (option("x/y", "0.1000000000000000001"), known()))


def test_deny_allow_and_local_only_refuse_routes():
    options = (
        (option("openai/gpt-4.1-mini", 1), known()),
        (option("local/demo", 2, local=True), known()),
        (option("openai/o3", 3), known()),
    )
    assert ask(Policy(deny=("openai/gpt-4.1",)), *options).chosen == "local/demo"
    assert ask(Policy(allow=("openai/",), deny=("openai/gpt-4.1-mini",)), *options).chosen == "openai/o3"
    verdicts = reasons(ask(Policy(allow=("local/",)), *options))
    assert verdicts["openai/o3"] == ("refused", "not among policy.allow 'local/'")
    verdicts = reasons(ask(Policy(deny=("openai/o3", "openai/g")), *options))
    assert verdicts["openai/gpt-4.1-mini"] == ("refused", "denied by policy.deny 'openai/g'")
    decision = ask(Policy(local_only=True), *options)
    assert decision.chosen == "local/demo"
    assert reasons(decision)["openai/o3"] == (
        "refused",
        "it leaves this machine, and the policy is local_only",
    )


def test_low_or_unknown_quality_is_refused_under_min_quality():
    options = (
        (option("x/low", 1, quality=0.4), known()),
        (option("x/unknown", 1), known()),
        (option("x/good", 9, quality=0.8), known()),
    )
    decision = ask(Policy(min_quality=0.5), *options)
    assert decision.chosen == "x/good"
    verdicts = reasons(decision)
    assert verdicts["x/low"] == ("refused", "quality 0.4 is below min_quality 0.5 by 0.1")
    assert "its quality is unknown" in verdicts["x/unknown"][1]
    assert "[quality]" in verdicts["x/unknown"][1]


def test_an_unavailable_route_states_the_remedy():
    best = option("x/best", 0, unavailable="no key: set X_API_KEY")
    decision = ask(Policy(), (best, known(0)), (option("x/y", 1), known()))
    assert decision.chosen == "x/y"
    assert reasons(decision)["x/best"] == ("unavailable", "no key: set X_API_KEY")


def test_a_prompt_too_long_for_a_context_is_routed_elsewhere():
    small, large = (option("x/small", 1, context=1100), known(1)), (option("x/large", 2), known(1))
    assert ask(Policy(), small, large).chosen == "x/small"
    decision = ask(Policy(), small, large, asked=ASKED._replace(prompt_tokens=1200))
    assert decision.chosen == "x/large"
    assert reasons(decision)["x/small"][1] == "its context has 1100 tokens, and the prompt has about 1200"
    published = (option("x/small", 1, context=1100, published_context=True), known(1))
    for prompt, chosen in ((1400, "x/small"), (1500, "x/large")):  # the prompt's tokens are only estimated
        asked = RouteRequest("chat", prompt, AnswerLength(1, 2, 3), reserved_tokens=900)
        assert ask(Policy(), published, large, asked=asked).chosen == chosen


def test_an_unknown_value_never_wins_against_a_known_one():
    unpriced, measured = (option("x/unknown"), known(0.1)), (option("x/known", 9), known(9))
    decision = ask(Policy(), unpriced, measured)
    assert decision.chosen == "x/known"
    assert reasons(decision)["x/unknown"][1].endswith("cannot win against a known cost")
    decision = ask(Policy(minimize="latency"), (option("x/unknown", "0.1"), known()), measured)
    assert decision.chosen == "x/known"


def test_ties_are_broken_by_the_other_quantity_then_by_order():
    def between(one, other):
        return ask(Policy(), (option("x/one", 1), one), (option("x/other", 1), other)).chosen

    assert between(known(2), known(1)) == "x/other"
    assert between(known(1), known(1)) == "x/one"
    assert between(known(), known(9)) == "x/other"


def test_without_any_known_cost_the_candidate_order_decides():
    decision = ask(Policy(), (option("x/first"), known()), (option("x/second"), known()))
    assert decision.chosen == "x/first"
    assert decision.reason == (
        "nothing is known about it yet; no candidate's cost is known, so the given order decides"
    )
    assert reasons(decision)["x/second"][1] == (
        "nothing is known about it yet; after the chosen route in the given order"
    )


def test_an_unknown_latency_ranks_behind_routes_known_to_meet_the_limit():
    policy = Policy(max_latency_s=2)
    unmeasured = option("x/unmeasured", "0.1"), known()
    assert ask(policy, unmeasured).chosen == "x/unmeasured"
    decision = ask(policy, unmeasured, (option("x/measured", 5), known(1)))
    assert decision.chosen == "x/measured"
    assert "not known to keep max_latency_s 2" in reasons(decision)["x/unmeasured"][1]


def test_a_failing_route_ranks_last_and_time_limits_account_for_failures():
    def between(policy, rate):
        return ask(
            policy, (option("x/a", 1), known(1, failure_rate=rate)), (option("x/b", 2), known(1))
        ).chosen

    assert between(Policy(), 0.3) == "x/a"
    assert between(Policy(), 0.6) == "x/b"
    assert between(Policy(max_latency_s=5), 0.03) == "x/a"
    assert between(Policy(max_latency_s=5), 0.1) == "x/b"  # 5 % of calls may miss the limit
    assert between(Policy(max_latency_s=5, percentile=0.8), 0.1) == "x/a"
    only = ask(Policy(max_latency_s=5), (option("x/a", 1), known(1, failure_rate=0.9)))
    assert only.chosen == "x/a"
    flaky = (option("x/fast", 1), known(1, failure_rate=0.4)), (option("x/slow", 1), known(1.5))
    assert ask(Policy(minimize="latency"), *flaky).chosen == "x/slow"  # a failed attempt takes time, too


def test_no_route_error_lists_every_candidate_and_the_nearest_change():
    policy = Policy(max_latency_s=1, deny=("x/no",))
    with pytest.raises(NoRouteError) as raised:
        ask(
            policy,
            (option("x/no", 1), known()),
            (option("x/slow", 1), known(3.5)),
            (option("x/slower", 1), known(4.5)),
            (option("x/key", unavailable="no key"), known()),
        )
    assert str(raised.value) == (
        "none of 4 candidates satisfies the policy:\n"
        "  x/no: denied by policy.deny 'x/no'\n"
        "  x/slow: predicted 3.5 s exceeds max_latency_s 1 by 2.5 s\n"
        "  x/slower: predicted 4.5 s exceeds max_latency_s 1 by 3.5 s\n"
        "  x/key: no key\n"
        "nearest is x/slow: change max_latency_s from 1 to 3.5, or add candidates"
    )
    decision = raised.value.decision
    assert decision.policy is policy
    assert [c.verdict for c in decision.candidates] == ["refused", "refused", "refused", "unavailable"]


@given(cost=st.decimals("0.0001", 10), seconds=st.floats(0.01, 90), quality=st.floats(0, 0.9))
def test_the_suggested_change_makes_the_route_permitted(cost, seconds, quality):
    only = option("x/y", cost, quality=quality), known(seconds, limit_factor=1.3)
    policy = Policy(max_cost_usd=0.00001, max_latency_s=0.001, min_quality=0.95)
    with pytest.raises(NoRouteError) as raised:
        ask(policy, only)
    suggestion = raised.value.decision.reason.rpartition("change ")[2].removesuffix(", or add candidates")
    changes = dict.fromkeys(("max_cost_usd", "max_latency_s", "min_quality"))
    for change in suggestion.split(" and "):
        changes[change.split()[0]] = float(change.split()[-1])
    assert ask(Policy(**changes), only).chosen == "x/y"


def test_an_empty_candidate_list_names_the_setting():
    with pytest.raises(NoRouteError, match="list some under `candidates`"):
        ask(Policy())


def test_a_named_model_makes_a_decision_with_one_candidate():
    decision = named_decision("local/demo", "local", "demo")
    assert (decision.chosen, decision.provider, decision.model) == ("local/demo", "local", "demo")
    assert [(c.route, c.verdict) for c in decision.candidates] == [("local/demo", "chosen")]
    assert decision.policy is None


def test_alternatives_are_ordered_and_carry_their_hedge_delays():
    listed = (
        (option("x/third", 3), known(1)),
        (option("x/first", 1), known(2, limit_factor=1.5, ttft_limit_s=1.4)),
        (option("x/second", 2), known(1, ttft_limit_s=0.7)),
        (option("x/out", 0, unavailable="no key"), known(1)),
    )
    decision = ask(Policy(), *listed)
    taken = decision.taken
    assert (taken.route, taken.patience_s, taken.latency_limit_s) == ("x/first", 1.4, 3.0)
    assert [other.route for other in decision.alternatives] == ["x/second", "x/third"]
    assert decision.alternatives[0].patience_s == 0.7
    alone = ask(Policy(fallbacks=False), *listed)  # alternatives still serve hedges and session affinity
    assert alone.alternatives == decision.alternatives
    assert list(ask(Policy(fallbacks=()), *listed).alternatives) == []
    unpriced = (option("x/unpriced"), known(1)), (option("x/failing", 0), known(1, failure_rate=0.8)), *listed
    assert [other.route for other in ask(Policy(), *unpriced).alternatives] == [
        "x/second", "x/third", "x/unpriced", "x/failing",
    ]  # fmt: skip


def test_a_given_order_is_kept_and_only_latency_limits_are_ignored():
    listed = (
        option("x/denied", 1),
        option("x/dear", 9),
        option("x/slow", 1),
        option("x/fast", "0.1"),
    )
    policy = Policy(deny=("x/denied",), max_cost_usd=2, max_latency_s=1)
    decision = choose_in_order(policy, listed, [known(1), known(1), known(8), known(0.1)], ASKED)
    assert decision.chosen == "x/slow"
    assert [other.route for other in decision.alternatives] == ["x/fast"]
    assert decision.policy is policy
    with pytest.raises(NoRouteError, match="denied by"):
        choose_in_order(policy, listed[:1], [known()], ASKED)


def test_a_decision_is_an_immutable_snapshot_that_can_be_pickled():
    policy, options = Policy(), [option("x/a", 1), option("x/b", 2)]
    table = ScoreTable(policy, options, "chat")
    table.update([known(1), known(1)])
    early = table.decide(ASKED)
    table.update([known(5), known(7)])
    assert [c.latency_s for c in table.decide(ASKED).candidates] == [5, 7]
    assert [c.latency_s for c in early.candidates] == [1, 1]  # evaluated lazily, after the update
    copied = pickle.loads(pickle.dumps(early))
    assert copied == early
    assert type(copied.candidates) is tuple


def test_a_shortened_decision_evaluates_only_the_candidates_requested():
    listed = [(option(f"x/{i}", 50 - i), known(1)) for i in range(40)]
    decision = ask(Policy(), *listed)
    kept = decision.shortened(5)
    assert [each.route for each in kept] == ["x/0", "x/1", "x/2", "x/3", "x/39"]
    assert kept[-1].verdict == "chosen"
    assert len(decision.candidates._made) == 5
    assert [each.route for each in ask(Policy(), *listed[:3]).shortened(5)] == ["x/0", "x/1", "x/2"]
    assert [each.route for each in ask(Policy(), *listed[::-1]).shortened(2)] == ["x/39", "x/38"]


class TestExploring:
    def choices(self, share, *listed, policy=None, calls=4000):
        explorer = Explorer(random.Random(7))
        policy = policy or Policy(minimize="latency", explore=share)
        options = [each for each, _ in listed]
        table = ScoreTable(policy, options, "chat")
        table.update([estimate for _, estimate in listed])
        return [table.decide(ASKED, explorer) for _ in range(calls)]

    best = (option("x/best", 1), known(1))

    def test_the_explored_share_matches_the_policy_and_is_marked(self):
        unknown = option("x/unknown", 1), known()
        decisions = self.choices(0.1, self.best, unknown)
        explored = [each for each in decisions if each.explored]
        assert {each.chosen for each in explored} == {"x/unknown"}
        assert {each.chosen for each in decisions if not each.explored} == {"x/best"}
        assert 0.08 < len(explored) / len(decisions) < 0.12
        assert "tried to learn more about it" in explored[0].reason
        assert not any(each.explored for each in self.choices(0.0, self.best, unknown))

    @pytest.mark.parametrize(
        ("other", "policy"),
        [
            ((option("x/dear", 5), known(9, uncertain=True)), {"max_cost_usd": 2}),
            ((option("x/slow", 1), known(9, uncertain=True, optimistic_speedup=2.0)), {"max_latency_s": 5}),
            ((option("x/no", 1), known()), {"deny": ("x/no",)}),
            ((option("x/off", 1, unavailable="no key"), known()), {}),
            ((option("x/well-known", 1), known(2)), {}),
            ((option("x/hopeless", 1), known(9, uncertain=True, optimistic_speedup=2.0)), {}),
        ],
        ids=lambda each: each[0].route if isinstance(each, tuple) else "",
    )
    def test_a_forbidden_or_hopeless_route_is_never_explored(self, other, policy):
        decisions = self.choices(
            1.0, self.best, other, policy=Policy(minimize="latency", explore=1.0, **policy)
        )
        assert {each.chosen for each in decisions} == {"x/best"}

    def test_an_unpriced_route_is_not_explored_to_learn_its_price(self):
        decisions = self.choices(1.0, self.best, (option("x/unpriced"), known()), policy=Policy(explore=1.0))
        assert {each.chosen for each in decisions} == {"x/best"}

    def test_exploration_never_leaves_a_free_route(self):
        free = option("local/free", 0, local=True), known(9)
        decisions = self.choices(1.0, free, (option("x/unknown", 1), known()), policy=Policy(explore=1.0))
        assert {each.chosen for each in decisions} == {"local/free"}

    def test_a_slow_route_due_for_a_retry_is_tried_once_at_its_earlier_speed(self):
        slow = known(20, uncertain=True, retry=True, optimistic_speedup=40.0)
        policy = Policy(max_latency_s=5, minimize="latency", explore=1e-6)
        decisions = self.choices(0, self.best, (option("x/slow", 1), slow), policy=policy, calls=300)
        assert [each.chosen for each in decisions].count("x/slow") == 1
        assert decisions[0].chosen == "x/slow"
        dear = self.choices(
            0, self.best, (option("x/slow", 9), slow), policy=Policy(max_cost_usd=5, minimize="latency")
        )
        assert {each.chosen for each in dear} == {"x/best"}

    def test_a_route_due_for_a_retry_that_cannot_win_is_not_evaluated(self, monkeypatch):
        judged = []
        judge = DecisionSnapshot._evaluate
        monkeypatch.setattr(
            DecisionSnapshot, "_evaluate", lambda self, index: judged.append(index) or judge(self, index)
        )
        dear = [
            (option(f"x/dear-{n}", 2 + n), known(9, uncertain=True, retry=True, optimistic_speedup=2.0))
            for n in range(50)
        ]
        decisions = self.choices(0.0, self.best, *dear, policy=Policy(explore=1e-6), calls=20)
        assert {each.chosen for each in decisions} == {"x/best"}
        assert not judged

    def test_the_same_seed_gives_the_same_choices(self):
        listed = self.best, (option("x/unknown", 1), known()), (option("x/other", 1), known())
        once, again = (self.choices(0.3, *listed, calls=200) for _ in range(2))
        assert [each.chosen for each in once] == [each.chosen for each in again]


amounts = st.none() | st.decimals(0, 10, places=3)
estimates = st.builds(
    known,
    st.none() | st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    limit_factor=st.sampled_from([1.0, 1.5]),
    failure_rate=st.sampled_from([0.0, 0.02, 0.3, 0.9]),
    uncertain=st.booleans(),
    retry=st.booleans(),
    optimistic_speedup=st.sampled_from([1.0, 2.0]),
)
listed_options = st.lists(
    st.tuples(
        st.builds(
            option,
            route=st.sampled_from(["a/x", "a/y", "b/x", "b/y"]),
            cost=amounts,
            unavailable=st.none() | st.just("no key"),
            local=st.booleans(),
            quality=st.none() | st.sampled_from([0.2, 0.8]),
        ),
        estimates,
    ),
    max_size=4,
    unique_by=lambda pair: pair[0].route,
)
policies = st.builds(
    Policy,
    minimize=st.sampled_from(["cost", "latency"]) | st.just({"cost": 1, "latency": 0.5}),
    max_cost_usd=st.none() | st.floats(0, 10),
    max_latency_s=st.none() | st.floats(0, 4),
    max_ttft_s=st.none() | st.floats(0, 2),
    min_quality=st.none() | st.just(0.5),
    allow=st.lists(st.sampled_from(["a/", "b/x"]), max_size=2),
    deny=st.lists(st.sampled_from(["a/x", "b/"]), max_size=2),
    local_only=st.booleans(),
    explore=st.sampled_from([0.0, 0.5]),
)


def decide_or_refuse(policy, listed, explorer=None):
    try:
        return ask(policy, *listed, explorer=explorer)
    except NoRouteError as error:
        return error.decision


def meets_policy(policy, option, estimate, times=1.0):
    """Return whether a route meets the policy's limits: an independent statement of the rule under test."""
    cost = None if option.tariff is None else option.tariff.quote.rates.per_call
    if policy.max_cost_usd is not None and (cost is None or cost > Decimal(str(policy.max_cost_usd))):
        return False
    slow = None if estimate.ttft_s is None else estimate.limit_factor * estimate.ttft_s * 2
    if policy.max_latency_s is not None and (slow or 0) / times > policy.max_latency_s:
        return False
    if policy.max_ttft_s is not None and (estimate.ttft_limit_s or 0) / times > policy.max_ttft_s:
        return False
    if policy.min_quality is not None and (option.quality is None or option.quality < policy.min_quality):
        return False
    allowed = not policy.allow or any(option.route.startswith(p) for p in policy.allow)
    denied = any(option.route.startswith(p) for p in policy.deny)
    return allowed and not denied and option.unavailable is None and (option.local or not policy.local_only)


@given(policy=policies, listed=listed_options)
def test_exactly_the_routes_that_meet_the_policy_are_chosen_or_alternatives(policy, listed):
    decision = decide_or_refuse(policy, listed)
    assert [c.route for c in decision.candidates] == [option.route for option, _ in listed]
    for candidate, pair in zip(decision.candidates, listed, strict=True):
        assert (candidate.verdict in ("chosen", "left")) == meets_policy(policy, *pair)
        assert candidate.reason
    chosen_ones = [c.route for c in decision.candidates if c.verdict == "chosen"]
    assert chosen_ones == ([decision.chosen] if any(meets_policy(policy, *pair) for pair in listed) else [])
    assert {c.route for c in decision.candidates if c.verdict == "left"} == {
        other.route for other in decision.alternatives
    }


@given(policy=policies, listed=listed_options, seed=st.integers(0, 99))
def test_exploring_never_breaks_a_limit_and_is_deterministic(policy, listed, seed):
    decision = decide_or_refuse(policy, listed, Explorer(random.Random(seed)))
    chosen = {option.route: (option, estimate) for option, estimate in listed}.get(decision.chosen)
    if chosen is not None:
        # An explored route is checked against its optimistic estimate; its usual one ranked it lower.
        assert meets_policy(policy, *chosen, times=chosen[1].optimistic_speedup if decision.explored else 1.0)
    assert decide_or_refuse(policy, listed, Explorer(random.Random(seed))) == decision


@given(policy=policies, pair=listed_options.filter(lambda listed: len(listed) == 1))
def test_a_single_permitted_candidate_is_always_chosen(policy, pair):
    decision = decide_or_refuse(policy, pair, Explorer(random.Random(1)))
    # An explored route must meet the limits by its optimistic estimate only.
    permitted = meets_policy(
        policy, *pair[0], times=pair[0][1].optimistic_speedup if decision.explored else 1.0
    )
    assert decision.chosen == (pair[0][0].route if permitted else "")


@given(policy=policies, listed=listed_options, seed=st.integers(0, 3), less=st.decimals(0, 5, places=3))
def test_a_lower_price_or_a_rivals_higher_price_never_makes_a_route_lose(policy, listed, seed, less):
    before = decide_or_refuse(policy, listed).chosen
    for index, (one, estimate) in enumerate(listed):
        if one.route != before or one.tariff is None:
            continue
        cost = one.tariff.quote.rates.per_call
        cheaper = option(one.route, max(cost - less, Decimal(0)), local=one.local, quality=one.quality)
        assert (
            decide_or_refuse(policy, [*listed[:index], (cheaper, estimate), *listed[index + 1 :]]).chosen
            == before
        )
        dearer = [
            (option(o.route, o.tariff.quote.rates.per_call + less, **attributes_of(o)), e)
            if o.route != before and o.tariff is not None
            else (o, e)
            for o, e in listed
        ]
        assert decide_or_refuse(policy, dearer).chosen == before


per_token = st.builds(
    lambda n, call, prompt, output, engine, timed, scale: (
        RouteOption(
            f"x/{n}", "x", str(n), scale=scale,
            tariff=Tariff.of(
                Quote(
                    PriceRates(
                        input=prompt, output=output, per_call=call, per_hour={"e": engine} if engine else {}
                    ),
                    "a test",
                )
            ),
        ),
        known(1 + n / 7, engine_token_s=timed, failure_rate=n / 20),
    ),
    st.integers(0, 9), *[st.decimals(0, 9, places=2)] * 3, st.none() | st.decimals(1, 90, places=1),
    st.none() | st.floats(0.001, 1), st.sampled_from([0.7, 1.0, 1.6]),
)  # fmt: skip


@given(
    listed=st.lists(per_token, min_size=1, max_size=6, unique_by=lambda pair: pair[0].route),
    minimize=st.sampled_from(["cost", "latency"]) | st.just({"cost": 1, "latency": 0.01}),
    prompt=st.integers(0, 50_000),
    tokens=st.integers(1, 5000),
)
def test_the_ranking_agrees_with_the_candidates_figures(listed, minimize, prompt, tokens):
    """The decision ranks by precomputed sums; the candidates' figures must give the same order."""
    policy = Policy(minimize=minimize)
    decision = ask(policy, *listed, asked=RouteRequest("chat", prompt, AnswerLength(tokens, tokens, tokens)))
    weights = policy.weights
    scores = {
        c.route: weights.get("cost", 0.0) * float(c.cost)
        + weights.get("latency", 0.0) * c.latency_s / (1 - estimate.failure_rate)
        for c, (_, estimate) in zip(decision.candidates, listed, strict=True)
    }
    assert (
        scores[decision.chosen] <= min(scores.values()) * (1 + 1e-6) + 1e-8
    )  # figures are rounded to nano-dollars
    order = [scores[decision.chosen], *(scores[other.route] for other in decision.alternatives)]
    assert order == pytest.approx(sorted(order), rel=1e-6, abs=1e-8)


def attributes_of(one):
    return {"local": one.local, "quality": one.quality, "unavailable": one.unavailable}


@settings(max_examples=50)
@given(policy=policies, listed=listed_options, changed=st.lists(estimates, min_size=4, max_size=4))
def test_an_updated_score_table_decides_like_a_new_one(policy, listed, changed):
    options = [one for one, _ in listed]
    table = ScoreTable(policy, options, "chat")
    table.update([estimate for _, estimate in listed])
    for count in range(len(listed) + 1):
        now = [*changed[:count], *(estimate for _, estimate in listed[count:])][: len(listed)]
        table.update(now)
        try:
            chosen = table.decide(ASKED).chosen
        except NoRouteError:
            chosen = ""
        assert chosen == decide_or_refuse(policy, list(zip(options, now, strict=True))).chosen

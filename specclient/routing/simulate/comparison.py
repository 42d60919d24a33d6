"""Comparison of a policy with every fixed route, round robin and oracles on the same calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from specclient.routing.simulate.baselines import (
    Clairvoyant,
    FixedRoute,
    GroundTruth,
    Oracle,
    RoundRobin,
    RouteSelector,
)
from specclient.routing.simulate.policy_selector import PolicySelector, permitted_routes
from specclient.routing.simulate.replay import ReplayResult, replay_calls
from specclient.routing.simulate.results import (
    ChangeRecovery,
    ReplaySummary,
    best_fixed,
    find_recoveries,
    summarize,
)
from specclient.routing.simulate.scenario import Scenario
from specclient.types.policy import Policy

__all__ = ["Comparison", "compare"]

_HALVINGS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The results of a policy and of all baselines.

    Attributes:
        percentile: the policy's.
        policy: the router under the policy.
        oracle: a selector that knows the state of every route, but not the outcome of a single call.
        equal: the same oracle, with a percentile at which it keeps the limits as often as the policy did.
        clairvoyant: a selector that also knows the outcome of every call.
        fixed: every route by itself.
        others: round robin and random routes.
        settled: the recovery after each abrupt change that moved the best choice.
        replays: the results of every call, by the selector's name; ``equal`` is that oracle.
        warm_cost: the dollars of the calls that measured every route before the first call.
        at_first: the summaries of the first calls by themselves, under the policy and under the oracle that
            misses the limits in as many of them; None if they were not asked for.
    """

    percentile: float
    policy: ReplaySummary
    oracle: ReplaySummary
    equal: ReplaySummary
    clairvoyant: ReplaySummary
    fixed: tuple[ReplaySummary, ...]
    others: tuple[ReplaySummary, ...]
    settled: tuple[ChangeRecovery, ...]
    replays: Mapping[str, ReplayResult]
    warm_cost: float = 0.0
    at_first: tuple[ReplaySummary, ReplaySummary] | None = None

    @property
    def best_fixed(self) -> ReplaySummary:
        """The cheapest fixed route that keeps the limits; see :func:`best_fixed`."""
        return best_fixed(self.fixed)

    @property
    def over_oracle(self) -> float:
        """The policy's dollars above those of ``equal``, as a share of them."""
        return self.policy.cost / self.equal.cost - 1 if self.equal.cost else 0.0

    @property
    def under_fixed(self) -> float:
        """The policy's dollars below the best fixed route's, as a share of them."""
        return 1 - self.policy.cost / self.best_fixed.cost if self.best_fixed.cost else 0.0

    @property
    def calls_to_settle(self) -> tuple[float, int | None] | None:
        """The median and maximum number of calls until choices were good again, None without a change.

        The maximum is None if choices were not good again before the next change.
        """
        if not self.settled:
            return None
        counts = [each.calls for each in self.settled]
        known = [calls for calls in counts if calls is not None]
        return median(known) if known else float("inf"), max(known) if len(known) == len(counts) else None


def compare(
    ground: Scenario, policy: Policy, *, seed: int = 0, warm: int = 0, first: int | None = None
) -> Comparison:
    """Replay a scenario under a policy and all baselines.

    Args:
        policy: its limits replace those of calls; all selectors are judged by them.
        seed: of the router's exploration, and of random routes.
        warm: the calls by which the router measures every route before the first call of the scenario.
        first: the number of calls from the start that are also compared by themselves; None for none.

    Raises:
        ConfigurationError: the policy permits no route, or weighs a criterion that is unknown for one.
    """
    routes = permitted_routes(ground, policy)
    judge = GroundTruth(ground, policy, routes)
    share = policy.percentile

    def run(selector: RouteSelector) -> tuple[ReplayResult, ReplaySummary]:
        replayed = replay_calls(ground, selector, judge)
        return replayed, summarize(replayed, share)

    router = PolicySelector(ground, policy, seed)
    warm_cost = router.warm_up(warm, routes) if warm else 0.0
    routed, mine = run(router)
    known, oracle = run(Oracle(judge))
    seen, clairvoyant = run(Clairvoyant(ground, judge))
    fixed = [run(FixedRoute(route)) for route in routes]
    others = [run(RoundRobin(routes)), run(RoundRobin(routes, seed))]
    tried = _oracles(ground, judge)
    alike = _equal(tried, routed, share, None)
    runs = [(routed, mine), (known, oracle), (seen, clairvoyant), *fixed, *others]
    return Comparison(
        percentile=share,
        policy=mine,
        oracle=oracle,
        equal=summarize(alike, share),
        clairvoyant=clairvoyant,
        fixed=tuple(each for _, each in fixed),
        others=tuple(each for _, each in others),
        settled=tuple(find_recoveries(ground, judge, routed)),
        replays={replayed.name: replayed for replayed, _ in runs} | {"equal": alike},
        warm_cost=warm_cost,
        at_first=None if first is None else _at_first(tried, routed, share, first),
    )


def _oracles(ground: Scenario, judge: GroundTruth) -> Callable[[float], ReplayResult]:
    """Return a function that replays the oracle at a percentile, each once."""

    @cache
    def run(percentile: float) -> ReplayResult:
        return replay_calls(ground, Oracle(judge, percentile), judge)

    return run


def _at_first(
    tried: Callable[[float], ReplayResult], routed: ReplayResult, share: float, first: int
) -> tuple[ReplaySummary, ReplaySummary]:
    """Return the summaries of the first calls, under the policy and the oracle that misses as many."""
    alike = _equal(tried, routed, share, first)
    return summarize(_part(routed, first), share), summarize(_part(alike, first), share)


def _part(played: ReplayResult, first: int | None) -> ReplayResult:
    return played if first is None else replace(played, steps=played.steps[:first])


def _equal(
    tried: Callable[[float], ReplayResult], routed: ReplayResult, share: float, first: int | None
) -> ReplayResult:
    """Return the cheapest oracle, over its percentile, with at most the policy's share of violations.

    Args:
        first: the number of calls that count, from the start; None for all.
    """

    def summary(played: ReplayResult) -> ReplaySummary:
        return summarize(_part(played, first), share)

    allowed = summary(routed).violations
    low, high = 0.5, 0.9999
    found = tried(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        other = tried(middle)
        if summary(other).violations <= allowed:
            found, high = (other if summary(other).cost <= summary(found).cost else found), middle
        else:
            low = middle
    return found

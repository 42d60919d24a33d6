"""Comparison of a policy with every fixed route, round robin and oracles on the same calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


def compare(ground: Scenario, policy: Policy, *, seed: int = 0) -> Comparison:
    """Replay a scenario under a policy and all baselines.

    Args:
        policy: its limits replace those of calls; all selectors are judged by them.
        seed: of the router's exploration, and of random routes.

    Raises:
        ConfigurationError: the policy permits no route, or weighs a criterion that is unknown for one.
    """
    routes = permitted_routes(ground, policy)
    judge = GroundTruth(ground, policy, routes)
    share = policy.percentile

    def run(selector: RouteSelector) -> tuple[ReplayResult, ReplaySummary]:
        replayed = replay_calls(ground, selector, judge)
        return replayed, summarize(replayed, share)

    routed, mine = run(PolicySelector(ground, policy, seed))
    known, oracle = run(Oracle(judge))
    seen, clairvoyant = run(Clairvoyant(ground, judge))
    fixed = [run(FixedRoute(route)) for route in routes]
    others = [run(RoundRobin(routes)), run(RoundRobin(routes, seed))]
    alike, equal = _equal(ground, judge, mine.violations, share)
    runs = [(routed, mine), (known, oracle), (seen, clairvoyant), *fixed, *others]
    return Comparison(
        percentile=share,
        policy=mine,
        oracle=oracle,
        equal=equal,
        clairvoyant=clairvoyant,
        fixed=tuple(each for _, each in fixed),
        others=tuple(each for _, each in others),
        settled=tuple(find_recoveries(ground, judge, routed)),
        replays={replayed.name: replayed for replayed, _ in runs} | {"equal": alike},
    )


def _equal(
    ground: Scenario, judge: GroundTruth, violations: float, share: float
) -> tuple[ReplayResult, ReplaySummary]:
    """Return the cheapest oracle, over its percentile, with at most this share of violations."""

    def run(percentile: float) -> tuple[ReplayResult, ReplaySummary]:
        replayed = replay_calls(ground, Oracle(judge, percentile), judge)
        return replayed, summarize(replayed, share)

    low, high = 0.5, 0.9999
    found = run(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tried = run(middle)
        if tried[1].violations <= violations:
            found, high = (tried if tried[1].cost <= found[1].cost else found), middle
        else:
            low = middle
    return found

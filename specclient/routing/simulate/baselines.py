"""Baselines of a simulation: fixed routes, round robin, random routes and oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from specclient.routing.choose.policy_terms import policy_terms
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.simulate.host_caches import HeldTokens
from specclient.routing.simulate.scenario import Scenario, SimulatedCall, simulated_call
from specclient.types.criterion import COST, CandidateCall
from specclient.types.policy import Policy

__all__ = [
    "Clairvoyant",
    "FixedRoute",
    "GroundTruth",
    "Oracle",
    "RateLimitWait",
    "RoundRobin",
    "RouteSelector",
    "RouteTruth",
]

#: Returns the seconds until a route's rate limit admits the next request.
RateLimitWait = Callable[[str], float]


def nothing_held(route: str) -> int:  # noqa: ARG001
    """Return 0: no route holds a part of the prompt."""
    return 0


#: Attempts of a call with a named model, according to the client's ``max_retries``.
_TRIES = 3


class RouteSelector(Protocol):
    """Chooses the routes of simulated calls.

    Attributes:
        name: for reports.
        patient: whether it waits for a route's rate limit, as calls with a named model do.
    """

    name: str
    patient: bool

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:
        """Return the routes to try, in order.

        Args:
            free: the state of rate limits.
            held: the state of prompt caches; the router knows neither.
        """

    def learn(self, call: SimulatedCall, sample: CallSample) -> None:
        """Learn from a finished attempt; called when it has ended, or later."""


class _StaticSelector:
    patient = False

    def learn(self, call: SimulatedCall, sample: CallSample) -> None:
        """Learn nothing."""


class FixedRoute(_StaticSelector):
    """One route for all calls, with retries."""

    patient = True

    def __init__(self, route: str) -> None:
        self.name = route

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:  # noqa: ARG002
        return (self.name,) * _TRIES


class RoundRobin(_StaticSelector):
    """The next route for each call, or a random one with a seed; after a failure, the routes that follow."""

    def __init__(self, routes: Sequence[str], seed: int | None = None) -> None:
        self.name = "round robin" if seed is None else "random"
        self._routes = tuple(routes)
        self._rng = None if seed is None else Random(seed)

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:  # noqa: ARG002
        first = call.index if self._rng is None else self._rng.randrange(len(self._routes))
        first %= len(self._routes)
        return self._routes[first:] + self._routes[:first]


@dataclass(frozen=True, slots=True)
class RouteTruth:
    """The true values of a route for a call.

    Attributes:
        kept: the probability that it keeps the call's limits.
        score: the expected value of the quantity that the policy minimizes.
    """

    route: str
    kept: float
    score: float


class GroundTruth:
    """The true values of all routes of a scenario for a policy, computed once for each call.

    Args:
        policy: its limits replace those of calls.
        routes: the routes that the policy permits; None for all.
    """

    def __init__(self, ground: Scenario, policy: Policy, routes: Sequence[str] | None = None) -> None:
        self._ground = ground
        self._policy = policy
        self._terms = policy_terms(policy)
        self._limits = [each for each in self._terms.bounds if not each.criterion.has_fields]
        self._needs_latency = any(criterion is not COST for criterion, _ in self._terms.weights)
        self.routes = tuple(ground.routes if routes is None else routes)
        self.percentile = policy.percentile
        self._seen: dict[tuple[int, str, int], RouteTruth] = {}

    def limited(self, call: SimulatedCall) -> SimulatedCall:
        """Return a call with the limits by which its answer is judged."""
        return call.under(self._policy)

    def all(self, call: SimulatedCall, held: HeldTokens = nothing_held) -> tuple[RouteTruth, ...]:
        """Return every route, in the scenario's order.

        Args:
            held: returns the tokens of the prompt that a route holds.
        """
        return tuple(self._truth(call, route, held(route)) for route in self.routes)

    def _truth(self, call: SimulatedCall, route: str, held: int) -> RouteTruth:
        key = call.index, route, held
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = self._judge(call, route, held)
        return found

    def score(self, call: CandidateCall) -> float:
        """Return the quantity that the policy minimizes, for a simulated call; unknown values count as 0."""
        weights = self._terms.weights
        return sum(weight * (criterion.simulated(call) or 0.0) for criterion, weight in weights)

    def keeps_added_limits(self, call: CandidateCall) -> bool:
        """Return whether a simulated call keeps the policy's limits on criteria that are not shipped ones."""
        return all(each.violation(call) is None for each in self._limits)

    def ranked(
        self,
        call: SimulatedCall,
        free: RateLimitWait,
        held: HeldTokens = nothing_held,
        percentile: float | None = None,
    ) -> list[RouteTruth]:
        """Return the routes below their rate limit: those that keep the limits by score, then the others."""
        required = self.percentile if percentile is None else percentile
        judged_routes = self.all(call, held)
        able = [judged for judged in judged_routes if not free(judged.route)] or list(judged_routes)
        return sorted(
            able, key=lambda j: (0, j.score, -j.kept) if j.kept >= required else (1, -j.kept, j.score)
        )

    def _judge(self, call: SimulatedCall, route: str, held: int) -> RouteTruth:
        ground = self._ground
        tokens, cached = ground.expected_tokens(call), ground.expected_cached(route, held)
        latency_s = ground.expected_s(call, route, call.at, held=held) if self._needs_latency else 0.0
        expected = simulated_call(ground, call, route, tokens, latency_s=latency_s, cached=cached)
        kept = ground.kept(call, route, call.at, held=held) if self.keeps_added_limits(expected) else 0.0
        return RouteTruth(route, kept, self.score(expected))


class Oracle(_StaticSelector):
    """Knows the true state of every route, but not the outcome of a single call.

    Args:
        percentile: the share of calls that must keep the limits; None for the policy's.
    """

    def __init__(self, judge: GroundTruth, percentile: float | None = None) -> None:
        self.name = "oracle"
        self._judge = judge
        self._percentile = percentile

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:
        return [judged.route for judged in self._judge.ranked(call, free, held, self._percentile)]


class Clairvoyant(_StaticSelector):
    """Knows the outcome of each call on every route, and takes the best one that keeps the limits."""

    def __init__(self, ground: Scenario, judge: GroundTruth) -> None:
        self.name = "clairvoyant"
        self._ground = ground
        self._judge = judge

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:
        def rank(route: str) -> tuple[bool, bool, bool, float]:
            out = self._ground.outcome(call, route, call.at, held=held(route))
            tokens = call.completion_tokens
            simulated = simulated_call(
                self._ground,
                call,
                route,
                tokens,
                latency_s=out.latency_s,
                ttft_s=out.ttft_s,
                cached=out.cached,
            )
            kept = call.keeps(out.ttft_s, out.latency_s) and self._judge.keeps_added_limits(simulated)
            broken = out.failed or not kept
            return free(route) > 0, out.failed, broken, self._judge.score(simulated)

        return sorted(self._judge.routes, key=rank)

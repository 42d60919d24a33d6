"""Replay: send the calls of a scenario to the routes that a selector chooses, in simulated time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.simulate.baselines import GroundTruth, RouteSelector, RouteTruth
from specclient.routing.simulate.host_caches import HostCaches
from specclient.routing.simulate.scenario import (
    Scenario,
    SimulatedCall,
    SimulatedOutcome,
    simulated_call,
)
from specclient.types.criterion import CRITERIA

__all__ = ["REFUSED_S", "ReplayResult", "ReplayedCall", "attempt_sample", "replay_calls"]

#: Seconds until a request over a rate limit is refused; seconds until a failed one is retried on its route.
REFUSED_S, AGAIN_S = 0.1, 0.5
#: The window of rate limits, in minutes.
_WINDOW = 1 / 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCall:
    """The result of one call.

    Attributes:
        first: the route that was chosen.
        served: the route that answered, None if none did.
        tries: the number of attempts.
        refused: the number of attempts that a rate limit refused.
        cost: dollars.
        ttft_s, latency_s: seconds since the call arrived, earlier attempts included.
        kept: whether its limits were kept; a call without an answer keeps none.
        best: the best route.
        regret: how much worse the choice was than the best one, in the quantity that the policy minimizes.
        good: whether the choice was as good as the best one, or nearly.
        figures: the values of the criteria without fields of their own, by name; empty without an answer.
    """

    call: SimulatedCall
    first: str
    served: str | None
    tries: int
    refused: int
    cost: float
    ttft_s: float | None
    latency_s: float
    kept: bool
    best: str
    regret: float
    good: bool
    figures: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The results of all calls under one selector, in order of arrival."""

    name: str
    steps: tuple[ReplayedCall, ...]


class _RateLimits:
    """The rate limits of routes: a token bucket each, filled at a constant rate; requests wait in order."""

    def __init__(self, ground: Scenario) -> None:
        self._rates = {route: rate / 60 for route, rate in ground.per_minute.items()}
        self._most = {route: max(rate * _WINDOW, 1.0) for route, rate in ground.per_minute.items()}
        self._left = dict(self._most)
        self._at = dict.fromkeys(self._rates, 0.0)

    def wait(self, route: str, now: float) -> float:
        """Return the seconds until a request is admitted."""
        rate = self._rates.get(route)
        if rate is None:
            return 0.0
        due = self._at[route] + max(1 - self._left[route], 0.0) / rate
        return max(due - now, 0.0)

    def take(self, route: str, now: float) -> None:
        """Count a request."""
        rate = self._rates.get(route)
        if rate is not None:
            passed = max(now - self._at[route], 0.0)
            self._left[route] = min(self._left[route] + rate * passed, self._most[route]) - 1
            self._at[route] = max(now, self._at[route])


class _PendingFeedback:
    """Attempts that a selector learns from when they end."""

    def __init__(self, selector: RouteSelector) -> None:
        self._selector = selector
        self._due: list[tuple[float, int, SimulatedCall, CallSample]] = []
        self._order = count()

    def add(self, call: SimulatedCall, sample: CallSample) -> None:
        heapq.heappush(self._due, (sample.at, next(self._order), call, sample))

    def deliver(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            self._selector.learn(*heapq.heappop(self._due)[2:])


def replay_calls(ground: Scenario, selector: RouteSelector, judge: GroundTruth) -> ReplayResult:
    """Send every call to the routes that a selector returns, one attempt after the other until one answers.

    The selector learns from an attempt when it has ended, so later than calls that arrive meanwhile. A route
    over its rate limit refuses at once; patient selectors wait instead. Selectors receive calls with the
    limits that they are judged by.
    """
    run = _Replay(ground, selector, judge)
    return ReplayResult(selector.name, tuple(run.step(judge.limited(call)) for call in ground.calls))


class _Replay:
    """The state of one run: rate limits, prompt caches, and attempts that have not ended."""

    def __init__(self, ground: Scenario, selector: RouteSelector, judge: GroundTruth) -> None:
        self._ground, self._selector, self._judge = ground, selector, judge
        self._quota, self._feedback = _RateLimits(ground), _PendingFeedback(selector)
        self._caches = HostCaches(ground)
        self._criteria = [each for each in CRITERIA.values() if not each.has_fields]

    def step(self, call: SimulatedCall) -> ReplayedCall:
        """Replay one call to its end."""
        self._feedback.deliver(call.at)
        waits = {route: self._quota.wait(route, call.at) for route in self._ground.per_minute}

        def free(route: str) -> float:
            return waits.get(route, 0.0)

        held_now = {route: self._caches.held(call, route, call.at) for route in self._ground.caches}

        def held(route: str) -> int:
            return held_now.get(route, 0)

        order = self._selector.order(call, free, held)
        ranked = self._judge.ranked(call, free, held)
        served, now, tried, refused, outcome = self._send(call, order)
        latency = now - call.at
        first = latency - outcome.latency_s + outcome.ttft_s if outcome.ttft_s is not None else None
        cost, kept, figures = 0.0, False, dict[str, float | None]()
        if served is not None:
            simulated = simulated_call(
                self._ground,
                call,
                served,
                call.completion_tokens,
                latency_s=latency,
                ttft_s=first,
                cached=outcome.cached,
            )
            cost = simulated.cost_usd or 0.0
            kept = call.keeps(first, latency) and self._judge.keeps_added_limits(simulated)
            figures = {each.name: each.simulated(simulated) for each in self._criteria}
        chosen = order[0] if order else ""
        best, regret, good = _judged(self._judge, self._judge.all(call, held), chosen, ranked)
        return ReplayedCall(
            call=call,
            first=chosen,
            served=served,
            tries=tried,
            refused=refused,
            cost=cost,
            ttft_s=first,
            latency_s=latency,
            kept=kept,
            best=best,
            regret=regret,
            good=good,
            figures=figures,
        )

    def _send(
        self, call: SimulatedCall, order: Sequence[str]
    ) -> tuple[str | None, float, int, int, SimulatedOutcome]:
        """Try routes in order.

        Returns:
            The route that answered, the time, all attempts, the refused ones, and the last outcome.
        """
        now, sent, refused = call.at, list[str](), 0
        outcome = SimulatedOutcome(latency_s=0.0, failed=True)
        for route in order:
            wait = self._quota.wait(route, now)
            if wait and not self._selector.patient:
                refused, now = refused + 1, now + REFUSED_S
                outcome = SimulatedOutcome(latency_s=REFUSED_S, failed=True)
                self._feedback.add(call, attempt_sample(call, route, now, outcome, refused=True))
                continue
            now += wait
            self._quota.take(route, now)
            held = self._caches.held(call, route, now)
            outcome = self._ground.outcome(call, route, now, sent.count(route), held=held)
            if not outcome.failed:
                self._caches.served(call, route, now)
            sent.append(route)
            now += outcome.latency_s
            self._feedback.add(call, attempt_sample(call, route, now, outcome))
            if not outcome.failed:
                return route, now, len(sent) + refused, refused, outcome
            if self._selector.patient:
                now += AGAIN_S
        return None, now, len(sent) + refused, refused, outcome


def _judged(
    judge: GroundTruth, routes: Sequence[RouteTruth], chosen: str, ranked: Sequence[RouteTruth]
) -> tuple[str, float, bool]:
    """Return the best route, the regret of the chosen one, and whether it was nearly as good.

    A shortfall in the probability of keeping the limits adds that share of the best route's score, as if so
    many calls had to be repeated. Nearly as good is within 5 % of the score and within two points of the
    probability, by which a policy may miss its percentile.
    """
    best = ranked[0]
    mine = next((judged for judged in routes if judged.route == chosen), None)
    if mine is None:
        return best.route, best.score, False
    if mine.route not in {judged.route for judged in ranked}:  # over its rate limit
        return best.route, best.score, False
    short = max(min(judge.percentile, best.kept) - mine.kept, 0.0)
    more = max(mine.score - best.score, 0.0)
    return best.route, more + best.score * short, short <= 0.02 and more <= 0.05 * best.score


def attempt_sample(
    call: SimulatedCall, route: str, at: float, outcome: SimulatedOutcome, *, refused: bool = False
) -> CallSample:
    """Return the sample of an attempt, as from the record of a live one."""
    answered = not outcome.failed
    return CallSample(
        route=route,
        at=at,
        task=call.task,
        failed=outcome.failed,
        refused=refused,
        ttft_s=outcome.ttft_s if answered else None,
        latency_s=outcome.latency_s,
        prompt_tokens=call.prompt_tokens if answered else None,
        cached_tokens=outcome.cached if answered else None,
        session=call.session,
        completion_tokens=call.completion_tokens if answered else None,
        drafted=outcome.drafted,
        accepted=outcome.accepted,
        steps=outcome.steps,
    )

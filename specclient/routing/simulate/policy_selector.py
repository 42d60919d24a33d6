"""Policies in a simulation, with the code of live calls: same estimates, same samples, same choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random

from specclient.errors import ConfigurationError, NoRouteError
from specclient.prices.rates import PriceRates, Quote
from specclient.routing.choose.constraints import exclusion
from specclient.routing.choose.exploration import Explorer
from specclient.routing.choose.policy_tables import PolicyTables
from specclient.routing.choose.policy_terms import policy_terms
from specclient.routing.choose.route_options import NOTHING_HELD, RouteOption, RouteRequest
from specclient.routing.choose.tariff import Tariff
from specclient.routing.learn.adaptive_percentile import kept_limits
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.estimator import Estimator
from specclient.routing.learn.route_estimate import representative_length
from specclient.routing.simulate.baselines import RateLimitWait
from specclient.routing.simulate.host_caches import HeldTokens
from specclient.routing.simulate.replay import attempt_sample
from specclient.routing.simulate.scenario import Scenario, SimulatedCall, simulated_call
from specclient.types.criterion import COST, PromptTask
from specclient.types.policy import Policy

__all__ = ["PolicySelector", "permitted_routes", "policy_for_call"]

_START = datetime(2026, 1, 1, tzinfo=UTC)
_MILLION = Decimal(1_000_000)
#: Tokens of a short and of a long prompt, and of the answers of a warm-up, as of ``specclient route warm``.
_WARM_PROMPTS, _WARM_ANSWER = (20, 2000), 48


class PolicySelector:
    """The router's own choice in simulated time, without any earlier calls, but with what is published.

    Args:
        policy: its limits replace those of calls.
        seed: of the random numbers for exploration.
    """

    patient = False

    def __init__(self, ground: Scenario, policy: Policy, seed: int = 0) -> None:
        self.name = "policy"
        self._policy = policy
        self._now = 0.0
        self._estimates = Estimator(priors=ground.priors, now=lambda: _START + timedelta(seconds=self._now))
        self._explorer = Explorer(Random(seed))
        self._ground = ground
        self._options = tuple(_option(ground, route) for route in ground.routes)
        self._tables: dict[tuple[Policy, PromptTask, int | None], PolicyTables] = {}

    def warm_up(self, calls: int, routes: Sequence[str]) -> float:
        """Measure routes as ``specclient route warm`` does, just before the first call; return the dollars.

        Args:
            calls: of each route; every second one has a long prompt.
            routes: the routes to measure.
        """
        ground, cost = self._ground, 0.0
        start = ground.calls[0].at if ground.calls else 0.0
        for number in range(calls):
            prompt = _WARM_PROMPTS[number % len(_WARM_PROMPTS)]
            call = SimulatedCall(
                index=-1 - number,  # no call of the scenario has it
                at=start,
                task="chat",
                prompt_tokens=prompt,
                completion_tokens=_WARM_ANSWER,
            )
            for route in routes:
                outcome = ground.outcome(call, route, start)
                sample = attempt_sample(call, route, start, outcome)
                self.learn(call, replace(sample, task=None, warm_up=True))
                rates = ground.rates.get(route)
                if rates is not None and not outcome.failed:
                    cost += rates.cost(prompt, _WARM_ANSWER)
        return cost

    def order(self, call: SimulatedCall, free: RateLimitWait, held: HeldTokens) -> Sequence[str]:  # noqa: ARG002 - the router knows neither
        """Return the chosen route and its fallbacks."""
        self._now = call.at
        policy = policy_for_call(call, self._policy)
        task: PromptTask = call.task if policy.task == "auto" else policy.task
        prompt = call.prompt_tokens
        estimates, session = self._estimates, call.session
        length = estimates.length(task, prompt, session=session)
        held_prefixes = NOTHING_HELD if session is None else estimates.held(session, prompt)
        request = RouteRequest(task, prompt, length, held=held_prefixes)
        key = policy, task, representative_length(prompt)
        tables = self._tables.get(key)
        if tables is None:
            tables = self._tables[key] = PolicyTables(
                policy, self._options, task, estimates.margin(self._policy, task, prompt)
            )
        try:
            decision = tables.decide(estimates, request, self._explorer)
        except NoRouteError:
            return ()
        others = decision.alternatives if policy.falls_back else ()
        return (decision.chosen, *(other.route for other in others))

    def learn(self, call: SimulatedCall, sample: CallSample) -> None:
        """Learn from a finished attempt as a client's estimator does.

        The policy's percentile holds for all calls together, whatever their own limits are, unless its
        ``percentile_per`` says otherwise.
        """
        self._now = max(self._now, sample.at)
        self._estimates.learn(replace(sample, at=_START.timestamp() + sample.at))
        limits_kept = None if sample.warm_up else kept_limits(sample, policy_for_call(call, self._policy))
        if limits_kept is not None:
            self._estimates.margin(self._policy, call.task, call.prompt_tokens).add(limits_kept)


def permitted_routes(ground: Scenario, policy: Policy) -> tuple[str, ...]:
    """Return the routes that a policy does not rule out by name.

    Raises:
        ConfigurationError: no route is left, or the policy weighs a criterion that is unknown for one.
    """
    options = [_option(ground, route) for route in ground.routes]
    left = tuple(option.route for option in options if exclusion(policy, option) is None)
    if not left:
        raise ConfigurationError(
            f"the policy permits none of the routes in {ground.name}: {', '.join(ground.routes)}; "
            "change its allow, deny or local_only"
        )
    added = [each for each, _ in policy_terms(policy).weights if not each.has_fields]
    for criterion, call in ((each, call) for each in added for call in ground.calls[:1]):
        tokens = call.completion_tokens
        calls = {
            route: simulated_call(ground, call, route, tokens, latency_s=0.0, ttft_s=0.0) for route in left
        }
        unknown = [route for route, each in calls.items() if criterion.simulated(each) is None]
        if unknown:
            raise ConfigurationError(
                f"the {criterion.title} of {', '.join(unknown)} is unknown, and the policy weighs it; "
                f"deny the route, or leave {criterion.name!r} out of minimize"
            )
    unpriced = [route for route in left if route not in ground.rates]
    if unpriced and policy.weights.get(COST.name):
        raise ConfigurationError(
            f"{ground.name} has no cost of {', '.join(unpriced)}, and the policy weighs cost; give cost_usd "
            "in the trace, deny the route, or minimize latency"
        )
    return left


def policy_for_call(call: SimulatedCall, policy: Policy) -> Policy:
    """Return a policy with a call's own limits of time where the policy has none."""
    limited = call.under(policy)
    first, complete = limited.max_ttft_s, limited.max_latency_s
    if first == policy.max_ttft_s and complete == policy.max_latency_s:
        return policy
    return replace(policy, max_ttft_s=first, max_latency_s=complete)


def _option(ground: Scenario, route: str) -> RouteOption:
    provider, _, model = route.partition("/")
    rates = ground.rates.get(route)
    quote = None
    if rates is not None:
        listed = PriceRates(
            input=Decimal(repr(rates.prompt)) * _MILLION,
            output=Decimal(repr(rates.completion)) * _MILLION,
            cached_input=None if rates.cached is None else Decimal(repr(rates.cached)) * _MILLION,
        )
        quote = Quote(listed, source=ground.name)
    return RouteOption(
        route=route, provider=provider, model=model, tariff=Tariff.of(quote), local=route in ground.local
    )

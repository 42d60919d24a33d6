"""What policies are tried out on, a world or a trace: calls, and what each route does with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from specclient.types.criterion import COST, LATENCY, QUALITY, TTFT, RoutedCall
from specclient.types.route import Policy, PromptTask

__all__ = [
    "SUMMARIZED",
    "RouteChange",
    "Scenario",
    "SimulatedCall",
    "SimulatedOutcome",
    "TokenPrices",
    "simulated_call",
]

#: Criteria with statistics of their own in a summary; every other one is summarized by its mean.
SUMMARIZED = frozenset({COST.name, LATENCY.name, TTFT.name, QUALITY.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCall:
    """One call that arrives.

    Attributes:
        index: its place among the calls; ``at``: seconds since the first moment.
        prompt_tokens, completion_tokens: of its prompt, and of its answer on any route. No policy knows the
            answer's length beforehand.
        max_ttft_s, max_latency_s: limits that it brings along, None for none; once it is :meth:`under` a
            policy, those that it is judged by.
    """

    index: int
    at: float
    task: PromptTask
    prompt_tokens: int
    completion_tokens: int
    max_ttft_s: float | None = None
    max_latency_s: float | None = None

    def under(self, policy: Policy) -> SimulatedCall:
        """Return the call with the limits that hold for it: the policy's, and its own where that has none."""
        first = self.max_ttft_s if policy.max_ttft_s is None else policy.max_ttft_s
        whole = self.max_latency_s if policy.max_latency_s is None else policy.max_latency_s
        if first == self.max_ttft_s and whole == self.max_latency_s:
            return self
        return replace(self, max_ttft_s=first, max_latency_s=whole)

    def keeps(self, ttft_s: float | None, latency_s: float) -> bool:
        """Tell whether an answer with these times keeps the limits; a missing time counts as the whole."""
        first = latency_s if ttft_s is None else ttft_s
        return (self.max_ttft_s is None or first <= self.max_ttft_s) and (
            self.max_latency_s is None or latency_s <= self.max_latency_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOutcome:
    """What a route does with a call.

    Attributes:
        failed: whether there was no answer; ``latency_s`` is then the time until that was known.
        drafted, accepted, steps: as in :class:`specclient.types.usage.Speculation`.
    """

    latency_s: float
    ttft_s: float | None = None
    failed: bool = False
    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Dollars for each prompt token and each token of the answer."""

    prompt: float
    completion: float

    def cost(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Return the dollars of a call."""
        return self.prompt * prompt_tokens + self.completion * completion_tokens


@dataclass(frozen=True, slots=True)
class RouteChange:
    """A moment at which a route changed abruptly, and what happened to it."""

    at: float
    route: str
    what: str


class Scenario(Protocol):
    """A world or a trace.

    Attributes:
        name: what it is called in a report; ``routes``: the candidates.
        rates: prices by route; a route without is not priced.
        per_minute: requests a minute that a route allows, for those with a limit.
        changes: abrupt ones, in order, where they are known.
    """

    @property
    def name(self) -> str: ...
    @property
    def routes(self) -> tuple[str, ...]: ...
    @property
    def calls(self) -> Sequence[SimulatedCall]: ...
    @property
    def rates(self) -> Mapping[str, TokenPrices]: ...
    @property
    def per_minute(self) -> Mapping[str, float]: ...
    @property
    def changes(self) -> Sequence[RouteChange]: ...

    def outcome(self, call: SimulatedCall, route: str, at: float, attempt: int = 0) -> SimulatedOutcome:
        """Return what a route does with a call sent to it at ``at`` seconds, 0 being its first attempt."""

    def kept(self, call: SimulatedCall, route: str, at: float) -> float:
        """Return how likely a route keeps a call's limits then, as only an oracle can know."""

    def expected_s(self, call: SimulatedCall, route: str, at: float) -> float:
        """Return the mean seconds of a call on a route then, as only an oracle can know."""

    def expected_tokens(self, call: SimulatedCall) -> float:
        """Return the mean length of an answer to such a call."""


def simulated_call(
    scenario: Scenario,
    call: SimulatedCall,
    route: str,
    completion_tokens: float,
    *,
    latency_s: float,
    ttft_s: float | None = None,
) -> RoutedCall:
    """Return a call on a route in the form that criteria take.

    Args:
        completion_tokens: of the answer, true or expected.
        latency_s, ttft_s: seconds to the whole answer and to the first token, true or expected.
    """
    rates = scenario.rates.get(route)
    return RoutedCall(
        route=route,
        task=call.task,
        local=route.startswith("local/"),
        draft=None,
        prompt_tokens=call.prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=None if rates is None else rates.cost(call.prompt_tokens, completion_tokens),
        exact_cost_usd=None,
        latency_s=latency_s,
        latency_limit_s=latency_s,
        ttft_s=ttft_s,
        ttft_limit_s=ttft_s,
        quality=None,
    )

"""Scenarios: the calls that policies are simulated on, and the outcome of each call on each route."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from specclient.types.criterion import CandidateCall, PromptTask
from specclient.types.policy import Policy

if TYPE_CHECKING:
    from specclient.routing.learn.priors import RoutePrior

__all__ = [
    "PrefixCacheSpec",
    "RouteChange",
    "Scenario",
    "SimulatedCall",
    "SimulatedOutcome",
    "TokenPrices",
    "simulated_call",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCall:
    """One call that arrives.

    Attributes:
        index: its position among the calls.
        at: seconds since the start.
        prompt_tokens, completion_tokens: of its prompt, and of its answer on any route. Policies do not know
            the answer's length beforehand.
        max_ttft_s, max_latency_s: its own limits of time, None for none; after :meth:`under`, the limits by
            which it is judged.
        session: the conversation that it belongs to, None where unknown.
        prefix: the blocks of its prompt; a block stands for all before it, too. Empty where unknown.
    """

    index: int
    at: float
    task: PromptTask
    prompt_tokens: int
    completion_tokens: int
    max_ttft_s: float | None = None
    max_latency_s: float | None = None
    session: str | None = None
    prefix: tuple[int, ...] = ()

    def under(self, policy: Policy) -> SimulatedCall:
        """Return the call with the policy's limits of time, and its own where the policy has none."""
        first = self.max_ttft_s if policy.max_ttft_s is None else policy.max_ttft_s
        complete = self.max_latency_s if policy.max_latency_s is None else policy.max_latency_s
        if first == self.max_ttft_s and complete == self.max_latency_s:
            return self
        return replace(self, max_ttft_s=first, max_latency_s=complete)

    def keeps(self, ttft_s: float | None, latency_s: float) -> bool:
        """Return whether an answer keeps the limits of time; a missing ``ttft_s`` counts as ``latency_s``."""
        first = latency_s if ttft_s is None else ttft_s
        return (self.max_ttft_s is None or first <= self.max_ttft_s) and (
            self.max_latency_s is None or latency_s <= self.max_latency_s
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOutcome:
    """The outcome of a call on a route.

    Attributes:
        failed: whether there was no answer; ``latency_s`` is then the time until the failure.
        drafted, accepted, steps: as in :class:`specclient.types.usage.Speculation`.
        cached: the tokens of the prompt that the route had in its cache.
    """

    latency_s: float
    ttft_s: float | None = None
    failed: bool = False
    drafted: int | None = None
    accepted: int | None = None
    steps: int | None = None
    cached: int = 0


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Dollars per prompt and per answer token; ``cached`` per cached prompt token, None for all alike."""

    prompt: float
    completion: float
    cached: float | None = None

    def cost(self, prompt_tokens: float, completion_tokens: float, cached_tokens: float = 0) -> float:
        """Return the dollars of a call; ``cached_tokens`` are a part of the prompt's."""
        saved = 0.0 if self.cached is None else (self.prompt - self.cached) * cached_tokens
        return self.prompt * prompt_tokens + self.completion * completion_tokens - saved


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheSpec:
    """The prompt cache of a host, as specified.

    Attributes:
        lifetime_s: seconds for which an unused block is kept.
        hits: the share of requests that reach a server that holds the prefix.
        price: the price of a cached token, as a share of that of others.
        tokens: its size, beyond which the least recently used blocks are dropped; None for a host so large
            that only the lifetime counts.
    """

    lifetime_s: float
    hits: float
    price: float = 1.0
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RouteChange:
    """An abrupt change of a route: when, and what happened."""

    at: float
    route: str
    what: str


class Scenario(Protocol):
    """A world or a trace.

    Attributes:
        name: for reports.
        routes: the candidates.
        local: the routes whose calls stay on this machine.
        rates: prices by route; routes without an entry have no price.
        per_minute: the rate limits of routes, in requests per minute.
        caches: the prompt caches of routes.
        changes: the known abrupt changes, in order.
        priors: what is published of routes.
    """

    @property
    def name(self) -> str: ...
    @property
    def routes(self) -> tuple[str, ...]: ...
    @property
    def local(self) -> Collection[str]: ...
    @property
    def calls(self) -> Sequence[SimulatedCall]: ...
    @property
    def rates(self) -> Mapping[str, TokenPrices]: ...
    @property
    def per_minute(self) -> Mapping[str, float]: ...
    @property
    def caches(self) -> Mapping[str, PrefixCacheSpec]: ...
    @property
    def changes(self) -> Sequence[RouteChange]: ...
    @property
    def priors(self) -> Mapping[str, RoutePrior]: ...

    def outcome(
        self, call: SimulatedCall, route: str, at: float, attempt: int = 0, *, held: int = 0
    ) -> SimulatedOutcome:
        """Return the outcome of a call sent at ``at`` seconds.

        Args:
            attempt: counts from 0 on each route.
            held: the tokens of the prompt in the route's cache.
        """

    def kept(self, call: SimulatedCall, route: str, at: float, *, held: int = 0) -> float:
        """Return the true probability that a route keeps a call's limits then."""

    def expected_s(self, call: SimulatedCall, route: str, at: float, *, held: int = 0) -> float:
        """Return the true mean seconds of a call on a route then."""

    def expected_cached(self, route: str, held: int) -> float:
        """Return the mean number of cached tokens if the route's cache has ``held`` tokens of a prompt."""

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
    cached: float = 0,
) -> CandidateCall:
    """Return a call on a route in the form that criteria take.

    Args:
        completion_tokens: of the answer, true or expected.
        latency_s, ttft_s: seconds to the whole answer and to the first token, true or expected.
        cached: the cached tokens of the prompt, true or expected.
    """
    rates = scenario.rates.get(route)
    return CandidateCall(
        route=route,
        task=call.task,
        local=route in scenario.local,
        draft=None,
        prompt_tokens=call.prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=None if rates is None else rates.cost(call.prompt_tokens, completion_tokens, cached),
        exact_cost_usd=None,
        latency_s=latency_s,
        latency_limit_s=latency_s,
        ttft_s=ttft_s,
        ttft_limit_s=ttft_s,
        quality=None,
    )

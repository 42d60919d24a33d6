"""Session affinity: keep a session on the route whose cache holds its prompt, if that pays.

Two rules decide where a session stays. A decision whose scores count what each route holds of the prompt
(:mod:`specclient.routing.learn.session_caches`, :attr:`Decision.counts_caches`) is final: it has compared
every route that served the session, by learned shares. This module decides about the others: prompts that
are short in the request (also those of stored conversations, of which only the usage tells the length),
calls whose usage is not reported, and routes in the caller's order. It knows only the last route, how long
vendors keep a prompt, and what writing it to another cache costs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal

from specclient.prices.prices import Prices
from specclient.prices.prompt_caches import HOUR_S, prompt_cache_of
from specclient.providers.endpoint import Endpoint
from specclient.routing.choose.policy_terms import policy_terms
from specclient.routing.destinations import DestinationRegistry
from specclient.runtime.forks import register_fork_reset
from specclient.types.call import Call
from specclient.types.criterion import COST, LATENCY
from specclient.types.policy import Policy
from specclient.types.route import Alternative, Candidate, Decision
from specclient.types.usage import Usage

__all__ = ["SessionAffinity"]

#: The assumed share of prefill in the time to the first token.
PREFILL = 0.5
#: Sessions remembered; beyond it the least recent one is forgotten.
SESSIONS = 4096


@dataclass(frozen=True, slots=True)
class _LastRoute:
    """The last call of a session; ``calls`` counts those on this route in a row.

    Attributes:
        at: monotonic seconds.
        prompt, cached, written: tokens; ``written`` to the cache, at a price.
        hour: whether some were written for an hour.
    """

    route: str
    at: float
    calls: int
    prompt: int
    cached: int | None
    written: int = 0
    hour: bool = False

    def expected(self, shortest: int) -> int:
        """Return the tokens of the next prompt that are expected to be in the route's cache.

        After a first call, the whole prompt may be cached; the usage of the second call reports the number
        that was read, and what it wrote is read next.

        Args:
            shortest: tokens of the shortest prompt that the provider caches.
        """
        if self.calls > 1 or self.written:
            return min((self.cached or 0) + self.written, self.prompt)
        return self.prompt if self.prompt >= shortest else 0


class SessionAffinity:
    """The routes that last served each session.

    Args:
        prices: give the savings of a cached prompt.
        clock: returns monotonic seconds.
        most: the number of sessions remembered.
    """

    def __init__(self, prices: Prices, *, clock: Callable[[], float], most: int = SESSIONS) -> None:
        self._prices = prices
        self._clock = clock
        self._most = most
        self._last: OrderedDict[str, _LastRoute] = OrderedDict()
        self._lock = threading.Lock()
        register_fork_reset(self)

    def __len__(self) -> int:
        """Return the number of sessions remembered."""
        return len(self._last)

    def reset_after_fork(self) -> None:
        """Replace the lock in a forked child, as another thread of the parent may have held it."""
        self._lock = threading.Lock()

    def note(self, call: Call) -> None:
        """Note a finished call of a session."""
        session, route = call.session, call.route.chosen
        if session is None or call.status != "ok":
            return
        served = [part.usage for part in call.parts if part.route.chosen == route]
        usage = served[-1] if served else call.usage
        with self._lock:
            before = self._last.pop(session, None)
            calls = before.calls + 1 if before is not None and before.route == route else 1
            self._last[session] = _LastRoute(
                route,
                self._clock(),
                calls,
                usage.prompt or 0,
                usage.cached,
                usage.cache_write or 0,
                bool(usage.cache_write_1h),
            )
            if len(self._last) > self._most:
                self._last.popitem(last=False)

    def prefer_cached_route(
        self, session: str, decision: Decision, destinations: DestinationRegistry
    ) -> Decision:
        """Return a decision for the route that served a session last if that pays, else ``decision``.

        The route must meet the policy, its cache must still have the prompt, and its score, less the expected
        savings of its cache, must not be above the chosen route's. Savings include what another provider
        charges for writing the prompt to its cache, if the session's calls ask for that.
        """
        last, policy = self._last.get(session), decision.policy
        if last is None or policy is None or last.route == decision.chosen:
            return decision
        own = next((each for each in decision.alternatives if each.route == last.route), None)
        if own is None:
            return decision
        cache = prompt_cache_of(_vendor_of(own, destinations))
        if self._clock() - last.at > (HOUR_S if last.hour else cache.kept_s):
            return decision
        mine, chosen = _candidate_of(decision, own), _candidate_of(decision, decision.first)
        if mine is None or chosen is None or mine.violations:
            return decision
        expected = last.expected(cache.shortest)
        saved = self._saved(own, Usage(prompt=expected, completion=0, cached=expected), destinations)
        if last.written or last.hour:
            again = Usage(prompt=last.prompt, completion=0, cache_write=last.prompt)
            saved -= self._saved(decision.first, again, destinations)
        saved = max(saved, Decimal(0))
        if not _is_worth(mine, chosen, policy, saved, expected / max(last.prompt, 1)):
            return decision
        reason = f"served this session last, with {expected} tokens of its prompt expected in its cache"
        if saved:
            reason += f", which saves ${saved.normalize():f}"
        return _moved(decision, own, reason)

    def _saved(self, route: Alternative, usage: Usage, destinations: DestinationRegistry) -> Decimal:
        """Return the dollars that a route's prompt cache saves; negative if it costs more, 0 if unknown."""
        listed = _vendor_of(route, destinations)
        if not usage.prompt or self._prices.quote(route.provider, route.model, price_provider=listed) is None:
            return Decimal(0)
        at = datetime.now(UTC)
        cost = self._prices.price(usage, route.provider, route.model, price_provider=listed, at=at)
        return cost.cache_saved or Decimal(0)


def _vendor_of(route: Alternative, destinations: DestinationRegistry) -> str | None:
    """Return the vendor whose prices apply at a route."""
    destination = destinations.get(route.provider)
    return destination.price_provider if isinstance(destination, Endpoint) else None


def _is_worth(mine: Candidate, chosen: Candidate, policy: Policy, saved: Decimal, share: float) -> bool:
    """Return whether a route is as good as the chosen one, given the savings of its cache.

    Args:
        share: of the prompt that is expected in the cache.
    """
    weights = policy_terms(policy).weights
    for criterion, _ in weights:
        if mine.figures.get(criterion.name) is None and chosen.figures.get(criterion.name) is not None:
            return False  # an unknown value never wins against a known one
    saved_s = (mine.ttft_s or 0.0) * PREFILL * share
    savings = {COST.name: float(saved), LATENCY.name: saved_s}

    def score(each: Candidate, savings: Mapping[str, float]) -> float:
        return sum(
            weight * max((each.figures.get(criterion.name) or 0.0) - savings.get(criterion.name, 0.0), 0.0)
            for criterion, weight in weights
        )

    return score(mine, savings) <= score(chosen, {})


def _candidate_of(decision: Decision, route: Alternative) -> Candidate | None:
    """Return a route's candidate; lazy candidates after it are not computed."""
    strategy = None if route.strategy is None else route.strategy.kind
    return next((c for c in decision.candidates if c.route == route.route and c.strategy == strategy), None)


def _moved(decision: Decision, to: Alternative, reason: str) -> Decision:
    """Return a decision for an alternative; the chosen route becomes its first alternative."""
    was = decision.first
    left = f"{decision.reason}; left for {to.route}, which {reason}"
    others = (was, *(each for each in decision.alternatives if each is not to))
    moved = decision.moved(to, reason=reason, left=left)
    return replace(moved, alternatives=others, explored=False)

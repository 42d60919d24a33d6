"""Prompt caches by session: which routes hold the beginning of a session's next prompt, and how surely.

The next prompt of a session begins with its last one, so the routes that served the session may have it in
their caches. How often they do is learned from the cached tokens that later calls report, for each route and
by the time since its last call of the session: caches expire, are full, or belong to one of many servers.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from specclient.routing.learn.call_sample import CallSample

__all__ = ["SHORTEST", "HeldPrefix", "SessionCaches"]

#: Tokens of the shortest prompt that providers cache (OpenAI and Anthropic, "Prompt caching").
SHORTEST = 1024
#: Sessions remembered, and routes of each; beyond them the least recent is forgotten.
SESSIONS, _ROUTES = 4096, 8
#: Upper ends of the classes of seconds since a route's last call of a session, and the share of the prompt
#: that is assumed to be held in each. Providers keep prompts for five minutes to a day (same pages).
_AGES = (60.0, 300.0, 1200.0, 4800.0, 86400.0)
_ASSUMED = (0.8, 0.8, 0.4, 0.3, 0.1)
#: The weight of the assumption in calls; of the calls of a neighbouring class; calls after which one weighs
#: half.
_ASSUMED_CALLS, _NEIGHBOUR, _CALLS = 1.0, 0.3, 50.0
#: Routes whose shares are remembered; beyond it all are learned again.
_MOST_SHARES = 8192
_NONE: Mapping[str, HeldPrefix] = {}


class HeldPrefix(NamedTuple):
    """The beginning of a prompt that a route may hold in its cache.

    Attributes:
        tokens: its length, if it is held.
        share: the share of such tokens that was held in earlier calls, from 0 to 1.
        written: whether the last call wrote tokens to the cache at a price, as the next one will.
    """

    tokens: int
    share: float
    written: bool = False

    @property
    def expected(self) -> float:
        """The mean number of cached tokens."""
        return self.tokens * self.share


class SessionCaches:
    """Learns which part of a session's next prompt each route holds."""

    __slots__ = ("_last", "_shares")

    def __init__(self) -> None:
        #: By session and route: when its last call ended, the tokens of that prompt, and whether some of them
        #: were written to the cache.
        self._last: OrderedDict[str, dict[str, tuple[float, int, bool]]] = OrderedDict()
        #: By route and class of age: decayed sums of the shares held, and of calls.
        self._shares: dict[tuple[str, int], tuple[float, float]] = {}

    def __len__(self) -> int:
        """Return the number of sessions remembered."""
        return len(self._last)

    def add(self, sample: CallSample) -> None:
        """Learn from a finished call; one without a session or an answer teaches nothing."""
        session, route, prompt = sample.session, sample.route, sample.prompt_tokens
        if session is None or sample.failed or prompt is None:
            return
        routes = self._last.pop(session, {})
        before = routes.pop(route, None)
        if before is not None:
            held, age = min(before[1], prompt), sample.at - (sample.latency_s or 0.0) - before[0]
            if held >= SHORTEST and age <= _AGES[-1]:
                self._learn(route, age, min(max(sample.cached_tokens or 0, 0) / held, 1.0))
        routes[route] = sample.at, prompt, bool(sample.written_tokens)
        if len(routes) > _ROUTES:
            del routes[next(iter(routes))]
        self._last[session] = routes
        if len(self._last) > SESSIONS:
            self._last.popitem(last=False)

    def held(self, session: str, prompt_tokens: int, now: float) -> Mapping[str, HeldPrefix]:
        """Return what the routes hold of a session's next prompt, by route; only those that could hold some.

        A route that was learned to hold almost nothing is among them: it is known, so nothing is assumed.

        Args:
            now: the time, on the clock of the samples.
        """
        routes = self._last.get(session)
        if not routes:
            return _NONE
        found = {}
        for route, (at, prompt, written) in routes.items():
            tokens, age = min(prompt, prompt_tokens), max(now - at, 0.0)
            if tokens >= SHORTEST and age <= _AGES[-1]:
                found[route] = HeldPrefix(tokens, self._share(route, age), written)
        return found

    def _learn(self, route: str, age: float, share: float) -> None:
        if len(self._shares) >= _MOST_SHARES:
            self._shares.clear()
        key = route, _age_class(age)
        held, calls = self._shares.get(key, (0.0, 0.0))
        keep = 2 ** (-1 / _CALLS)
        self._shares[key] = held * keep + share, calls * keep + 1

    def _share(self, route: str, age: float) -> float:
        """Return the share that a route holds after so many seconds; classes nearby count in part."""
        place = _age_class(age)
        held, calls = _ASSUMED[place] * _ASSUMED_CALLS, _ASSUMED_CALLS
        for other in range(len(_AGES)):
            known = self._shares.get((route, other))
            if known is not None:
                weight = math.pow(_NEIGHBOUR, abs(other - place))
                held, calls = held + weight * known[0], calls + weight * known[1]
        return held / calls


def _age_class(age: float) -> int:
    return min(bisect_left(_AGES, age), len(_AGES) - 1)

"""The choice of a pool: the one that is fastest at this load, prompt length and task.

The load of a pool is the number of this program's calls in progress there, or what its servers report, if
that is more. A call slows down those that it joins, so the seconds that they lose count as well: a pool that
is a little faster for the new call alone would otherwise be filled until it is as slow as the others
(Wardrop's equilibrium). Unknown pools are tried, one call at a time.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from specclient.routing.pools.pool_speed import PoolSample, PoolSpeed
from specclient.runtime.backoff import doubled
from specclient.types.criterion import PromptTask

__all__ = ["PoolChoice", "PoolChooser", "PoolView"]

#: Calls on a pool before its speed is compared with others'.
_KNOWN = 3
#: The share of calls that go to a pool of which little is known at this load, and below which weight it is.
_EXPLORED, _LITTLE = 0.03, 2.0
#: A pool is explored if it could be the fastest with this share of the expected time.
_HOPE = 0.6
#: The share of the rest of an answer that calls in progress have before them, on average.
_REST = 0.5
#: Failures in a row after which a pool is avoided, and the seconds, which double up to the greatest.
_FAILURES, _REST_S, _MOST_REST_S = 2, 5.0, 120.0
#: Seconds for which a reported load is valid.
_LOAD_S = 15.0
#: Changes of a pool's load that are remembered, for the mean load during a call.
_CHANGES = 4096


class _LoadHistory:
    """The requests in progress over time, as sums of request seconds at each change."""

    __slots__ = ("_level", "_sums", "_times")

    def __init__(self, at: float) -> None:
        self._times, self._sums = deque([at], _CHANGES), deque([0.0], _CHANGES)
        self._level = 0.0

    def change(self, at: float, level: float) -> None:
        """Note the number of requests from a time on."""
        self._sums.append(self._sums[-1] + self._level * (at - self._times[-1]))
        self._times.append(at)
        self._level = level

    def mean(self, start: float, end: float) -> float:
        """Return the mean number between two times, the later of which is no earlier than the last change."""
        start = max(start, self._times[0])
        if end <= start:
            return self._level
        total = self._sums[-1] + self._level * (end - self._times[-1])
        place = bisect_right(self._times, start) - 1
        at, before = self._times[place], self._sums[place]
        if place + 1 < len(self._times):
            span = self._times[place + 1] - at
            level = (self._sums[place + 1] - before) / span if span > 0 else 0.0
        else:
            level = self._level
        return (total - before - level * (start - at)) / (end - start)


@dataclass(slots=True)
class _PoolState:
    """A pool's load and speed.

    Attributes:
        replicas: the number of replicas; ``drafts``: whether they speculate.
        history: its load over time.
        own: this program's calls in progress.
    """

    replicas: int
    drafts: bool
    history: _LoadHistory
    speed: PoolSpeed = field(default_factory=PoolSpeed)
    own: int = 0
    reported: float = 0.0
    reported_at: float = float("-inf")
    failures: int = 0
    closed_until: float = float("-inf")


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool as a choice saw it.

    Attributes:
        name: the pool.
        in_progress: requests in progress on it.
        seconds: expected for the call, None where unknown.
    """

    name: str
    in_progress: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """The pool of a call.

    Attributes:
        name: the pool.
        reason: why, in words.
        views: all pools, in the fleet's order.
    """

    name: str
    reason: str
    views: tuple[PoolView, ...]


class PoolChooser:
    """Chooses among the pools of one fleet. It is safe to use from several threads.

    Args:
        pools: the number of replicas and whether they speculate, by name, in the order of preference.
        dice: random numbers for exploration.
        now: returns monotonic seconds.
    """

    def __init__(
        self,
        pools: Mapping[str, tuple[int, bool]],
        *,
        dice: random.Random | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pools = {
            name: _PoolState(replicas, drafts, _LoadHistory(now()))
            for name, (replicas, drafts) in pools.items()
        }
        self._dice = dice or random.Random()
        self._now = now
        self._lock = threading.Lock()

    def choose(
        self,
        task: PromptTask | None,
        prompt_tokens: int,
        tokens: float,
        *,
        plain: bool = False,
        avoided: Sequence[str] = (),
        cached: Mapping[str, float] | None = None,
    ) -> PoolChoice:
        """Choose the pool of a call.

        Args:
            task: the kind of its prompt.
            prompt_tokens: of its prompt.
            tokens: expected of its answer.
            plain: whether only pools without speculation accept it; if there are none, all are considered.
            avoided: pools that have just failed this call; if no other is left, all are considered.
            cached: tokens of the prompt that a replica of a pool has in its cache, by pool.
        """
        with self._lock:
            return self._choose(task, prompt_tokens, tokens, plain, avoided, cached=cached or {})

    def token_s(self, name: str, in_progress: float) -> float | None:
        """Return the seconds per token of an answer on a pool, None without any finished call.

        Args:
            name: the pool.
            in_progress: requests in progress on a replica, the call included.
        """
        with self._lock:
            return self._pools[name].speed.token_s(in_progress, None)

    def began(self, name: str) -> None:
        """Note that a call is sent to a pool."""
        self._count(name, 1)

    def ended(self, name: str) -> None:
        """Note that a call has ended."""
        self._count(name, -1)

    def mean_load(self, name: str, seconds: float) -> float:
        """Return the mean requests in progress per replica of a pool over the last seconds, at least 1."""
        with self._lock:
            pool, now = self._pools[name], self._now()
            return max(pool.history.mean(now - seconds, now) / max(pool.replicas, 1), 1.0)

    def learn(self, name: str, sample: PoolSample | None) -> None:
        """Learn from a finished call.

        Args:
            name: the pool that served it.
            sample: the call; None for a failure of the pool.
        """
        with self._lock:
            pool = self._pools.get(name)
            if pool is None:
                return
            if sample is not None:
                pool.failures = 0
                pool.closed_until = float("-inf")
                pool.speed.add(sample)
                return
            pool.failures += 1
            if pool.failures >= _FAILURES:
                rest = doubled(_REST_S, pool.failures - _FAILURES, _MOST_REST_S)
                pool.closed_until = self._now() + rest

    def note_load(self, name: str, in_progress: float) -> None:
        """Note the requests in progress that a pool's servers report, those of other programs included."""
        with self._lock:
            if (pool := self._pools.get(name)) is not None:
                pool.reported, pool.reported_at = in_progress, self._now()
                pool.history.change(self._now(), self._load(pool))

    def resize(self, sizes: Mapping[str, int]) -> None:
        """Note the numbers of replicas; a pool without any is not chosen while others have some."""
        with self._lock:
            for name, replicas in sizes.items():
                if name in self._pools:
                    self._pools[name].replicas = max(replicas, 0)

    def _count(self, name: str, change: int) -> None:
        with self._lock:
            pool = self._pools[name]
            pool.own += change
            pool.history.change(self._now(), self._load(pool))

    def _load(self, pool: _PoolState) -> float:
        recent = self._now() - pool.reported_at <= _LOAD_S
        return max(float(pool.own), pool.reported) if recent else float(pool.own)

    def _choose(
        self,
        task: PromptTask | None,
        prompt: int,
        tokens: float,
        plain: bool,
        avoided: Sequence[str],
        *,
        cached: Mapping[str, float],
    ) -> PoolChoice:
        now = self._now()
        usable = {name: pool for name, pool in self._pools.items() if pool.replicas} or self._pools
        if plain:
            usable = {name: pool for name, pool in usable.items() if not pool.drafts} or usable
        usable = {name: pool for name, pool in usable.items() if name not in avoided} or usable
        usable = {name: pool for name, pool in usable.items() if pool.closed_until <= now} or usable
        views, costs = [], {}
        for name, pool in self._pools.items():
            load = self._load(pool)
            uncached = max(prompt - round(cached.get(name, 0.0)), 0)
            own, lost = _seconds(pool, load, task, uncached, tokens)
            views.append(PoolView(name, load, own))
            if name in usable and own is not None:
                costs[name] = own + lost
        unknown = [name for name, pool in usable.items() if pool.speed.calls < _KNOWN]
        untried = [name for name in unknown if usable[name].own < max(usable[name].speed.calls, 1)]
        if untried or not costs:
            name = min(untried or unknown, key=lambda each: usable[each].own)
            return PoolChoice(name, "its speed is not known yet", tuple(views))
        best = min(costs, key=costs.__getitem__)
        if self._dice.random() < _EXPLORED:
            for name, pool in usable.items():
                if name not in costs:
                    continue
                little = pool.speed.weight((self._load(pool) + 1) / max(pool.replicas, 1)) < _LITTLE
                if name != best and little and costs[name] * _HOPE < costs[best]:
                    return PoolChoice(name, "little is known of it at this load", tuple(views))
        return PoolChoice(best, f"the fastest pool at this load, in {costs[best]:.3g} s", tuple(views))


def _seconds(
    pool: _PoolState, load: float, task: PromptTask | None, prompt: int, tokens: float
) -> tuple[float | None, float]:
    """Return the seconds of a call on a pool, and those that it takes from the calls in progress there."""
    replicas = max(pool.replicas, 1)
    before = load / replicas
    own = pool.speed.seconds(before + 1 / replicas, task, prompt, tokens)
    if own is None or not load:
        return own, 0.0
    slower = pool.speed.token_s(before + 1 / replicas, None) or 0.0
    usual = pool.speed.token_s(before, None) or 0.0
    return own, max(slower - usual, 0.0) * load * tokens * _REST

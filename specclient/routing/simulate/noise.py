"""Noise of durations: a mixture of two log-normal distributions, around the median and in a heavy tail."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from random import Random
from statistics import NormalDist

__all__ = ["LatencyNoise", "normal_points"]

_GRID = 1024
#: The range of the table of quantiles: 1/8 to 64 times the median.
_LOW, _HIGH = math.log(1 / 8), math.log(64)
_PER_STEP = _GRID / (_HIGH - _LOW)


@dataclass(frozen=True)
class LatencyNoise:
    """A random factor of a duration: log-normal around 1, and around a larger median for a share of calls.

    Attributes:
        spread: standard deviation of the factor's logarithm.
        tail: the share of calls in the tail.
        tail_median: the median factor in the tail.
        tail_spread: the spread in the tail.
    """

    spread: float
    tail: float = 0.0
    tail_median: float = 3.0
    tail_spread: float = 0.5

    def draw(self, rng: Random) -> float:
        """Return one factor."""
        if rng.random() < self.tail:
            return self.tail_median * math.exp(rng.gauss(0.0, self.tail_spread))
        return math.exp(rng.gauss(0.0, self.spread))

    def cdf(self, factor: float) -> float:
        """Return the share of calls with at most this factor, from a table of 1,024 steps."""
        if factor <= 0:
            return 0.0
        at = (math.log(factor) - _LOW) * _PER_STEP
        if at <= 0:
            return 0.0
        step = int(at)
        if step >= _GRID:
            return 1.0
        below = self._shares[step]
        return below + (self._shares[step + 1] - below) * (at - step)

    def _share(self, x: float) -> float:
        """Return the share of calls whose factor has at most the logarithm ``x``."""
        body = (1 - self.tail) * _normal(x / self.spread)
        tail = (x - math.log(self.tail_median)) / self.tail_spread
        return body + (self.tail * _normal(tail) if self.tail else 0.0)

    @property
    def mean(self) -> float:
        """The expected factor."""
        tail = self.tail_median * math.exp(self.tail_spread**2 / 2)
        return (1 - self.tail) * math.exp(self.spread**2 / 2) + self.tail * tail

    @cached_property
    def _shares(self) -> list[float]:
        return [self._share(_LOW + i / _PER_STEP) for i in range(_GRID + 1)]

    def quantile(self, share: float) -> float:
        """Return the factor that this share of calls does not exceed, within 0.3 %."""
        at = min(max(bisect_right(self._shares, share), 1), _GRID)
        below, above = self._shares[at - 1], self._shares[at]
        part = (share - below) / (above - below) if above > below else 0.0
        return math.exp(_LOW + (at - 1 + min(max(part, 0.0), 1.0)) / _PER_STEP)


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x * math.sqrt(0.5))


def normal_points(count: int) -> tuple[float, ...]:
    """Return the medians of ``count`` equally likely parts of the standard normal distribution."""
    law = NormalDist()
    return tuple(law.inv_cdf((i + 0.5) / count) for i in range(count))

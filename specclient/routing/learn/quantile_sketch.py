"""Quantile sketches: quantiles of a stream of positive values, with exponential decay of old values.

Values fall into buckets whose bounds grow by a constant factor, so every quantile has a bounded relative
error (Masson, Rim, Lee: "DDSketch", VLDB 2019, section 2). The weights of new values grow instead of those of
old values shrinking, so that adding a value changes one bucket only (Cormode, Shkapenyuk, Srivastava, Xu:
"Forward Decay", ICDE 2009).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["ERROR", "QuantileSketch", "pooled_log_quantile", "quantiles"]

#: Relative error of a quantile.
ERROR = 0.02
#: Values below count as zero.
LEAST = 1e-9

_GAMMA = (1 + ERROR) / (1 - ERROR)
_PER_LOG = 1 / math.log(_GAMMA)
_MIDDLE = 2 / (_GAMMA + 1)
_ZERO = -(2**31)
#: The weight of the newest value at which all are scaled down.
_HEAVY = 1e60
#: Buckets below this share of the whole are dropped then, and when there are too many.
_LIGHT = 1e-5
_MOST_BUCKETS = 512
#: A cached quantile is valid until one value in so many is new; the number of cached quantiles.
_FRESH, _MOST_LOGS = 32, 32


class QuantileSketch:
    """A decayed distribution of values that are 0 or more.

    Args:
        calls: the number of values after which a value weighs half; infinite for no decay by count.
        seconds: the time after which a value weighs half; infinite for no decay by time.
    """

    __slots__ = ("_added", "_at", "_buckets", "_growth", "_logs", "_newest", "_per_s", "_total")

    def __init__(self, calls: float = math.inf, seconds: float = math.inf) -> None:
        self._growth = 2 ** (1 / calls)
        self._per_s = 1 / seconds
        self._buckets: dict[int, float] = {}
        self._newest = 1.0  # weight of a value that came at ``_at``
        self._total = 0.0
        self._at = -math.inf
        self._added = 0
        self._logs: dict[
            float, tuple[int, float]
        ] = {}  # of quantiles, and at which value they were worked out

    def add(self, value: float, at: float = 0.0) -> None:
        """Add a value at a time in seconds; a value older than the newest counts as new."""
        if not value >= 0 or value == math.inf:
            return
        if at > self._at:
            if self._total:
                self._newest *= 2 ** min((at - self._at) * self._per_s, 200)
            self._at = at
        self._newest *= self._growth
        if self._newest > _HEAVY:
            self._scale_down()
        bucket = math.ceil(math.log(value) * _PER_LOG) if value > LEAST else _ZERO
        self._buckets[bucket] = self._buckets.get(bucket, 0.0) + self._newest
        self._total += self._newest
        self._added += 1
        if len(self._buckets) > _MOST_BUCKETS:
            self._prune()

    def weight(self, at: float | None = None) -> float:
        """Return the decayed number of values at a time, by default that of the newest value."""
        if not self._total:
            return 0.0
        faded = 0.0 if at is None or at <= self._at else (at - self._at) * self._per_s
        return self._total / self._newest * math.exp2(-faded)

    def quantile(self, share: float) -> float | None:
        """Return the value that this share of the values does not exceed; None for an empty sketch."""
        if not self._total:
            return None
        return quantiles(((self, 1.0),), (share,))[0]

    def log_quantile(self, share: float) -> float:
        """Return the logarithm of a quantile; cached until one value in :data:`_FRESH` is new.

        Raises:
            ValueError: the sketch is empty.
        """
        known = self._logs.get(share)
        if known is not None and (self._added - known[0]) * _FRESH <= self._total / self._newest:
            return known[1]
        found = math.log(max(quantiles(((self, 1.0),), (share,))[0], LEAST))
        if len(self._logs) >= _MOST_LOGS:
            self._logs.clear()
        self._logs[share] = self._added, found
        return found

    def share_below(self, value: float) -> float:
        """Return the share of values below ``value``; those in its own bucket count half."""
        if not self._total:
            return 0.5
        bucket = math.ceil(math.log(value) * _PER_LOG) if value > LEAST else _ZERO
        below = sum(weight for at, weight in self._buckets.items() if at < bucket)
        return (below + self._buckets.get(bucket, 0.0) / 2) / self._total

    def merge(self, other: QuantileSketch) -> None:
        """Add the values of another sketch, decayed to the later time of both."""
        if not other._total:
            return
        later = max(self._at, other._at)
        if later > self._at:
            if self._total:
                self._newest *= 2 ** min((later - self._at) * self._per_s, 200)
            self._at = later
        factor = self._newest / other._newest * 2.0 ** -((later - other._at) * other._per_s)
        for bucket, weight in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0.0) + weight * factor
        self._total = sum(self._buckets.values())
        self._logs.clear()
        if self._newest > _HEAVY:
            self._scale_down()
        if len(self._buckets) > _MOST_BUCKETS:
            self._prune()

    def _scale_down(self) -> None:
        factor = 1 / self._newest
        self._newest = 1.0
        self._buckets = {bucket: weight * factor for bucket, weight in self._buckets.items()}
        self._prune()

    def _prune(self) -> None:
        """Drop buckets of negligible weight, then the lightest ones."""
        least = sum(self._buckets.values()) * _LIGHT
        kept = {bucket: weight for bucket, weight in self._buckets.items() if weight > least}
        if len(kept) > _MOST_BUCKETS:
            heaviest = sorted(kept, key=kept.__getitem__, reverse=True)[: _MOST_BUCKETS // 2]
            kept = {bucket: kept[bucket] for bucket in heaviest}
        self._buckets = kept
        self._total = sum(kept.values())


def quantiles(mixture: Sequence[tuple[QuantileSketch, float]], shares: Sequence[float]) -> list[float]:
    """Return quantiles of several sketches taken together.

    Args:
        mixture: sketches with their total weights; empty sketches are ignored.
        shares: the quantiles, in ascending order, each from 0 to 1.

    Returns:
        Values to the relative error :data:`ERROR`.

    Raises:
        ValueError: all sketches are empty or without weight.
    """
    mixed: dict[int, float] = {}
    whole = 0.0
    for sketch, weight in mixture:
        if weight <= 0 or not sketch._total:
            continue
        scale = weight / sketch._total
        whole += weight
        for bucket, own in sketch._buckets.items():
            mixed[bucket] = mixed.get(bucket, 0.0) + own * scale
    if not mixed:
        raise ValueError("no value was seen, so there is no quantile")
    order = sorted(mixed)
    found: list[float] = []
    place, reached = 0, mixed[order[0]]
    for share in shares:
        wanted = share * whole * (1 - 1e-12)
        while reached < wanted and place + 1 < len(order):
            place += 1
            reached += mixed[order[place]]
        found.append(_value(order[place]))
    return found


def pooled_log_quantile(sources: Sequence[tuple[QuantileSketch, float]], share: float) -> float:
    """Return the weighted mean of the logarithms of a quantile of several sketches.

    Quantiles are averaged, not values mixed: the extreme quantiles of a mixture would be those of the widest
    sketch alone.

    Raises:
        ValueError: all sketches are empty or without weight.
    """
    total = whole = 0.0
    for sketch, weight in sources:
        if weight > 0 and sketch._total:
            total += weight * sketch.log_quantile(share)
            whole += weight
    if not whole:
        raise ValueError("no value was seen, so there is no quantile")
    return total / whole


def _value(bucket: int) -> float:
    """Return the value that represents a bucket, within a relative error of :data:`ERROR`."""
    return 0.0 if bucket == _ZERO else _MIDDLE * math.exp(bucket / _PER_LOG)

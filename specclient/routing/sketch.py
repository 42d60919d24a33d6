"""Turn a stream of positive values into its quantiles, with old values counting less and less.

Values fall into buckets whose bounds grow by a constant factor, so that every quantile is known to a relative
error (Masson, Rim, Lee: "DDSketch", VLDB 2019, section 2). Weights grow instead of shrinking: a value of
today weighs more than one of yesterday, and nothing has to be touched for the old ones to fade (Cormode,
Shkapenyuk, Srivastava, Xu: "Forward Decay", ICDE 2009).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["ERROR", "Sketch", "quantiles"]

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
#: Buckets of less than this share of the whole are dropped then, and where there are too many.
_LIGHT = 1e-5
_MOST_BUCKETS = 512


class Sketch:
    """A decayed distribution of values that are 0 or more.

    Args:
        calls: values after which an old one weighs half; infinite for no such forgetting.
        seconds: time after which an old one weighs half, likewise.
    """

    __slots__ = ("_at", "_buckets", "_growth", "_newest", "_per_s", "_total")

    def __init__(self, calls: float = math.inf, seconds: float = math.inf) -> None:
        self._growth = 2 ** (1 / calls)
        self._per_s = 1 / seconds
        self._buckets: dict[int, float] = {}
        self._newest = 1.0  # weight of a value that came at ``_at``
        self._total = 0.0
        self._at = -math.inf

    def add(self, value: float, at: float = 0.0) -> None:
        """Note a value that was seen ``at`` so many seconds; one that comes late counts as of the newest."""
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
        if len(self._buckets) > _MOST_BUCKETS:
            self._prune()

    def weight(self, at: float | None = None) -> float:
        """Return how many values of the time ``at``, by default the newest's, all weigh as much as."""
        if not self._total:
            return 0.0
        faded = 0.0 if at is None or at <= self._at else (at - self._at) * self._per_s
        return self._total / self._newest * math.exp2(-faded)

    def quantile(self, share: float) -> float | None:
        """Return the value that this share of the values does not exceed; None of an empty sketch."""
        if not self._total:
            return None
        return quantiles(((self, 1.0),), (share,))[0]

    def share_below(self, value: float) -> float:
        """Return the share of values below ``value``, half of those in its own bucket among them."""
        if not self._total:
            return 0.5
        bucket = math.ceil(math.log(value) * _PER_LOG) if value > LEAST else _ZERO
        below = sum(weight for at, weight in self._buckets.items() if at < bucket)
        return (below + self._buckets.get(bucket, 0.0) / 2) / self._total

    def merge(self, other: Sketch) -> None:
        """Take in what another one has seen, as faded as it is now at the later time of both."""
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
        """Drop what weighs next to nothing, then the lightest."""
        least = sum(self._buckets.values()) * _LIGHT
        kept = {bucket: weight for bucket, weight in self._buckets.items() if weight > least}
        if len(kept) > _MOST_BUCKETS:
            heaviest = sorted(kept, key=kept.__getitem__, reverse=True)[: _MOST_BUCKETS // 2]
            kept = {bucket: kept[bucket] for bucket in heaviest}
        self._buckets = kept
        self._total = sum(kept.values())


def quantiles(mixture: Sequence[tuple[Sketch, float]], shares: Sequence[float]) -> list[float]:
    """Return quantiles of several sketches taken together.

    Args:
        mixture: sketches, each with what it weighs as a whole; an empty one weighs nothing.
        shares: which quantiles, in ascending order, each from 0 to 1.

    Returns:
        Values to the relative error :data:`ERROR`.

    Raises:
        ValueError: nothing in it weighs anything.
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


def _value(bucket: int) -> float:
    """Return what stands for a bucket's values: off from each by at most :data:`ERROR`."""
    return 0.0 if bucket == _ZERO else _MIDDLE * math.exp(bucket / _PER_LOG)

"""Shrinkage: a quantile of one group is drawn towards that of all groups; the less they differ, the more.

A random-effects model (DerSimonian, Laird: "Meta-analysis in clinical trials", Controlled Clinical Trials
1986): the variance between groups, beyond chance, decides the weight of a group's own values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from specclient.routing.learn.quantile_sketch import QuantileSketch
from specclient.runtime.forks import import_lock

__all__ = ["shrunken_quantile"]

#: The least values of a group that counts in the difference of the groups.
_FEW = 10.0


def shrunken_quantile(
    own: QuantileSketch, groups: Sequence[QuantileSketch], share: float, at: float
) -> tuple[float, float]:
    """Return the logarithm of a quantile of ``own``, and the number of values behind it.

    Args:
        groups: sketches of the same quantity; may include ``own``.
        share: the quantile, from 0 to 1.
        at: the time in seconds, for the decay of each.
    """
    known = [(each.log_quantile(share), n) for each in groups if (n := each.weight(at)) >= _FEW]
    count = own.weight(at)
    if not known:
        return (own.log_quantile(share) if count else 0.0), count
    whole = sum(n for _, n in known)
    middle = sum(log * n for log, n in known) / whole
    if not count:
        return middle, 0.0
    spreads = ((g.log_quantile(0.9) - g.log_quantile(0.1)) * n for g in groups if (n := g.weight(at)) >= _FEW)
    noise = max((sum(spreads) / whole / 2.563) ** 2, 1e-4) * _chance(share)  # of one value
    # The variance between groups, tau² = (Q − (k − 1)) / C, in the notation of the paper.
    excess = sum(n / noise * (log - middle) ** 2 for log, n in known) - (len(known) - 1)
    scale = (whole - sum(n * n for _, n in known) / whole) / noise
    between = max(excess / scale, 0.0) if scale > 0 else math.inf
    lean = min(noise / between if between else math.inf, whole)
    return (own.log_quantile(share) * count + middle * lean) / (count + lean), count + lean


@cache
def _chance(share: float) -> float:
    """Return the first-order variance of a quantile of one value of the standard normal distribution."""
    with import_lock:
        from statistics import NormalDist  # noqa: PLC0415 - only routed calls need it

    law = NormalDist()
    return share * (1 - share) / law.pdf(law.inv_cdf(share)) ** 2

"""Turn the same quantile of several groups into that of one of them: nearer to all, the less they differ.

A random-effects model (DerSimonian, Laird: "Meta-analysis in clinical trials", Controlled Clinical Trials
1986): what the groups differ by beyond chance tells how much each is to be believed by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from specclient.routing.learn.quantile_sketch import QuantileSketch
from specclient.runtime.forks import import_lock

__all__ = ["shrunken_quantile"]

#: Values from which on a group has a say in how much groups differ.
_FEW = 10.0


def shrunken_quantile(
    own: QuantileSketch, groups: Sequence[QuantileSketch], share: float, at: float
) -> tuple[float, float]:
    """Return the logarithm of a quantile of ``own``, and how many values are behind it.

    Args:
        groups: of the same kind, ``own`` among them or not.
        share: which quantile.
        at: the time, for how much each has faded.
    """
    told = [(each.log_quantile(share), n) for each in groups if (n := each.weight(at)) >= _FEW]
    count = own.weight(at)
    if not told:
        return (own.log_quantile(share) if count else 0.0), count
    whole = sum(n for _, n in told)
    middle = sum(log * n for log, n in told) / whole
    if not count:
        return middle, 0.0
    spreads = ((g.log_quantile(0.9) - g.log_quantile(0.1)) * n for g in groups if (n := g.weight(at)) >= _FEW)
    noise = max((sum(spreads) / whole / 2.563) ** 2, 1e-4) * _chance(share)  # of one value
    apart = sum(n / noise * (log - middle) ** 2 for log, n in told) - (len(told) - 1)
    freely = (whole - sum(n * n for _, n in told) / whole) / noise
    between = max(apart / freely, 0.0) if freely > 0 else math.inf
    lean = min(noise / between if between else math.inf, whole)
    return (own.log_quantile(share) * count + middle * lean) / (count + lean), count + lean


@cache
def _chance(share: float) -> float:
    """Return the variance of a quantile of one value of the standard normal law, to first order."""
    with import_lock:
        from statistics import NormalDist  # noqa: PLC0415 - only who routes pays for it

    law = NormalDist()
    return share * (1 - share) / law.pdf(law.inv_cdf(share)) ** 2

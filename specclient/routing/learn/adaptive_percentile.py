"""Turn whether a policy's calls kept its limits into how sure the next one has to be of keeping them.

A policy promises that a share of its calls keep their limits of time. If each of them is sent where it keeps
them with that likelihood at least, most keep them with a greater one, and fewer miss than may: what was paid
for that was for nothing. So the likelihood asked of each is lowered while fewer miss than may, and raised
again with each that does (Gibbs, Candès: "Adaptive Conformal Inference Under Distribution Shift", NeurIPS
2021, section 2; Lekeufack, Angelopoulos, Bajcsy, Jordan, Malik: "Conformal Decision Theory", 2310.05921, has
it for decisions), in steps that get smaller with time (Angelopoulos, Barber, Bates: "Online conformal
prediction with decaying step sizes", ICML 2024) down to one that follows what changes.
"""

from __future__ import annotations

import math

from specclient.routing.choose.constraints import fails_early
from specclient.routing.learn.call_sample import CallSample
from specclient.types.route import Policy

__all__ = ["AdaptivePercentile", "kept_limits"]

#: A call may be this many times likelier to miss than the policy's calls are on the whole.
_MOST = 2.0
#: The least step for each call, in what may be missed; it began at 1, and falls with the root of the calls.
_STEP = 0.05
#: Likelihoods that are told apart while what may be missed doubles: each has estimates of its own to keep.
_LEVELS = 2


class AdaptivePercentile:
    """How sure a call under one policy has to be of its limits.

    Args:
        promised: the share of calls that keep them, the policy's ``percentile``.

    Attributes:
        percentile: the likelihood asked of the next call: never above ``promised``, so that what may be taken
            by the policy's own words always may, and never below 1 - 2·(1 - ``promised``), nor half of it.
    """

    __slots__ = ("_calls", "_may", "_most", "_open", "_promised", "percentile")

    def __init__(self, promised: float) -> None:
        self._promised, self._may = promised, 1 - promised
        self._most = min(_MOST * self._may, 1 - promised / 2)
        self._open = self._may  # how likely the next call may miss
        self._calls = 0
        self.percentile = promised

    def add(self, kept_limits: bool) -> None:
        """Note how a call ended."""
        self._calls += 1
        step = self._may * max(_STEP, self._calls**-0.5)
        wanted = self._open + step * (self._may - (not kept_limits))
        self._open = min(max(wanted, self._may), self._most)
        level = round(math.log2(self._open / self._may) * _LEVELS) / _LEVELS
        self.percentile = 1 - min(self._may * 2**level, self._most) if level else self._promised


def kept_limits(sample: CallSample, policy: Policy) -> bool | None:
    """Tell whether a call kept a policy's limits of time; None where that is not told.

    A failure that showed soon says nothing: who stands in for it may keep them, and is heard of by itself.
    """
    first, whole = policy.max_ttft_s, policy.max_latency_s
    if first is None and whole is None:
        return None
    if sample.failed:
        return None if policy.falls_back and fails_early(policy, sample.latency_s) else False
    limits = ((first, sample.ttft_s), (whole, sample.latency_s))
    known = [taken <= limit for limit, taken in limits if limit is not None and taken is not None]
    return all(known) if known else None

"""The share of calls that must be expected to keep a policy's limits of time, adapted to how many do.

A policy promises that a share of its calls keep their limits of time. If every route taken must keep them
with at least that probability, most routes keep them with a higher one: fewer calls miss the limits than the
policy allows, at a needless cost. So the probability required of each call is lowered while fewer calls miss
than allowed, and raised with each miss: adaptive conformal inference (Gibbs, Candès: "Adaptive Conformal
Inference Under Distribution Shift", NeurIPS 2021, section 2; for decisions: Lekeufack, Angelopoulos, Bajcsy,
Jordan, Malik: "Conformal Decision Theory", arXiv 2310.05921). Its steps decay with the number of calls
(Angelopoulos, Barber, Bates: "Online conformal prediction with decaying step sizes", ICML 2024) to a minimum,
with which the percentile follows changes.

A miss counts the same whatever the call costs, but a cheaper route saves in proportion to the call's dollars.
So calls that cost more than the average may miss more often, and cheaper ones less: the permitted misses go
where they save most.
"""

from __future__ import annotations

import math

from specclient.routing.learn.call_sample import CallSample
from specclient.types.policy import Policy

__all__ = ["AdaptivePercentile", "fails_early", "kept_limits"]

#: The most times that a call may be as likely to miss the limits as the policy allows on average: one of
#: average cost, and any one. The least times, for a cheap call.
_MOST, _GREATEST, _LEAST = 2.0, 3.0, 0.35
#: The least factor on these times while more calls miss than the policy allows.
_STRICTEST = 0.5
#: Calls over which the mean cost of a call is taken.
_MEAN_CALLS = 300
#: The smallest step per call, as a share of the misses allowed; the first is 1, then they fall with the
#: square root of the calls.
_STEP = 0.05
#: Levels of the required probability per doubling of the misses allowed; each level has estimates of its own.
_LEVELS = 2
#: The part of a limit of time within which a failure must show for another route to keep the limit still.
_EARLY = 0.25
#: Calls after which a call weighs half in whether most calls keep their limits.
_RECENT = 100.0


class AdaptivePercentile:
    """The probability with which a call must be expected to keep its policy's limits of time.

    Args:
        promised: the share of calls that keep them, the policy's ``percentile``.

    Attributes:
        percentile: the probability required of a call of average or unknown cost. It is never above
            ``promised``, and never below ``1 - 2 * (1 - promised)`` or ``promised / 2``.
        promised: as given.
    """

    __slots__ = (
        "_allowed", "_calls", "_costs", "_current", "_kept", "_mean_cost", "_most", "_recent", "_strict",
        "percentile", "promised",
    )  # fmt: skip

    def __init__(self, promised: float) -> None:
        self.promised, self._allowed = promised, 1 - promised
        self._most = min(_MOST * self._allowed, 1 - promised / 2)
        self._current = self._allowed  # the probability with which the next call may miss
        self._strict = 1.0  # the factor on it while more calls miss than allowed
        self._calls = self._costs = 0
        self._kept = self._recent = self._mean_cost = 0.0
        self.percentile = promised

    @property
    def mostly_kept(self) -> bool:
        """Whether most recent calls kept the limits; False without any call.

        Then a call that no candidate is expected to serve in time is one of the permitted misses, or nearly.
        Otherwise the limits ask for more than the candidates can do, which the caller should know.
        """
        return self._kept > self._recent / 2

    def add(self, kept_limits: bool) -> None:
        """Note how a call ended."""
        self._calls += 1
        keep = 2 ** (-1 / _RECENT)
        self._kept, self._recent = self._kept * keep + kept_limits, self._recent * keep + 1
        step = self._allowed * max(_STEP, self._calls**-0.5)
        wanted = self._current + step * (self._allowed - (not kept_limits))
        if not kept_limits and self._current <= self._allowed:
            self._strict = max(self._strict - _STEP * self.promised, _STRICTEST)
        elif kept_limits:
            self._strict = min(self._strict + _STEP * self._allowed, 1.0)
        self._current = min(max(wanted, self._allowed), self._most)
        level = round(math.log2(self._current / self._allowed) * _LEVELS) / _LEVELS
        self.percentile = 1 - min(self._allowed * 2**level, self._most) if level else self.promised

    def required(self, cost: float | None) -> float:
        """Return the probability required of a call, and note its cost.

        It may be above ``promised``. The caller then takes ``promised`` for a call that no route serves with
        this probability, so that a route that meets the policy as written is never refused.

        Args:
            cost: the typical dollars of such a call; None where unknown.
        """
        if not cost or cost < 0:
            return self.percentile
        self._costs = min(self._costs + 1, _MEAN_CALLS)
        self._mean_cost += (cost - self._mean_cost) / self._costs
        times = self._current / self._allowed * self._strict * cost / self._mean_cost
        level = round(math.log2(min(max(times, _LEAST), _GREATEST)) * _LEVELS) / _LEVELS
        return 1 - min(self._allowed * 2**level, 1 - self.promised / 2) if level else self.promised


def fails_early(policy: Policy, failed_s: float | None) -> bool:
    """Return whether a failure after ``failed_s`` seconds leaves another route enough time for the limits."""
    limits = [each for each in (policy.max_latency_s, policy.max_ttft_s) if each is not None]
    return failed_s is not None and failed_s <= _EARLY * min(limits, default=math.inf)


def kept_limits(sample: CallSample, policy: Policy) -> bool | None:
    """Return whether a call kept a policy's limits of time; None where unknown.

    An early failure says nothing: the route that serves the call instead may keep the limits, and has a
    sample of its own.
    """
    first, complete = policy.max_ttft_s, policy.max_latency_s
    if first is None and complete is None:
        return None
    if sample.failed:
        return None if policy.falls_back and fails_early(policy, sample.latency_s) else False
    limits = ((first, sample.ttft_s), (complete, sample.latency_s))
    known = [taken <= limit for limit, taken in limits if limit is not None and taken is not None]
    return all(known) if known else None

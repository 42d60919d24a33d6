"""Drift detection: when a route became faster, slower, has its earlier speed again, or began to fail.

It uses cumulative sums (Page, "Continuous inspection schemes", Biometrika 1954): each call adds its evidence
for a change, bounded so that one outlier raises no alarm. A sum that falls to zero starts again; the change
is taken to have begun at that call.
"""

from __future__ import annotations

import math

__all__ = ["DriftDetector", "FailureRate", "ReturnEvidence"]

#: A call's score is its deviation in standard deviations, at most BOUND, less SLACK. The alarm is raised at
#: HEIGHT, which takes 4 outliers in a row, if the median call deviates by the factor LEAST.
BOUND, SLACK, HEIGHT, LEAST = 2.5, 0.5, 7.0, 1.2
#: Below this sum, there is no suspicion of a shift.
CALM = 1.5

#: The most evidence of one call for a return to the earlier speed, the sum that proves it, and that sum for a
#: route that had been left alone.
_RETURN_BOUND, _RETURN, _RETURN_RETRIED = 1.5, 2.0, 1.0

#: The failure rate of a failing route, the least assumed one of a good route, the height of the alarm, and
#: the rate above which a route counts as failing.
_BAD, _GOOD, _ALARM, FAILING = 0.5, 0.02, 6.0, 0.2
#: The weight in calls of the assumed failure rate, and that rate.
_ASSUMED, _RATE = 4.0, 0.01
#: Calls and seconds after which a failure weighs half.
_CALLS, _SECONDS = 30.0, 60.0


class _CumulativeSum:
    """The evidence for a shift in one direction.

    Attributes:
        value: the sum.
        since: the number of the first call since the sum was zero.
        ratios: of the calls since then, in the direction of the shift.
    """

    __slots__ = ("ratios", "since", "value")

    def __init__(self) -> None:
        self.value, self.since = 0.0, 0
        self.ratios: list[float] = []

    def add(self, score: float, ratio: float, number: int) -> bool:
        """Note a call and return whether it raises the alarm."""
        if not self.value:
            self.since = number
            self.ratios.clear()
        self.value = max(self.value + score - SLACK, 0.0)
        self.ratios.append(ratio)
        if self.value < HEIGHT:
            return False
        if sorted(self.ratios)[len(self.ratios) // 2] >= LEAST:
            return True
        self.value = 0.0  # a few outliers among typical calls
        return False


class DriftDetector:
    """Watches for a shift in either direction.

    Attributes:
        slower, faster: the number of the call at which the shift began; None without an alarm.
    """

    __slots__ = ("_down", "_up", "faster", "slower")

    def __init__(self) -> None:
        self._up, self._down = _CumulativeSum(), _CumulativeSum()
        self.slower: int | None = None
        self.faster: int | None = None

    @property
    def calm(self) -> bool:
        """Whether there is no suspicion of a shift."""
        return self._up.value < CALM and self._down.value < CALM

    def add(self, share_below: float, ratio: float, number: int) -> bool:
        """Note a call and return whether the alarm is raised.

        Args:
            share_below: the share of earlier ratios below this one, above 0 and below 1.
            ratio: of the measured to the expected seconds.
            number: of the call; grows by one each time.
        """
        score = math.log(share_below / (1 - share_below)) / 1.702  # approximates the normal quantile
        score = min(max(score, -BOUND), BOUND)
        slower = self._up.add(score, ratio, number)
        faster = self._down.add(-score, 1 / max(ratio, 1e-9), number)
        self.slower = self._up.since if slower else None
        self.faster = self._down.since if faster else None
        return slower or faster


class ReturnEvidence:
    """The evidence that a route which became slower has its earlier speed again."""

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        self._sum = 0.0

    def add(self, ratio: float, earlier_ratio: float, *, retried: bool) -> bool:
        """Note a call and return whether the return is proven.

        Args:
            ratio: of the measured to the predicted seconds, at the present speed.
            earlier_ratio: the same ratio at the earlier speed.
            retried: whether the route had been left alone.
        """
        evidence = abs(math.log(ratio)) - abs(math.log(earlier_ratio))
        self._sum = max(self._sum + min(max(evidence, -_RETURN_BOUND), _RETURN_BOUND), 0.0)
        return self._sum >= (_RETURN_RETRIED if retried else _RETURN)


class FailureRate:
    """The share of a route's calls that fail; it follows an outage within a few calls.

    Old calls decay by count and by time, since a route may have recovered.
    """

    __slots__ = ("_at", "_failed", "_out", "_run", "_sum", "_total", "_usual_failed", "_usual_total")

    def __init__(self) -> None:
        self._failed = self._total = 0.0
        self._usual_failed, self._usual_total = _RATE * _ASSUMED, _ASSUMED
        self._at = -math.inf
        self._sum, self._out = 0.0, False
        self._run: list[bool] = []

    def add(self, failed: bool, at: float, *, retried: bool) -> None:
        """Note the end of a call.

        Args:
            retried: whether the route had been left alone since its last call; a success then means that it
                has recovered.
        """
        self._fade(at)
        if retried and not failed and self.rate(at) > FAILING:
            self._failed = self._total = self._sum = 0.0
            self._out, self._run = False, []
        keep = 2 ** (-1 / _CALLS)
        self._failed, self._total = self._failed * keep + failed, self._total * keep + 1
        self._watch(failed)

    def _watch(self, failed: bool) -> None:
        good = max(self._usual_failed / self._usual_total, _GOOD)
        bad = max(_BAD, good)
        self._sum += math.log(bad / good) if failed else math.log((1 - bad) / (1 - good))
        self._run.append(failed)
        if self._sum <= 0:
            if not self._out:
                self._settle()
            self._sum, self._out, self._run = 0.0, False, []
        elif self._sum >= _ALARM:
            if not self._out:  # calls before the outage say nothing about it
                self._failed, self._total = float(sum(self._run)), float(len(self._run))
            self._sum, self._out, self._run = _ALARM, True, []

    def _settle(self) -> None:
        """Add the calls since the last reset to the usual rate; there was no outage among them."""
        for failed in self._run:
            keep = 2 ** (-1 / (10 * _CALLS))
            self._usual_failed = self._usual_failed * keep + failed
            self._usual_total = self._usual_total * keep + 1

    def _fade(self, at: float) -> None:
        if at > self._at:
            if self._total:
                faded = 2.0 ** -((at - self._at) / _SECONDS)
                self._failed *= faded
                self._total *= faded
            self._at = at

    def rate(self, at: float) -> float:
        """Return the expected share of failed calls, from 0 to 1."""
        faded = 2.0 ** -(max(at - self._at, 0.0) / _SECONDS) if self._total else 0.0
        usual = self._usual_failed / self._usual_total
        return (self._failed * faded + usual * _ASSUMED) / (self._total * faded + _ASSUMED)

"""Turn a stream of calls into the moment at which a route began to behave otherwise than before.

Cumulative sums (Page, "Continuous inspection schemes", Biometrika 1954): each call adds how much it speaks
for a change, what it adds is bounded so that one outlier cannot raise an alarm, and a sum that falls to
zero begins anew, which is also where a change is taken to have begun.
"""

from __future__ import annotations

import math

__all__ = ["DriftDetector", "FailureRate"]

#: A call's score is how unusual it is in standard deviations, bounded; the slack is taken off each. The alarm
#: is raised at the height, by 4 calls in a row that are far off, if the middle one is off by this factor.
BOUND, SLACK, HEIGHT, LEAST = 2.5, 0.5, 7.0, 1.2
#: Below this sum, a call is not suspicious.
CALM = 1.5

#: What a failing route fails in, and the least that a good one is taken to; the alarm's height; and the
#: rate from which it counts as failing.
_BAD, _GOOD, _ALARM, FAILING = 0.5, 0.02, 6.0, 0.2
#: Calls behind the rate that is assumed before the first, and how it fades in calls and in seconds.
_ASSUMED, _RATE = 4.0, 0.01
_CALLS, _SECONDS = 30.0, 60.0


class _CumulativeSum:
    """What speaks for a shift in one direction.

    Attributes:
        value: the sum; ``since``: number of the call after it was zero last.
        ratios: of those calls, in the direction of the shift.
    """

    __slots__ = ("ratios", "since", "value")

    def __init__(self) -> None:
        self.value, self.since = 0.0, 0
        self.ratios: list[float] = []

    def add(self, score: float, ratio: float, number: int) -> bool:
        """Note a call and tell whether it raises the alarm."""
        if not self.value:
            self.since = number
            self.ratios.clear()
        self.value = max(self.value + score - SLACK, 0.0)
        self.ratios.append(ratio)
        if self.value < HEIGHT:
            return False
        if sorted(self.ratios)[len(self.ratios) // 2] >= LEAST:
            return True
        self.value = 0.0  # few were far off, and most were not
        return False


class DriftDetector:
    """Watches for a shift in either direction.

    Attributes:
        slower, faster: number of the call at which the alarm says that the shift began; None without alarm.
    """

    __slots__ = ("_down", "_up", "faster", "slower")

    def __init__(self) -> None:
        self._up, self._down = _CumulativeSum(), _CumulativeSum()
        self.slower: int | None = None
        self.faster: int | None = None

    @property
    def calm(self) -> bool:
        """Whether nothing speaks for a shift."""
        return self._up.value < CALM and self._down.value < CALM

    def add(self, share_below: float, ratio: float, number: int) -> bool:
        """Note a call and tell whether the alarm is raised.

        Args:
            share_below: of earlier values, those below its own, above 0 and below 1.
            ratio: of what it took to what was expected.
            number: of the call, one more each time.
        """
        score = math.log(share_below / (1 - share_below)) / 1.702  # near the normal quantile
        score = min(max(score, -BOUND), BOUND)
        slower = self._up.add(score, ratio, number)
        faster = self._down.add(-score, 1 / max(ratio, 1e-9), number)
        self.slower = self._up.since if slower else None
        self.faster = self._down.since if faster else None
        return slower or faster


class FailureRate:
    """The share of a route's calls that fail, which follows an outage within a few of them.

    Old calls fade by count and by time; a route whose failures are long ago may have been mended.
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
            retried: whether the route had been left alone since its last one: a success then means that it
                has been mended.
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
            if not self._out:  # what came before an outage says nothing of it
                self._failed, self._total = float(sum(self._run)), float(len(self._run))
            self._sum, self._out, self._run = _ALARM, True, []

    def _settle(self) -> None:
        """Count the calls since the last such moment to what is usual: no outage was among them."""
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
        """Return the share of calls that are expected to fail, from 0 to 1."""
        faded = 2.0 ** -(max(at - self._at, 0.0) / _SECONDS) if self._total else 0.0
        usual = self._usual_failed / self._usual_total
        return (self._failed * faded + usual * _ASSUMED) / (self._total * faded + _ASSUMED)

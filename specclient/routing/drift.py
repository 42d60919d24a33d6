"""Turn a stream of calls into the moment at which a route began to behave otherwise than before.

Cumulative sums (Page, "Continuous inspection schemes", Biometrika 1954): each call adds how much it speaks
for a change, what it adds is bounded so that one outlier cannot raise an alarm, and a sum that falls to
zero begins anew, which is also where a change is taken to have begun.
"""

from __future__ import annotations

import math

__all__ = ["Drift", "Failures"]

#: A call's score is how unusual it is in standard deviations, bounded; the slack is taken off each; the alarm
#: is raised at the height: by 4 calls in a row that are far off, and by chance about once in 10,000 calls.
BOUND, SLACK, HEIGHT = 2.5, 0.5, 7.0
#: Below this sum, a call is not suspicious.
CALM = 1.5

#: What a failing route fails in, and the least that a good one is taken to; the alarm's height; and the
#: rate from which it counts as failing.
_BAD, _GOOD, _ALARM, FAILING = 0.5, 0.02, 6.0, 0.2
#: Calls behind the rate that is assumed before the first, and how it fades in calls and in seconds.
_ASSUMED, _RATE = 4.0, 0.01
_CALLS, _SECONDS = 30.0, 60.0


class Drift:
    """Watches for a shift in either direction.

    Attributes:
        slower, faster: number of the call at which the alarm says that the shift began; None without alarm.
    """

    __slots__ = ("_down", "_down_since", "_up", "_up_since", "faster", "slower")

    def __init__(self) -> None:
        self._up = self._down = 0.0
        self._up_since = self._down_since = 0
        self.slower: int | None = None
        self.faster: int | None = None

    @property
    def calm(self) -> bool:
        """Whether nothing speaks for a shift."""
        return self._up < CALM and self._down < CALM

    def add(self, share_below: float, number: int) -> bool:
        """Note a call and tell whether the alarm is raised.

        Args:
            share_below: of earlier values, those below its own, above 0 and below 1.
            number: of the call, one more each time.
        """
        score = math.log(share_below / (1 - share_below)) / 1.702  # near the normal quantile
        score = min(max(score, -BOUND), BOUND)
        if not self._up:
            self._up_since = number
        if not self._down:
            self._down_since = number
        self._up = max(self._up + score - SLACK, 0.0)
        self._down = max(self._down - score - SLACK, 0.0)
        self.slower = self._up_since if self._up >= HEIGHT else None
        self.faster = self._down_since if self._down >= HEIGHT else None
        return self._up >= HEIGHT or self._down >= HEIGHT


class Failures:
    """The share of a route's calls that fail, which follows an outage within a few of them.

    Old calls fade by count and by time; a route whose failures are long ago may have been mended.
    """

    __slots__ = ("_at", "_failed", "_run", "_sum", "_total", "_usual_failed", "_usual_total")

    def __init__(self) -> None:
        self._failed = self._total = 0.0
        self._usual_failed, self._usual_total = _RATE * _ASSUMED, _ASSUMED
        self._at = -math.inf
        self._sum = 0.0
        self._run: list[bool] = []

    def add(self, failed: bool, at: float, *, retried: bool) -> None:
        """Note the end of a call.

        Args:
            retried: whether the route had been left alone since its last one: a success then means that it
                has been mended.
        """
        self._fade(at)
        if retried and not failed and self.rate(at) > FAILING:
            self._failed = self._total = 0.0
        keep = 2 ** (-1 / _CALLS)
        self._failed, self._total = self._failed * keep + failed, self._total * keep + 1
        self._watch(failed)

    def _watch(self, failed: bool) -> None:
        good = max(self._usual_failed / self._usual_total, _GOOD)
        bad = max(_BAD, good)
        self._sum += math.log(bad / good) if failed else math.log((1 - bad) / (1 - good))
        if self._sum <= 0:
            self._sum = 0.0
            self._settle((*self._run, failed))
            self._run = []
        else:
            self._run.append(failed)
            if self._sum >= _ALARM:  # an outage: what came before says nothing of it
                self._failed, self._total = float(sum(self._run)), float(len(self._run))
                self._sum, self._run = _ALARM, []

    def _settle(self, calls: tuple[bool, ...]) -> None:
        """Count calls to what is usual: no outage was among them."""
        for failed in calls:
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

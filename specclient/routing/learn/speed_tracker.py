"""The speed of one route over time: by task, with the calls that describe the present, and its shifts.

Calls are watched for a while before they count as errors of predictions, until no shift can have begun with
one of them. A shift drops the calls before it; the earlier speed is remembered, in case it returns.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.drift import DriftDetector, ReturnEvidence
from specclient.routing.learn.prediction_spread import RouteErrors, share_below
from specclient.routing.learn.prefill import PrefillModel
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.speed import (
    LEAN,
    CallTiming,
    RouteSpeed,
    TaskSpeedRatio,
    TypicalSpeed,
)
from specclient.routing.learn.task_statistics import PredictionErrors
from specclient.types.criterion import PromptTask

__all__ = ["SpeedTracker"]

#: Number of calls that are held back until no shift can have begun with one of them.
_WATCHED = 16
#: Calls from which the typical speed is computed again only at every fourth one.
_STEADY = 16.0
#: Calls after which a route that became slower is no longer expected to return to its earlier speed.
_REMEMBERED = 64
#: A route whose first calls take this many times what was published met a slow period: published speeds are
#: off by less.
_FAR_SLOWER = 2.0
#: Calls that may show that.
_FIRST_CALLS = 32


@dataclass(frozen=True, slots=True)
class _SuspectCall:
    """A call that may follow a shift; the ratios are of measured to predicted seconds."""

    number: int
    sample: CallSample
    call: CallTiming
    usual: TypicalSpeed
    ratio: float
    first: float | None
    token: float | None


class SpeedTracker:
    """Follows the speed of one route.

    Args:
        prior: of the route; it counts as :attr:`RoutePrior.calls` calls from the first one on. If these are
            some, it is the earlier speed of a route whose first calls are far slower.

    Attributes:
        prefill: the growth of the time to the first token with the prompt.
        errors: of predictions on this route.
        shifts: the number of times that a shift to a slower speed was found.
    """

    __slots__ = (
        "_before", "_calls", "_drift", "_drift_first", "_prior", "_published", "_return", "_speed", "_times",
        "_typical", "_until", "_watched", "errors", "prefill", "shifts",
    )  # fmt: skip

    def __init__(self, prior: RoutePrior | None = None) -> None:
        self._prior = prior
        each = None if prior is None or not prior.ttft_s else (prior.prompt_token_s or 0.0) / prior.ttft_s
        self.prefill = PrefillModel(each or None)
        self.errors = RouteErrors()
        self.shifts = 0
        self._speed = RouteSpeed(self.prefill)
        self._calls: dict[PromptTask | None, int] = {None: 0}
        self._times: dict[PromptTask | None, TaskSpeedRatio] = {}
        self._typical: dict[PromptTask | None, TypicalSpeed | None] = {}
        self._drift, self._drift_first = DriftDetector(), DriftDetector()
        self._watched: deque[_SuspectCall] = deque()
        self._before: RouteSpeed | None = None
        self._published: RouteSpeed | None = None
        self._until = 0
        self._return = ReturnEvidence()

    @property
    def slow(self) -> bool:
        """Whether the route has recently become slower."""
        return self._before is not None

    @property
    def engine_token_s(self) -> float | None:
        """The median seconds of the engine in this process per token, None for hosted routes."""
        return self._speed.engine.quantile(0.5)

    def typical(self, task: PromptTask | None) -> TypicalSpeed | None:
        """Return the typical speed of a task's calls, None without any call of the route."""
        if task not in self._typical:
            self._typical[task] = self._typical_at(task, self._speed)
        return self._typical[task]

    def weight(self, task: PromptTask | None, now: float) -> float:
        """Return the decayed number of calls behind the estimate of a task."""
        every, times = self._speed.token.weight(now), self._times.get(task)
        if task is None:
            return every
        return min(every, (0.0 if times is None else times.token.weight(now)) + 2 * LEAN)

    def earlier_speedup(self, known: TypicalSpeed, task: PromptTask | None, tokens: float) -> float:
        """Return how many times faster the route was before it became slower, 1 if it did not.

        Args:
            known: its present speed; ``tokens``: of a typical answer.
        """
        if self._before is None:
            return 1.0
        then = self._typical_at(task, self._before)
        assert then is not None  # the route was called at that speed
        return known.seconds(tokens, None) / max(then.seconds(tokens, None), 1e-6)

    def learn(
        self,
        sample: CallSample,
        call: CallTiming,
        number: int,
        shared: PredictionErrors | None,
        *,
        retried: bool,
    ) -> bool:
        """Learn from an answered call and return whether the typical speed changes.

        Args:
            call: the seconds of the call.
            number: of the call on the route, ascending; calls that failed have numbers, too.
            shared: the errors of predictions on all routes; those of this route are added.
            retried: whether the route had been left alone before the call.
        """
        if self._prior is not None and not self._speed.token.weight():
            self._speed.assume(self._prior, sample.at)
            if self._prior.calls:
                self._published = RouteSpeed(self.prefill)
                self._published.assume(self._prior, sample.at)
            self._prior = None
        known = self.typical(sample.task)
        for key in dict.fromkeys((None, sample.task)):
            self._calls[key] = self._calls.get(key, 0) + 1
        shifted = False
        if known is not None:
            watched = self._suspect(sample, call, number, known)
            shifted = self._returned(watched, retried) or self._shifted(watched, shared)
        if call.first_s is not None:
            self.prefill.add(call.prompt, call.first_s)
        if not shifted:
            self._take(self._speed, sample, call)
            shifted = self._began_slowly(sample.task, call, number)
        if self._speed.token.weight() >= _STEADY and number % 4 and not shifted:
            return False
        self._typical.clear()
        return True

    def _suspect(
        self, sample: CallSample, call: CallTiming, number: int, known: TypicalSpeed
    ) -> _SuspectCall:
        first = token = None
        if call.first_s is not None and known.ttft_known:
            first = call.first_s / max(known.first_s(call.prompt), 1e-6)
            decoding = max(call.working_s - call.first_s, 1e-6)
            token = decoding / max(known.token_s * call.tokens, 1e-6)
        return _SuspectCall(
            number=number,
            sample=sample,
            call=call,
            usual=self._speed.typical() or known,
            ratio=max(call.total_s, 1e-6) / max(known.seconds(call.tokens, call.prompt), 1e-6),
            first=first,
            token=token,
        )

    def _shifted(self, new: _SuspectCall, shared: PredictionErrors | None) -> bool:
        """Return whether the route became faster or slower; earlier calls are then dropped."""
        self._watched.append(new)
        alarms = []
        if self._drift.add(share_below(self.errors.duration, new.ratio), new.ratio, new.number):
            alarms.append(self._drift)
        if new.first is not None:
            below = share_below(self.errors.first, new.first)
            if self._drift_first.add(below, new.first, new.number):
                alarms.append(self._drift_first)
        if not alarms:
            settled = len(self._watched) if self._drift.calm and self._drift_first.calm else 0
            for _ in range(max(settled, len(self._watched) - _WATCHED)):
                self._settle(self._watched.popleft(), shared)
            if self._before is not None and new.number > self._until:
                self._before = None
            return False
        slower = any(alarm.slower is not None for alarm in alarms)
        since = min(n for alarm in alarms for n in (alarm.slower, alarm.faster) if n is not None)
        while self._watched and self._watched[0].number < since:
            self._settle(self._watched.popleft(), shared)
        left = self._speed
        self._restart(RouteSpeed(self.prefill), tuple(self._watched))
        if slower and self._before is None:
            self._before, self._until = left, new.number + _REMEMBERED
            self.shifts += 1
        elif not slower:
            self._before = None
        return True

    def _returned(self, new: _SuspectCall, retried: bool) -> bool:
        """Return whether a slower route has its earlier speed again, which is then restored."""
        if self._before is None:
            return False
        then = self._typical_at(new.sample.task, self._before)
        assert then is not None  # the route was called at that speed
        was = max(then.seconds(new.call.tokens, new.call.prompt), 1e-6)
        if not self._return.add(new.ratio, max(new.call.total_s, 1e-6) / was, retried=retried):
            return False
        before, self._before = self._before, None
        self._restart(before, (new,))
        return True

    def _began_slowly(self, task: PromptTask | None, call: CallTiming, number: int) -> bool:
        """Return whether the first calls met a slow period; the published speed may then return."""
        if self._published is None:
            return False
        usual, now = self._typical_at(task, self._published), self._typical_at(task, self._speed)
        assert usual is not None
        assert now is not None
        slower = now.seconds(call.tokens, call.prompt) / max(usual.seconds(call.tokens, call.prompt), 1e-6)
        if self._before is not None or slower < _FAR_SLOWER:
            if self._calls[None] >= _FIRST_CALLS:
                self._published = None
            return False
        before, self._published = self._published, None
        self._restart(RouteSpeed(self.prefill), tuple(self._watched))
        self._before, self._until = before, number + _REMEMBERED
        self.shifts += 1
        return True

    def _restart(self, speed: RouteSpeed, calls: tuple[_SuspectCall, ...]) -> None:
        self._speed = speed
        self._return = ReturnEvidence()
        self._drift, self._drift_first = DriftDetector(), DriftDetector()
        self._watched.clear()
        for each in calls:
            self._take(speed, each.sample, each.call)

    def _take(self, speed: RouteSpeed, sample: CallSample, call: CallTiming) -> None:
        speed.add(call, sample.at, self._longer(sample.task))

    def _longer(self, task: PromptTask | None) -> float:
        """Return the ratio of a task's seconds per token to the route's."""
        times = self._times.get(task)
        if task is None or times is None:
            return 1.0
        return times.median(self._calls[None] - self._calls.get(task, 0))

    def _typical_at(self, task: PromptTask | None, speed: RouteSpeed) -> TypicalSpeed | None:
        """Return the typical speed of a task's calls at a speed of the route, None without any call."""
        usual = speed.typical()
        return None if usual is None else replace(usual, token_s=usual.token_s * self._longer(task))

    def _settle(self, each: _SuspectCall, shared: PredictionErrors | None) -> None:
        """Add a call to the errors of predictions, once it is clear that no shift began with it."""
        at = each.sample.at
        if each.sample.task is not None:
            self._times.setdefault(each.sample.task, TaskSpeedRatio()).add(each.call, each.usual, at)
        for errors in (self.errors, shared):
            if errors is None:
                continue
            errors.duration.add(each.ratio, at)
            if each.first is not None:
                errors.first.add(each.first, at)
            if each.token is not None:
                errors.token.add(each.token, at)

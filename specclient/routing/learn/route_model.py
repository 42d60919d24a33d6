"""The model of one route: learns from its finished calls and estimates the next one, by task."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

from specclient.routing.learn.answer_length import ASSUMED
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.cold_start import cold_start_estimate, estimate_depth, queue_wait_s
from specclient.routing.learn.drift import FAILING, DriftDetector, FailureRate, ReturnEvidence
from specclient.routing.learn.prediction_spread import (
    FEW_CALLS,
    STALE_S,
    RouteErrors,
    optimistic_speedup,
    share_below,
)
from specclient.routing.learn.prefill import PrefillModel
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.quantile_sketch import QuantileSketch
from specclient.routing.learn.refusals import RefusalPause
from specclient.routing.learn.route_estimate import HEDGE_PERCENTILE, RouteEstimate
from specclient.routing.learn.speed import (
    LEAN,
    CallTiming,
    RouteSpeed,
    TaskSpeedRatio,
    TypicalSpeed,
    timing_of,
)
from specclient.routing.learn.task_statistics import PredictionErrors, TaskStatistics, pooled_acceptance
from specclient.types.criterion import PromptTask
from specclient.types.server_load import ServerLoad

__all__ = ["RouteModel"]

#: Number of calls that are held back until no shift can have begun with one of them.
_WATCHED = 16
#: Calls from which the typical speed is computed again only at every fourth one.
_STEADY = 16.0
#: Seconds after which a route that was left as slow or failing is tried again: at first, and at most. Each
#: try that finds it unchanged doubles them.
RETRY_S, MOST_RETRY_S = 30.0, 600.0
#: Calls after which a route that became slower is no longer expected to return to its earlier speed.
_REMEMBERED = 64
#: Failures after which the duration of a failure weighs half.
_FAILURES = 10.0


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


class RouteModel:
    """Learns from the calls of one route.

    Args:
        prior: of the route; see :attr:`RoutePrior.calls`.
    """

    def __init__(self, prior: RoutePrior | None = None) -> None:
        self.calls = 0
        self.at = -math.inf
        self.failures = FailureRate()
        self._refusals = RefusalPause()
        self._failed_s = QuantileSketch(_FAILURES)
        self.tracks: dict[PromptTask | None, TaskStatistics] = {None: TaskStatistics()}
        self._prior = prior
        each = None if prior is None or not prior.ttft_s else (prior.prompt_token_s or 0.0) / prior.ttft_s
        self._prefill = PrefillModel(each or None)
        self._speed = RouteSpeed(self._prefill)
        self._times: dict[PromptTask | None, TaskSpeedRatio] = {}
        self._typical: dict[PromptTask | None, TypicalSpeed | None] = {}
        self._errors = RouteErrors()
        self._drift, self._drift_first = DriftDetector(), DriftDetector()
        self._watched: deque[_SuspectCall] = deque()
        self._before: RouteSpeed | None = None
        self._until = 0
        self._return = ReturnEvidence()
        self.wait_s = RETRY_S

    def learn(
        self, sample: CallSample, expected_tokens: float, shared: PredictionErrors | None = None
    ) -> bool:
        """Learn from a finished call and return whether the estimates change.

        Args:
            expected_tokens: the predicted tokens of the answer.
            shared: the errors of predictions on all routes; this call is added.
        """
        self.calls += 1
        started = sample.at - (sample.latency_s or 0.0)
        if sample.refused:
            self._refusals.refused(sample.at, started)
            return True
        retried = sample.at - self.at > self.wait_s
        self.at = max(self.at, sample.at)
        was_bad = self.bad(sample.at)
        self.failures.add(sample.failed, sample.at, retried=retried)
        if not sample.failed:
            self._refusals.served(started)
        elif sample.latency_s is not None:
            self._failed_s.add(sample.latency_s, sample.at)
        call = timing_of(sample)
        if call is None:
            self._wait(was_bad, retried, sample.at)
            return True
        if shared is not None and expected_tokens > 0 and not sample.warm_up:
            shared.tokens.add(call.tokens / expected_tokens, sample.at)
        if self._prior is not None and not self._speed.token.weight():
            self._speed.assume(self._prior, sample.at)
            self._prior = None
        known = self.typical(sample.task)
        for key in dict.fromkeys((None, sample.task)):
            self.tracks.setdefault(key, TaskStatistics()).add(sample, call)
        shifted = False
        if known is not None:
            watched = self._suspect(sample, call, known)
            shifted = self._returned(watched, retried) or self._shifted(watched, shared)
        if call.first_s is not None:
            self._prefill.add(call.prompt, call.first_s)
        if not shifted:
            self._take(self._speed, sample, call)
        self._wait(was_bad, retried, sample.at)
        steady = self._speed.token.weight() >= _STEADY and self.calls % 4
        if steady and not shifted:
            return False
        self._typical.clear()
        return True

    @property
    def slow(self) -> bool:
        """Whether the route has recently become slower."""
        return self._before is not None

    def failing(self, at: float) -> bool:
        """Return whether the route fails so often that it is avoided."""
        return self.failures.rate(at) > FAILING

    def _retry(self, now: float) -> bool:
        """Return whether the route was left as slow or failing and is due to be tried again."""
        return now - self.at > self.wait_s and self.bad(now)

    def bad(self, at: float) -> bool:
        """Return whether the route has become slower or is failing."""
        return self.slow or self.failing(at)

    def typical(self, task: PromptTask | None) -> TypicalSpeed | None:
        """Return the typical speed of a task's calls, None without any call of the route."""
        if task not in self._typical:
            self._typical[task] = self._typical_at(task, self._speed)
        return self._typical[task]

    def _suspect(self, sample: CallSample, call: CallTiming, known: TypicalSpeed) -> _SuspectCall:
        first = token = None
        if call.first_s is not None and known.ttft_known:
            first = call.first_s / max(known.first_s(call.prompt), 1e-6)
            decoding = max(call.working_s - call.first_s, 1e-6)
            token = decoding / max(known.token_s * call.tokens, 1e-6)
        return _SuspectCall(
            number=self.calls,
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
        if self._drift.add(share_below(self._errors.duration, new.ratio), new.ratio, new.number):
            alarms.append(self._drift)
        if new.first is not None:
            below = share_below(self._errors.first, new.first)
            if self._drift_first.add(below, new.first, new.number):
                alarms.append(self._drift_first)
        if not alarms:
            settled = len(self._watched) if self._drift.calm and self._drift_first.calm else 0
            for _ in range(max(settled, len(self._watched) - _WATCHED)):
                self._settle(self._watched.popleft(), shared)
            if self._before is not None and self.calls > self._until:
                self._before = None
            return False
        slower = any(alarm.slower is not None for alarm in alarms)
        since = min(n for alarm in alarms for n in (alarm.slower, alarm.faster) if n is not None)
        while self._watched and self._watched[0].number < since:
            self._settle(self._watched.popleft(), shared)
        left = self._speed
        self._restart(RouteSpeed(self._prefill), tuple(self._watched))
        if slower and self._before is None:
            self._before, self._until, self.wait_s = left, self.calls + _REMEMBERED, RETRY_S
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
        times, track = self._times.get(task), self.tracks.get(task)
        if task is None or times is None or track is None:
            return 1.0
        return times.median(self.tracks[None].calls - track.calls)

    def _typical_at(self, task: PromptTask | None, speed: RouteSpeed) -> TypicalSpeed | None:
        """Return the typical speed of a task's calls at a speed of the route, None without any call."""
        usual = speed.typical()
        return None if usual is None else replace(usual, token_s=usual.token_s * self._longer(task))

    def _settle(self, each: _SuspectCall, shared: PredictionErrors | None) -> None:
        """Add a call to the errors of predictions, once it is clear that no shift began with it."""
        at = each.sample.at
        if each.sample.task is not None:
            self._times.setdefault(each.sample.task, TaskSpeedRatio()).add(each.call, each.usual, at)
        for errors in (self._errors, shared):
            if errors is None:
                continue
            errors.duration.add(each.ratio, at)
            if each.first is not None:
                errors.first.add(each.first, at)
            if each.token is not None:
                errors.token.add(each.token, at)

    def _wait(self, was_bad: bool, retried: bool, at: float) -> None:
        if not self.bad(at):
            self.wait_s = RETRY_S
        elif was_bad and retried:
            self.wait_s = min(2 * self.wait_s, MOST_RETRY_S)

    def weight(self, task: PromptTask | None, now: float) -> float:
        """Return the decayed number of calls behind the estimate of a task."""
        every, times = self._speed.token.weight(now), self._times.get(task)
        if task is None:
            return every
        return min(every, (0.0 if times is None else times.token.weight(now)) + 2 * LEAN)

    def expires_s(self, now: float) -> float:
        """Return the seconds after which :meth:`estimate` changes without a new call."""
        seconds = self.wait_s / 6 if self.bad(now) else 60.0
        left = self._refusals.until - now
        return min(seconds, left) if left > 0 else seconds

    def estimate(
        self,
        task: PromptTask | None,
        percentile: float,
        now: float,
        *,
        prompt_tokens: int | None = None,
        load: ServerLoad | None = None,
        shared: PredictionErrors | None = None,
        prior: RoutePrior | None = None,
    ) -> RouteEstimate:
        """Return the estimate for the next call.

        Args:
            task: the kind of prompt, None for any.
            percentile: the share of calls that keep ``limit_factor`` and ``ttft_limit_s``.
            now: seconds since the epoch.
            prompt_tokens: of its prompt; None for a typical one.
            load: of its destination, None where unknown.
            shared: as in :meth:`learn`.
            prior: of the route; measurements replace it.
        """
        known = self.typical(task)
        rate = self.failures.rate(now)
        if known is None:
            found = cold_start_estimate(
                prior,
                task,
                percentile,
                calls=self.calls,
                failure_rate=rate,
                load=load,
                prompt_tokens=prompt_tokens,
            )
            return replace(found, retry=self._retry(now), limited=now < self._refusals.until)
        own = self.tracks.get(task, self.tracks[None])
        tokens = own.tokens.quantile(0.5) or self.tracks[None].tokens.quantile(0.5) or ASSUMED.median
        shares = (0.1, percentile) if percentile == HEDGE_PERCENTILE else (0.1, percentile, HEDGE_PERCENTILE)
        p10_factor, limit_factor, *usual = self._errors.duration_factors(
            known, tokens, shares, now, prompt_tokens=prompt_tokens, shared=shared
        )
        evidence = self.weight(task, now)
        first = known.first_s(prompt_tokens)
        waiting = queue_wait_s(load, first + known.token_s * (self.tracks[None].tokens.quantile(0.5) or 0.0))
        limits: list[float | None] = [None, None]
        if known.ttft_known:
            limits = [waiting + first * self._errors.ttft_factor(each, now, shared) for each in shares[1:]]
        age = max(now - self.at, 0.0)
        accepted, given, alpha = pooled_acceptance(own, self.tracks[None], load)
        engine = self._speed.engine
        retry = self._retry(now)
        uncertain = retry or evidence < FEW_CALLS or age > STALE_S
        return RouteEstimate(
            evidence=evidence,
            calls=self.calls,
            ttft_s=first + waiting,
            token_s=known.token_s,
            ttft_limit_s=limits[0],
            p10_factor=p10_factor,
            limit_factor=limit_factor,
            p95_ttft_s=limits[1] if usual else None,
            p95_factor=usual[0] if usual else None,
            engine_token_s=engine.quantile(0.5),
            failure_rate=rate,
            failed_s=self._failed_s.quantile(0.8),
            acceptance_rate=accepted,
            tokens_per_verification=given,
            depth=self._depth(alpha, task, load, prompt_tokens, prior),
            uncertain=uncertain,
            optimistic_speedup=max(
                optimistic_speedup(
                    p10_factor, evidence, age, self._prefill.optimistic_speedup(prompt_tokens)
                ),
                self._earlier_speedup(known, task) if uncertain else 1.0,
            ),
            retry=retry,
            limited=now < self._refusals.until,
            assumed=False,
        )

    def _depth(
        self,
        alpha: float | None,
        task: PromptTask | None,
        load: ServerLoad | None,
        prompt: int | None,
        prior: RoutePrior | None,
    ) -> int | None:
        line = self.tracks[None].cost
        slope, start = line.slope, line.intercept
        ratio = slope / start if slope and start else None if prior is None else prior.cost_ratio
        return estimate_depth(alpha, ratio, task, load, prompt)

    def _earlier_speedup(self, known: TypicalSpeed, task: PromptTask | None) -> float:
        """Return how many times faster the route was before it became slower, 1 if it did not."""
        if self._before is None:
            return 1.0
        then = self._typical_at(task, self._before)
        assert then is not None  # the route was called at that speed
        tokens = self.tracks[None].tokens.quantile(0.5) or 0.0
        return known.seconds(tokens, None) / max(then.seconds(tokens, None), 1e-6)

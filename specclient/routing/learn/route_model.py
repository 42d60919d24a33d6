"""The model of one route: learns from its finished calls and estimates the next one, by task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from specclient.routing.learn.answer_length import ASSUMED, measured_length
from specclient.routing.learn.call_sample import CallSample
from specclient.routing.learn.cold_start import cold_start_estimate, estimate_depth, queue_wait_s
from specclient.routing.learn.drift import FAILING, FailureRate
from specclient.routing.learn.prediction_spread import FEW_CALLS, STALE_S, optimistic_speedup
from specclient.routing.learn.priors import RoutePrior
from specclient.routing.learn.quantile_sketch import QuantileSketch
from specclient.routing.learn.refusals import RefusalPause
from specclient.routing.learn.route_estimate import HEDGE_PERCENTILE, RouteEstimate, RouteStatistics
from specclient.routing.learn.speed import TypicalSpeed, timing_of
from specclient.routing.learn.speed_tracker import SpeedTracker
from specclient.routing.learn.task_statistics import PredictionErrors, TaskStatistics, pooled_acceptance
from specclient.types.criterion import PromptTask
from specclient.types.server_load import ServerLoad

__all__ = ["RouteModel"]

#: Seconds after which a route that was left as slow or failing is tried again: at first, and at most. Each
#: try that finds it unchanged doubles them.
RETRY_S, MOST_RETRY_S = 30.0, 600.0
#: Failures after which the duration of a failure weighs half.
_FAILURES = 10.0


class _TimeLimits(NamedTuple):
    """The times of a call with their quantiles, as in :class:`RouteEstimate`."""

    ttft_s: float
    ttft_limit_s: float | None
    p10_factor: float
    limit_factor: float
    p95_ttft_s: float | None
    p95_factor: float | None


class RouteModel:
    """Learns from the calls of one route.

    Args:
        prior: of the route; see :attr:`RoutePrior.calls`.
    """

    def __init__(self, prior: RoutePrior | None = None) -> None:
        self.calls = 0
        self.at = -math.inf
        self.failures = FailureRate()
        self.tracks: dict[PromptTask | None, TaskStatistics] = {None: TaskStatistics()}
        self._speed = SpeedTracker(prior)
        self._refusals = RefusalPause()
        self._failed_s = QuantileSketch(_FAILURES)
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
        changed = True
        if call is not None:
            if shared is not None and expected_tokens > 0 and not sample.warm_up:
                shared.tokens.add(call.tokens / expected_tokens, sample.at)
            for key in dict.fromkeys((None, sample.task)):
                self.tracks.setdefault(key, TaskStatistics()).add(sample, call)
            shifts = self._speed.shifts
            changed = self._speed.learn(sample, call, self.calls, shared, retried=retried)
            if self._speed.shifts != shifts:
                self.wait_s = RETRY_S
        self._wait(was_bad, retried, sample.at)
        return changed

    @property
    def slow(self) -> bool:
        """Whether the route has recently become slower."""
        return self._speed.slow

    def failing(self, at: float) -> bool:
        """Return whether the route fails so often that it is avoided."""
        return self.failures.rate(at) > FAILING

    def _retry(self, now: float) -> bool:
        """Return whether the route was left as slow or failing and is due to be tried again."""
        return now - self.at > self.wait_s and self.bad(now)

    def bad(self, at: float) -> bool:
        """Return whether the route has become slower or is failing."""
        return self.slow or self.failing(at)

    def _wait(self, was_bad: bool, retried: bool, at: float) -> None:
        if not self.bad(at):
            self.wait_s = RETRY_S
        elif was_bad and retried:
            self.wait_s = min(2 * self.wait_s, MOST_RETRY_S)

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
        known = self._speed.typical(task)
        rate, retry, limited = self.failures.rate(now), self._retry(now), now < self._refusals.until
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
            return replace(found, retry=retry, limited=limited)
        limits = self._limits(
            known, task, percentile, now, prompt_tokens=prompt_tokens, load=load, shared=shared
        )
        evidence, age = self._speed.weight(task, now), max(now - self.at, 0.0)
        uncertain = retry or evidence < FEW_CALLS or age > STALE_S
        accepted, given, alpha = pooled_acceptance(self._track(task), self.tracks[None], load)
        return RouteEstimate(
            evidence=evidence,
            calls=self.calls,
            ttft_s=limits.ttft_s,
            token_s=known.token_s,
            ttft_limit_s=limits.ttft_limit_s,
            p10_factor=limits.p10_factor,
            limit_factor=limits.limit_factor,
            p95_ttft_s=limits.p95_ttft_s,
            p95_factor=limits.p95_factor,
            engine_token_s=self._speed.engine_token_s,
            failure_rate=rate,
            failed_s=self._failed_s.quantile(0.8),
            acceptance_rate=accepted,
            tokens_per_verification=given,
            depth=self._depth(alpha, task, load, prompt_tokens, prior),
            uncertain=uncertain,
            optimistic_speedup=self._hoped_speedup(
                known,
                task,
                limits=limits,
                evidence=evidence,
                age_s=age,
                prompt_tokens=prompt_tokens,
                uncertain=uncertain,
            ),
            retry=retry,
            limited=limited,
            assumed=False,
        )

    def typical(self) -> TypicalSpeed | None:
        """Return the typical speed of calls of any task, None without any."""
        return self._speed.typical(None)

    def _track(self, task: PromptTask | None) -> TaskStatistics:
        return self.tracks.get(task, self.tracks[None])

    def _limits(
        self,
        known: TypicalSpeed,
        task: PromptTask | None,
        percentile: float,
        now: float,
        *,
        prompt_tokens: int | None,
        load: ServerLoad | None,
        shared: PredictionErrors | None,
    ) -> _TimeLimits:
        """Return the times of a call at a known speed; the arguments are those of :meth:`estimate`."""
        usual_tokens = self.tracks[None].tokens.quantile(0.5)
        tokens = self._track(task).tokens.quantile(0.5) or usual_tokens or ASSUMED.median
        shares = (0.1, percentile) if percentile == HEDGE_PERCENTILE else (0.1, percentile, HEDGE_PERCENTILE)
        errors = self._speed.errors
        p10_factor, limit_factor, *hedge = errors.duration_factors(
            known, tokens, shares, now, prompt_tokens=prompt_tokens, shared=shared
        )
        first = known.first_s(prompt_tokens)
        waiting = queue_wait_s(load, first + known.token_s * (usual_tokens or 0.0))
        firsts: list[float | None] = [None, None]
        if known.ttft_known:
            firsts = [waiting + first * errors.ttft_factor(each, now, shared) for each in shares[1:]]
        return _TimeLimits(
            first + waiting,
            firsts[0],
            p10_factor,
            limit_factor,
            firsts[1] if hedge else None,
            hedge[0] if hedge else None,
        )

    def _hoped_speedup(
        self,
        known: TypicalSpeed,
        task: PromptTask | None,
        *,
        limits: _TimeLimits,
        evidence: float,
        age_s: float,
        prompt_tokens: int | None,
        uncertain: bool,
    ) -> float:
        """Return how many times faster than known the route could well be."""
        prefill = self._speed.prefill.optimistic_speedup(prompt_tokens)
        hoped = optimistic_speedup(limits.p10_factor, evidence, age_s, prefill)
        if not uncertain:
            return max(hoped, 1.0)
        tokens = self.tracks[None].tokens.quantile(0.5) or 0.0
        return max(hoped, self._speed.earlier_speedup(known, task, tokens))

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

    def statistics(
        self, route: str, estimates: Mapping[PromptTask | None, RouteEstimate], now: float
    ) -> list[RouteStatistics]:
        """Return the learned figures of each task, those of all tasks first.

        Args:
            route: the name of this route.
            estimates: of this route, one for each task of :attr:`tracks`.
        """
        return [
            RouteStatistics(
                route=route,
                task=task,
                calls=track.calls,
                estimate=estimates[task],
                length=measured_length(track.tokens),
                age_s=max(now - self.at, 0.0),
                slow=self.slow,
                failing=self.failing(now),
            )
            for task, track in self.tracks.items()
        ]

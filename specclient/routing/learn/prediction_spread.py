"""The spread of predictions on one route: how far measured seconds are from predicted ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specclient.routing.learn.cold_start import default_spread
from specclient.routing.learn.quantile_sketch import QuantileSketch, pooled_log_quantile
from specclient.routing.learn.speed import TypicalSpeed
from specclient.routing.learn.task_statistics import SPREAD_CALLS, SPREAD_SECONDS, PredictionErrors

__all__ = ["FEW_CALLS", "STALE_S", "RouteErrors", "optimistic_speedup", "share_below"]

#: The weight in calls of the assumed spread, and the greatest weight of other routes.
_ASSUMED_CALLS, _SHARED_CALLS = 1.0, 30.0
#: The weight in calls of the assumed spread when a call is ranked among earlier ones.
_BELOW_CALLS = 4.0
#: Calls below which an estimate is uncertain, and seconds after which it is stale.
FEW_CALLS, STALE_S = 5.0, 900.0
#: The assumed standard deviation of the logarithms of few calls.
_GUESSED = 0.6


class RouteErrors:
    """The errors of predictions on one route, as ratios of measured to predicted seconds.

    Attributes:
        duration: of whole answers.
        first: of the time to the first token.
        token: of the time after the first token, for the tokens that the answer had.
    """

    __slots__ = ("duration", "first", "token")

    def __init__(self) -> None:
        self.duration = QuantileSketch(SPREAD_CALLS, SPREAD_SECONDS)
        self.first = QuantileSketch(SPREAD_CALLS, SPREAD_SECONDS)
        self.token = QuantileSketch(SPREAD_CALLS, SPREAD_SECONDS)

    def duration_factors(
        self,
        known: TypicalSpeed,
        tokens: float,
        shares: Sequence[float],
        now: float,
        *,
        prompt_tokens: int | None,
        shared: PredictionErrors | None,
    ) -> list[float]:
        """Return quantiles of the seconds of a call, as ratios to the median.

        Three independent quantities make a call longer than predicted: its time to the first token, the
        length of its answer, which is the same on every route, and the seconds of a token. The last two
        multiply, so the squares of their logarithms add up; the first adds to their product, so the squares
        of the deviations in seconds add up. Thus a long prompt has the spread of first tokens, and a long
        answer that of answers. Where no call shows a first token, the spread of whole durations is taken.

        Args:
            tokens: the median length of answers.
            shares: the quantiles, from 0 to 1.
            prompt_tokens: of the prompt; None for a typical one.
            shared: the errors of predictions on all routes.
        """
        first, answer = known.first_s(prompt_tokens), known.token_s * tokens
        whole = max(first + answer, 1e-9)
        split = known.ttft_known and self.token.weight() > 0

        def times(share: float) -> float:
            log_ratio, calls = (0.0, 0.0) if shared is None else shared.longer(share, now)
            log_ratio += (
                (default_spread().log_quantile(share) - log_ratio) * _ASSUMED_CALLS / (calls + _ASSUMED_CALLS)
            )
            if not split:
                longest = tokens * math.exp(log_ratio)
                longer = math.log(max(known.seconds(longest, prompt_tokens) / whole, 1e-3))
                slower = self._pooled("duration", share, now, shared)
                return math.exp(math.copysign(math.hypot(longer, slower), longer + slower))
            slower = self._pooled("token", share, now, shared)
            longer = math.copysign(math.hypot(log_ratio, slower), log_ratio + slower)
            off = answer * math.expm1(longer)
            later = first * math.expm1(self._pooled("first", share, now, shared))
            return max(1 + math.copysign(math.hypot(off, later), off + later) / whole, 0.05)

        return [times(each) for each in shares]

    def ttft_factor(self, percentile: float, now: float, shared: PredictionErrors | None) -> float:
        """Return a quantile of the time to the first token, as a ratio to the median."""
        return math.exp(self._pooled("first", percentile, now, shared))

    def _pooled(self, name: str, share: float, now: float, shared: PredictionErrors | None) -> float:
        """Return the logarithm of a quantile of the errors of a name, of this route and of all routes."""
        own: QuantileSketch = getattr(self, name)
        sources = [(default_spread(), _ASSUMED_CALLS), (own, own.weight(now))]
        if shared is not None:
            others: QuantileSketch = getattr(shared, name)
            sources.append((others, min(others.weight(now), _SHARED_CALLS)))
        return pooled_log_quantile(sources, share)


def optimistic_speedup(p10_factor: float, evidence: float, age_s: float, prefill: float = 1.0) -> float:
    """Return how many times faster the route could be: its median is uncertain and may have drifted.

    Args:
        p10_factor: as in :class:`specclient.routing.learn.route_estimate.RouteEstimate`.
        evidence: the decayed number of calls behind the estimate.
        age_s: seconds since the last call.
        prefill: how many times earlier the first token of such a prompt could be, where other prompts show
            that of typical ones.
    """
    spread = min(max(-math.log(max(p10_factor, 1e-3)) / 1.28, 0.15), 1.0)
    spread = (spread * evidence + _GUESSED * FEW_CALLS) / (evidence + FEW_CALLS)
    unknown = 1.25 * spread / math.sqrt(max(evidence, 0.5))
    drifted = 0.3 * min(math.sqrt(age_s / STALE_S), 2.0)
    return math.exp(math.hypot(1.28 * unknown, 1.28 * drifted, math.log(prefill)))


def share_below(seen: QuantileSketch, ratio: float) -> float:
    """Return the share of earlier calls with a smaller ratio of measured to predicted seconds."""
    calls, usual = seen.weight(), default_spread()
    known = seen.share_below(ratio) * calls + usual.share_below(ratio) * _BELOW_CALLS
    return (known + 0.1) / (calls + _BELOW_CALLS + 0.2)

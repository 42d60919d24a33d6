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
    """

    __slots__ = ("duration", "first")

    def __init__(self) -> None:
        self.duration = QuantileSketch(SPREAD_CALLS, SPREAD_SECONDS)
        self.first = QuantileSketch(SPREAD_CALLS, SPREAD_SECONDS)

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

        Two independent quantities make a call longer than predicted: the length of its answer, which is the
        same on every route, and the speed of the route. Each is estimated by itself, and the squares of their
        logarithms add up.

        Args:
            tokens: the median length of answers.
            shares: the quantiles, from 0 to 1.
            prompt_tokens: of the prompt; None for a typical one.
            shared: the errors of predictions on all routes.
        """
        whole = max(known.seconds(tokens, prompt_tokens), 1e-9)
        durations = [(default_spread(), _ASSUMED_CALLS), (self.duration, self.duration.weight(now))]
        if shared is not None:
            durations.append((shared.duration, min(shared.duration.weight(now), _SHARED_CALLS)))

        def times(share: float) -> float:
            log_ratio, calls = (0.0, 0.0) if shared is None else shared.longer(share, now)
            log_ratio += (
                (default_spread().log_quantile(share) - log_ratio) * _ASSUMED_CALLS / (calls + _ASSUMED_CALLS)
            )
            longest = tokens * math.exp(log_ratio)
            longer = math.log(max(known.seconds(longest, prompt_tokens) / whole, 1e-3))
            slower = pooled_log_quantile(durations, share)
            return math.exp(math.copysign(math.hypot(longer, slower), longer + slower))

        return [times(each) for each in shares]

    def ttft_factor(self, percentile: float, now: float, shared: PredictionErrors | None) -> float:
        """Return a quantile of the time to the first token, as a ratio to the median."""
        sources = [(default_spread(), _ASSUMED_CALLS), (self.first, self.first.weight(now))]
        if shared is not None:
            sources.append((shared.first, min(shared.first.weight(now), _SHARED_CALLS)))
        return math.exp(pooled_log_quantile(sources, percentile))


def optimistic_speedup(p10_factor: float, evidence: float, age_s: float) -> float:
    """Return how many times faster the route could be: its median is uncertain and may have drifted."""
    spread = min(max(-math.log(max(p10_factor, 1e-3)) / 1.28, 0.15), 1.0)
    spread = (spread * evidence + _GUESSED * FEW_CALLS) / (evidence + FEW_CALLS)
    unknown = 1.25 * spread / math.sqrt(max(evidence, 0.5))
    drifted = 0.3 * min(math.sqrt(age_s / STALE_S), 2.0)
    return math.exp(1.28 * math.hypot(unknown, drifted))


def share_below(seen: QuantileSketch, ratio: float) -> float:
    """Return the share of earlier calls with a smaller ratio of measured to predicted seconds."""
    calls, usual = seen.weight(), default_spread()
    known = seen.share_below(ratio) * calls + usual.share_below(ratio) * _BELOW_CALLS
    return (known + 0.1) / (calls + _BELOW_CALLS + 0.2)

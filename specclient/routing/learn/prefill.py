"""The cost of prefill: the growth of the time to the first token with the prompt, on one route.

The time to the first token is taken to be ``level * (1 + e * prompt_tokens)``. The level follows load within
a few calls; the growth ``e``, the prefill of one token relative to an empty prompt's time, changes little.
Each ``e`` of a grid has a level of its own, and is scored by how well it and its level have predicted the
next call (Dawid: "Present Position and Potential Developments", J. R. Stat. Soc. A 1984, the prequential
approach). The best one combines these errors with a prior, so that the first calls of a route, or calls whose
prompts are all alike, leave the growth at that of other hosts.
"""

from __future__ import annotations

import math

__all__ = ["PrefillModel"]

#: The grid of growths: none, then from the least one in equal ratios up to 1 % per token.
_LEAST, _RATIO, _COUNT = 1e-6, 1.6, 21
_GROWTHS = (0.0, *(_LEAST * _RATIO**k for k in range(_COUNT)))
#: The prior: log-normal around 4e-4, between the 2.8e-4 of a host that needs 0.6 s and reads 6,000 tokens a
#: second, and the 1.25e-3 of one that needs 0.1 s and reads 8,000. No growth is as likely as the middle. A
#: published growth is more certain.
_USUAL, _SPREAD = 4e-4, 1.5
_PUBLISHED_SPREAD = 0.7


def _penalties(usual: float, spread: float) -> tuple[float, ...]:
    """Return the penalty of each growth: minus the logarithm of its prior, up to a constant."""
    return (0.1, *(0.5 * (math.log(each / usual) / spread) ** 2 for each in _GROWTHS[1:]))


_PENALTIES = _penalties(_USUAL, _SPREAD)
#: Calls after which the level of a growth, and its errors, weigh half.
_LEVEL_CALLS, _ERROR_CALLS = 25.0, 200.0
#: The assumed variance of the logarithm of one first token, and its weight in calls.
_ASSUMED, _ASSUMED_CALLS = 0.1, 4.0
#: The most that one first token counts as an error, as a logarithm.
_FAR = 1.0
#: The quantile of the growth, in standard deviations below the estimate, that it could well have.
_HOPE = 1.28


class PrefillModel:
    """The growth of the time to the first token with the prompt, at any level of the route.

    Args:
        usual: the growth that is the likeliest before any call; None for that of usual hosts.

    Attributes:
        each: the growth per prompt token, as a share of an empty prompt's time to the first token.
        spread: the standard deviation of its logarithm.
    """

    __slots__ = ("_calls", "_errors", "_levels", "_log_prompt", "_penalties", "_seen", "each", "spread")

    def __init__(self, usual: float | None = None) -> None:
        self._penalties = _PENALTIES if usual is None else _penalties(usual, _PUBLISHED_SPREAD)
        self._levels = [0.0] * len(_GROWTHS)  # mean logarithms of an empty prompt's time
        self._errors = [0.0] * len(_GROWTHS)  # decayed sums of squares
        self._calls = self._seen = 0.0  # behind the levels, and behind the errors
        self._log_prompt = 0.0
        self.each, self.spread = (_USUAL, _SPREAD) if usual is None else (usual, _PUBLISHED_SPREAD)

    def times(self, prompt: float) -> float:
        """Return the time to the first token as a multiple of an empty prompt's."""
        return 1 + self.each * prompt

    @property
    def prompt(self) -> float:
        """The tokens of a typical prompt, 0 without any call."""
        return math.exp(self._log_prompt) if self._calls else 0.0

    def optimistic_speedup(self, prompt: int | None) -> float:
        """Return how many times earlier the first token of a prompt could well be, 1 for typical prompts."""
        usual = self.prompt
        if not prompt or not usual or not self.each:
            return 1.0
        away = self.spread * _HOPE if prompt > usual else -self.spread * _HOPE
        other = self.each * math.exp(-away)
        grown = self.times(prompt) / self.times(usual)
        return max(grown * (1 + other * usual) / (1 + other * prompt), 1.0)

    def add(self, prompt: int, first_s: float) -> None:
        """Note a first token after ``first_s`` seconds; prompts of unknown length teach nothing."""
        if prompt <= 0 or first_s <= 0:
            return
        log_s, first = math.log(first_s), not self._calls
        self._calls = self._calls * 2 ** (-1 / _LEVEL_CALLS) + 1
        self._log_prompt += (math.log(prompt) - self._log_prompt) / self._calls
        keep, levels, errors = 2 ** (-1 / _ERROR_CALLS), self._levels, self._errors
        for k, growth in enumerate(_GROWTHS):
            value = log_s - math.log1p(growth * prompt)
            if first:
                levels[k] = value
                continue
            error = value - levels[k]
            if error > _FAR:
                error = _FAR
            elif error < -_FAR:
                error = -_FAR
            levels[k] += error / self._calls
            errors[k] = errors[k] * keep + error * error
        if not first:
            self._seen = self._seen * keep + 1
            self._choose()

    def _choose(self) -> None:
        """Take the growth of least error and penalty, refined by a parabola through its neighbours."""
        variance = (min(self._errors) + _ASSUMED * _ASSUMED_CALLS) / (self._seen + _ASSUMED_CALLS)
        weight = 0.5 / variance
        losses = [
            weight * error + penalty for error, penalty in zip(self._errors, self._penalties, strict=True)
        ]
        best = losses.index(min(losses))
        self.each = _GROWTHS[best]
        if best < 2 or best == _COUNT:
            return
        before, here, after = losses[best - 1 : best + 2]
        bend = before - 2 * here + after
        if bend > 0:
            self.each *= _RATIO ** (0.5 * (before - after) / bend)
            self.spread = min(math.log(_RATIO) / math.sqrt(bend), _SPREAD)

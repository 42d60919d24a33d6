"""Cost estimates before a call: a range, from the prompt, the lengths of earlier answers and the price."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from specclient.tokens import TokenCount

__all__ = ["PRIOR_LENGTH", "CostEstimate", "CostRange", "LengthRange", "estimate", "expected_length"]

#: With fewer earlier answers, the range also covers :data:`PRIOR_LENGTH`.
MIN_ANSWERS = 10
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class LengthRange:
    """The expected length of an answer, in tokens.

    Attributes:
        low, likely, high: nine answers in ten are longer than ``low``, half of them longer than ``likely``,
            one in ten longer than ``high``.
        evidence: number of earlier answers it is based on; 0 means :data:`PRIOR_LENGTH`.
    """

    low: int
    likely: int
    high: int
    evidence: int = 0

    def limited(self, max_tokens: int | None) -> LengthRange:
        """Return the range for answers of at most ``max_tokens`` tokens; None is no limit."""
        if max_tokens is None:
            return self
        low, likely, high = (max(min(each, max_tokens), 0) for each in (self.low, self.likely, self.high))
        return LengthRange(low, likely, high, self.evidence)

    def times(self, answers: int) -> LengthRange:
        """Return the range of the sum of several answers to one prompt."""
        return LengthRange(self.low * answers, self.likely * answers, self.high * answers, self.evidence)


#: For a model without earlier answers: a sentence or two, a few paragraphs, a few pages.
PRIOR_LENGTH = LengthRange(32, 256, 1024)


@dataclass(frozen=True, slots=True)
class CostRange:
    """Dollars for the low, likely and high length of the answers; None if no price is known."""

    low: Decimal | None
    likely: Decimal | None
    high: Decimal | None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The expected tokens and cost of one or more calls.

    Attributes:
        calls: number of calls.
        prompt: tokens of all prompts.
        completion: tokens of all answers. Low ends and high ends are added up, so the range is that of calls
            whose answers are all short, or all long: wider than a sum of independent calls.
        cost: dollars.
    """

    calls: int
    prompt: TokenCount
    completion: LengthRange
    cost: CostRange

    def __add__(self, other: CostEstimate) -> CostEstimate:
        mine, theirs = self.completion, other.completion
        return CostEstimate(
            self.calls + other.calls,
            self.prompt + other.prompt,
            LengthRange(
                mine.low + theirs.low,
                mine.likely + theirs.likely,
                mine.high + theirs.high,
                max(mine.evidence, theirs.evidence),
            ),
            CostRange(
                _sum(self.cost.low, other.cost.low),
                _sum(self.cost.likely, other.cost.likely),
                _sum(self.cost.high, other.cost.high),
            ),
        )


def expected_length(earlier: Sequence[int]) -> LengthRange:
    """Return the expected length of an answer, from the lengths of earlier answers of the same model.

    With fewer than :data:`MIN_ANSWERS` earlier answers the range also covers :data:`PRIOR_LENGTH`, and the
    likely length is their median.
    """
    if not earlier:
        return PRIOR_LENGTH
    lengths = sorted(earlier)
    low, likely, high = (_quantile(lengths, share) for share in (_LOW, 0.5, _HIGH))
    if len(lengths) < MIN_ANSWERS:
        low, high = min(low, PRIOR_LENGTH.low), max(high, PRIOR_LENGTH.high)
    return LengthRange(low, likely, high, len(lengths))


def estimate(
    prompt: TokenCount, completion: LengthRange, price: Callable[[int, int], Decimal | None]
) -> CostEstimate:
    """Return the estimate for one call.

    Args:
        prompt: tokens of the prompt.
        completion: tokens of the answer.
        price: returns the dollars for prompt and completion tokens, None if unknown.
    """
    ends = (completion.low, completion.likely, completion.high)
    return CostEstimate(1, prompt, completion, CostRange(*(price(prompt.tokens, tokens) for tokens in ends)))


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else one + other

"""Turn prompts, the lengths of earlier answers and a price into what calls may cost: a range, not a point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from specclient.tokens import TokenCount

__all__ = ["PRIOR_LENGTH", "CostEstimate", "CostRange", "LengthRange", "estimate", "expected_length"]

#: Answers below which what a model has done is not yet a range of what it does.
MIN_ANSWERS = 10
_LOW, _HIGH = 0.1, 0.9


@dataclass(frozen=True, slots=True)
class LengthRange:
    """How many tokens an answer may take.

    Attributes:
        low, likely, high: nine answers in ten are longer than ``low``, half of them than ``likely``, one in
            ten than ``high``.
        evidence: earlier answers behind it; 0 means :data:`PRIOR_LENGTH`.
    """

    low: int
    likely: int
    high: int
    evidence: int = 0

    def cut(self, most: int | None) -> LengthRange:
        """Return it for answers of at most so many tokens."""
        if most is None:
            return self
        low, likely, high = (max(min(each, most), 0) for each in (self.low, self.likely, self.high))
        return LengthRange(low, likely, high, self.evidence)

    def times(self, answers: int) -> LengthRange:
        """Return it for several answers to one prompt."""
        return LengthRange(self.low * answers, self.likely * answers, self.high * answers, self.evidence)


#: Of a model without earlier answers: from a sentence or two over a few paragraphs to a few pages.
PRIOR_LENGTH = LengthRange(32, 256, 1024)


@dataclass(frozen=True, slots=True)
class CostRange:
    """Dollars at the low, likely and high length of the answers; None where no price is known."""

    low: Decimal | None
    likely: Decimal | None
    high: Decimal | None


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What calls may take and cost.

    Attributes:
        calls: how many.
        prompt: tokens of all prompts.
        completion: tokens of all answers. A sum of low ends is lower, and of high ends higher, than most sums
            would be: the range is that of calls which all turn out short, or all long.
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
    """Return how long answers may be, by the tokens of earlier ones of the same model.

    With fewer than :data:`MIN_ANSWERS` of them the range takes in the prior's, and their median stands for
    the
    likely length.
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
    """Return what one call may cost.

    Args:
        price: of a prompt's and an answer's tokens, in dollars; None where it is not known.
    """
    ends = (completion.low, completion.likely, completion.high)
    return CostEstimate(1, prompt, completion, CostRange(*(price(prompt.tokens, tokens) for tokens in ends)))


def _quantile(ordered: Sequence[int], share: float) -> int:
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


def _sum(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else one + other

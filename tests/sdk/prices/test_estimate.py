"""Cost estimates: ranges from the lengths of earlier answers, or from a prior."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.prices.estimate import (
    MIN_ANSWERS,
    PRIOR_LENGTH,
    CostRange,
    LengthRange,
    estimate,
    expected_length,
)
from specclient.tokens import TokenCount


def price(prompt: int, completion: int) -> Decimal:
    return (prompt * Decimal(2) + completion * Decimal(8)) / 1_000_000


def test_without_earlier_answers_the_range_is_the_prior() -> None:
    assert expected_length([]) == PRIOR_LENGTH
    assert PRIOR_LENGTH.evidence == 0


def test_enough_earlier_answers_give_the_range() -> None:
    assert expected_length([*range(1, 101)]) == LengthRange(10, 50, 90, 100)
    assert expected_length([7] * MIN_ANSWERS) == LengthRange(7, 7, 7, MIN_ANSWERS)


def test_few_earlier_answers_are_widened_by_the_prior() -> None:
    assert expected_length([5_000]) == LengthRange(PRIOR_LENGTH.low, 5_000, 5_000, 1)
    assert expected_length([3, 4, 5]) == LengthRange(3, 4, PRIOR_LENGTH.high, 3)


@pytest.mark.parametrize(
    ("most", "cut"), [(None, (32, 256, 1024)), (500, (32, 256, 500)), (20, (20, 20, 20)), (0, (0, 0, 0))]
)
def test_a_range_is_limited_by_max_tokens(most: int | None, cut: tuple[int, int, int]) -> None:
    found = PRIOR_LENGTH.limited(most)
    assert (found.low, found.likely, found.high) == cut


def test_the_estimate_of_one_call() -> None:
    found = estimate(TokenCount(100), PRIOR_LENGTH.times(2), price)
    assert found.cost == CostRange(Decimal("0.000712"), Decimal("0.004296"), Decimal("0.016584"))
    assert found.completion == LengthRange(64, 512, 2048)


def test_estimates_are_summed_and_one_unknown_price_makes_the_cost_unknown() -> None:
    one = estimate(TokenCount(100), LengthRange(1, 2, 3, 4), price)
    both = one + estimate(TokenCount(7, estimated=True), LengthRange(10, 20, 30, 2), price)
    assert both.calls == 2
    assert both.prompt == TokenCount(107, estimated=True)
    assert both.completion == LengthRange(11, 22, 33, 4)
    assert both.cost.high == price(107, 33)
    assert (one + estimate(TokenCount(1), PRIOR_LENGTH, lambda *_: None)).cost == CostRange(None, None, None)


@given(st.lists(st.integers(1, 10**6)), st.none() | st.integers(0, 10**6))
def test_low_likely_and_high_are_in_order(earlier: list[int], most: int | None) -> None:
    found = expected_length(earlier).limited(most)
    assert (
        0 <= found.low <= found.likely <= found.high <= (10**6 if most is None else most) + PRIOR_LENGTH.high
    )
    spent = estimate(TokenCount(5), found, price).cost
    assert spent.low is not None
    assert spent.likely is not None
    assert spent.high is not None
    assert spent.low <= spent.likely <= spent.high

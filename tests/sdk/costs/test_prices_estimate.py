"""What calls may cost is a range with its evidence: earlier answers, or a prior that says so."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.costs.prices_estimate import ENOUGH, PRIOR, Lengths, Spread, estimate, expected
from specclient.tokens import Count


def price(prompt: int, completion: int) -> Decimal:
    return (prompt * Decimal(2) + completion * Decimal(8)) / 1_000_000


def test_without_earlier_answers_it_is_the_prior() -> None:
    assert expected([]) == PRIOR
    assert PRIOR.evidence == 0


def test_enough_earlier_answers_are_the_range() -> None:
    assert expected([*range(1, 101)]) == Lengths(10, 50, 90, 100)
    assert expected([7] * ENOUGH) == Lengths(7, 7, 7, ENOUGH)


def test_few_earlier_answers_take_in_the_prior() -> None:
    assert expected([5_000]) == Lengths(PRIOR.low, 5_000, 5_000, 1)
    assert expected([3, 4, 5]) == Lengths(3, 4, PRIOR.high, 3)


@pytest.mark.parametrize(
    ("most", "cut"), [(None, (32, 256, 1024)), (500, (32, 256, 500)), (20, (20, 20, 20)), (0, (0, 0, 0))]
)
def test_no_answer_is_longer_than_it_may_be(most: int | None, cut: tuple[int, int, int]) -> None:
    found = PRIOR.cut(most)
    assert (found.low, found.likely, found.high) == cut


def test_one_call() -> None:
    found = estimate(Count(100), PRIOR.times(2), price)
    assert found.cost == Spread(Decimal("0.000712"), Decimal("0.004296"), Decimal("0.016584"))
    assert found.completion == Lengths(64, 512, 2048)


def test_many_calls_are_summed_and_one_without_a_price_leaves_none() -> None:
    one = estimate(Count(100), Lengths(1, 2, 3, 4), price)
    both = one + estimate(Count(7, estimated=True), Lengths(10, 20, 30, 2), price)
    assert both.calls == 2
    assert both.prompt == Count(107, estimated=True)
    assert both.completion == Lengths(11, 22, 33, 4)
    assert both.cost.high == price(107, 33)
    assert (one + estimate(Count(1), PRIOR, lambda *_: None)).cost == Spread(None, None, None)


@given(st.lists(st.integers(1, 10**6)), st.none() | st.integers(0, 10**6))
def test_a_range_is_in_order(earlier: list[int], most: int | None) -> None:
    found = expected(earlier).cut(most)
    assert 0 <= found.low <= found.likely <= found.high <= (10**6 if most is None else most) + PRIOR.high
    spent = estimate(Count(5), found, price).cost
    assert spent.low is not None
    assert spent.likely is not None
    assert spent.high is not None
    assert spent.low <= spent.likely <= spent.high

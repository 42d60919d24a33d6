"""The cost of a round: interpolated over rows, batch and context."""

from __future__ import annotations

import pytest
from specclient_local.drafting.best_shape import best_length
from specclient_local.drafting.round_costs import (
    RecordedCosts,
    RoundCosts,
    combined_costs,
    costs_per_row_count,
    interpolate_costs,
)

FLAT = (1.0,) * 9
BUSY = RoundCosts(0.1, FLAT, slots=8, full_draft=0.3, full_verify=tuple(1.5 + 0.6 * k for k in range(9)))


def test_unmeasured_row_counts_are_interpolated():
    assert costs_per_row_count([1, 2, 5], [2.0, 2.2, 2.8]) == pytest.approx([2.0, 2.2, 2.4, 2.6, 2.8])


def test_costs_never_decrease_with_the_row_count():
    assert costs_per_row_count([1, 2, 3], [2.0, 1.0, 4.0]) == [2.0, 2.0, 4.0]


def test_costs_beyond_the_table_are_extrapolated():
    assert interpolate_costs((1.0, 1.5, 1.7), 1.5) == pytest.approx(1.6)
    assert interpolate_costs((1.0, 1.5, 1.7), 4) == pytest.approx(2.1)
    assert interpolate_costs((), 3) == 0.0


def test_a_rounds_cost_lies_between_one_sequence_and_a_full_batch():
    assert BUSY.round(0) == 1.0
    assert BUSY.round(0, drafting=8) == 1.5
    assert BUSY.round(2) == pytest.approx(0.2 + 1.0)
    assert BUSY.round(2, drafting=8) == pytest.approx(0.6 + 2.7)
    assert BUSY.round(4, drafting=4, others=4) == pytest.approx(4 * (0.1 + 0.2 * 3 / 7) + 2.7)


RECORDED = (
    RecordedCosts(1, 0.1, (1.0, 1.0, 1.0)),
    RecordedCosts(4, 0.2, (1.1, 1.2, 1.3)),
    RecordedCosts(16, 0.3, (1.2, 1.8, 2.4)),
)


def test_a_recorded_round_costs_as_much_as_one_of_all_its_slots():
    cost = RoundCosts(0.1, FLAT, recorded=RECORDED)
    assert cost.round(2) == pytest.approx(2 * 0.1 + 1.0)
    assert cost.round(1, drafting=2) == cost.round(1, drafting=1, others=3) == pytest.approx(0.2 + 1.2)
    assert cost.round(2, drafting=5) == cost.round(2, drafting=16) == pytest.approx(0.6 + 2.4)
    assert cost.round(2, drafting=18) == pytest.approx(0.6 + 2.4 + 0.4 + 1.3)
    assert cost.round(0, 0, others=16) == 1.2
    assert [best_length(0.7, cost, count) for count in (1, 4, 16)] == [4, 2, 0]


def test_recorded_costs_are_mixed_combined_and_drawn_as_all_others():
    far = tuple(RecordedCosts(each.slots, each.draft + 0.1, (2.0, 2.0, 2.0)) for each in RECORDED)
    later = RoundCosts(0.1, FLAT, context=1000, recorded=far)
    cost = RoundCosts(0.1, FLAT, drawn=0.5, recorded=RECORDED, far=later)
    assert cost.at(512).round(0, 16) == pytest.approx(1.2 + 0.512 * 0.8)
    assert cost.sampled().round(1, 4) == pytest.approx(cost.round(1, 4) + 0.5)
    two = combined_costs([cost, cost])
    assert two.round(1, 4) == pytest.approx(2 * 0.2 + 1.3), "a token of each drafter is two rows"


def test_costs_are_interpolated_over_the_context():
    later = RoundCosts(0.3, (2.0, 3.4, 4.8), context=1064)
    cost = RoundCosts(0.1, (1.0, 1.1, 1.2), context=64, far=later)
    assert cost.at(64).verify == pytest.approx((1.0, 1.1, 1.2))
    half = cost.at(576)
    assert half.draft == pytest.approx(0.2, abs=0.02)
    assert half.verify[1] == pytest.approx(2.25, abs=0.15)
    assert cost.at(2064).verify[0] == pytest.approx(3.0, abs=0.1)
    assert best_length(0.7, cost.at(2064)) < best_length(0.7, cost)
    assert RoundCosts(0.1, FLAT).at(10_000) == RoundCosts(0.1, FLAT)


def test_a_chain_costs_as_much_as_a_tree_of_width_one():
    assert BUSY.tree((1, 1, 1), 4, 2) == BUSY.round(3, 4, 2)
    wide = RoundCosts(0.1, FLAT, row=0.01)
    assert wide.tree((3, 2)) == pytest.approx(0.2 + 2 * 0.01 + 1.0)

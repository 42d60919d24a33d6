"""Costs of recorded rounds that are corrected by measured times."""

from __future__ import annotations

import pytest
from specclient_local.drafting.measured_rounds import MeasuredRounds

CALIBRATED = [1.0, 1.2, 1.4, 2.0]


def test_costs_are_the_calibrated_ones_until_rounds_are_measured():
    rounds = MeasuredRounds()
    assert rounds.costs("a", CALIBRATED) == CALIBRATED
    rounds.add("a", 1, 5.0)
    rounds.add("a", 1, 5.0)
    assert rounds.costs("a", CALIBRATED) == CALIBRATED, "two rounds may both have been delayed"


def test_measured_lengths_cost_their_median_and_others_are_scaled_alike():
    rounds = MeasuredRounds()
    for seconds in (0.010, 0.011, 0.500):
        rounds.add("a", 0, seconds)
    for seconds in (0.026, 0.030, 0.034):
        rounds.add("a", 2, seconds)
    first, second, third, fourth = rounds.costs("a", CALIBRATED)
    assert (first, third) == pytest.approx((0.011, 0.030))
    assert second == pytest.approx(1.2 * (0.011 / 1.0 + 0.030 / 1.4) / 2), "between both factors"
    assert fourth == pytest.approx(2.0 * 0.030 / 1.4)
    assert rounds.costs("b", CALIBRATED) == CALIBRATED


def test_only_the_latest_rounds_count():
    rounds = MeasuredRounds()
    for seconds in (1.0,) * 20 + (3.0,) * 5:
        rounds.add("a", 0, seconds)
    assert rounds.costs("a", CALIBRATED)[0] == 3.0


def test_plain_rounds_are_measured_while_drafts_gain_little():
    rounds = MeasuredRounds()
    for _ in range(3):
        assert rounds.wants_plain("a", 2.0)
        rounds.add("a", 0, 0.01)
    assert not rounds.wants_plain("a", 1.1)
    for _ in range(64):
        rounds.add("a", 2, 0.01)
    assert rounds.wants_plain("a", 1.1)
    assert not rounds.wants_plain("a", 1.5)

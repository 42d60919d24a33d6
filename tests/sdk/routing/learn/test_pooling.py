"""Pooled quantiles: a small group's quantile shrinks towards similar groups."""

from __future__ import annotations

import math
import random

import pytest

from specclient.routing.learn.pooling import shrunken_quantile
from specclient.routing.learn.quantile_sketch import QuantileSketch, pooled_log_quantile


def random_sketch(rng, count, middle=1.0, spread=0.5):
    seen = QuantileSketch()
    for _ in range(count):
        seen.add(rng.lognormvariate(math.log(middle), spread))
    return seen


def test_a_small_group_borrows_from_similar_groups():
    rng = random.Random(1)
    truth = 0.5 * 1.645
    errors, alone = [], []
    for _ in range(40):
        groups = [random_sketch(rng, count) for count in (30, 400, 400, 400)]
        log, behind = shrunken_quantile(groups[0], groups, 0.95, 0.0)
        errors.append(abs(log - truth))
        alone.append(abs(groups[0].log_quantile(0.95) - truth))
        assert behind >= 30
    assert sum(errors) < 0.6 * sum(alone)


def test_groups_that_differ_keep_their_own_quantiles():
    rng = random.Random(2)
    groups = [random_sketch(rng, 300, middle) for middle in (0.5, 1.0, 2.0, 4.0)]
    for own in groups:
        assert shrunken_quantile(own, groups, 0.5, 0.0)[0] == pytest.approx(own.log_quantile(0.5), abs=0.05)


def test_an_empty_group_uses_the_others_quantile():
    rng = random.Random(3)
    other = random_sketch(rng, 200, 3.0)
    assert shrunken_quantile(QuantileSketch(), [QuantileSketch(), other], 0.5, 0.0) == (
        other.log_quantile(0.5),
        0.0,
    )
    assert shrunken_quantile(QuantileSketch(), [], 0.5, 0.0) == (0.0, 0.0)


def test_pooled_quantiles_are_weighted():
    low, high = QuantileSketch(), QuantileSketch()
    low.add(1.0)
    high.add(10.0)
    assert math.exp(pooled_log_quantile(((low, 3.0), (high, 1.0)), 0.9)) == pytest.approx(10**0.25, rel=0.05)
    with pytest.raises(ValueError, match="no value"):
        pooled_log_quantile(((QuantileSketch(), 1.0), (low, 0.0)), 0.5)

"""Quantile sketches: relative error, decay of old values, merging and mixtures; and decayed regression."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.routing.learn import quantile_sketch as module
from specclient.routing.learn.quantile_sketch import ERROR, QuantileSketch, quantiles
from specclient.routing.learn.regression import DecayedRegression

VALUES = st.floats(1e-6, 1e6)
SHARES = st.floats(0, 1)


def exact(weighted, share):
    """Return the exact weighted quantile."""
    ordered = sorted(weighted)
    whole = sum(weight for _, weight in ordered)
    for value, reached in zip(
        (v for v, _ in ordered), itertools.accumulate(w for _, w in ordered), strict=True
    ):
        if reached >= share * whole:
            return value
    return ordered[-1][0]


def is_near(quantile, weighted, share):
    """Return whether a quantile is within the relative error, allowing for rounded weights."""
    low, high = exact(weighted, max(share - 1e-6, 0)), exact(weighted, min(share + 1e-6, 1))
    return low * (1 - 1.001 * ERROR) <= quantile <= high * (1 + 1.001 * ERROR)


@given(st.lists(VALUES, min_size=1, max_size=60), SHARES)
def test_quantiles_are_within_the_relative_error(values, share):
    seen = QuantileSketch()
    for value in values:
        seen.add(value)
    assert is_near(seen.quantile(share), [(v, 1.0) for v in values], share)
    assert seen.weight() == pytest.approx(len(values))


@given(
    st.lists(st.tuples(VALUES, st.floats(0, 100)), min_size=1, max_size=40),
    st.floats(0.5, 50),
    st.floats(1, 1000),
    SHARES,
)
def test_weights_halve_after_the_half_life_in_calls_and_in_seconds(steps, calls, seconds, share):
    seen, at, times = QuantileSketch(calls, seconds), 0.0, []
    for value, step in steps:
        at += step
        seen.add(value, at)
        times.append((value, at))
    weighted = [
        (value, 2 ** (-(len(times) - 1 - n) / calls - (at - when) / seconds))
        for n, (value, when) in enumerate(times)
    ]
    assert is_near(seen.quantile(share), weighted, share)
    assert seen.weight() == pytest.approx(sum(w for _, w in weighted), rel=1e-4)
    assert seen.weight(at + seconds) == pytest.approx(seen.weight() / 2)


def test_unlimited_values_neither_overflow_nor_grow_memory():
    seen = QuantileSketch(calls=2)
    for n in range(5000):
        seen.add(1.02 ** (n % 1700), at=1e4 * n)
    assert seen.weight() == pytest.approx(1 / (1 - 2**-0.5), rel=1e-3)
    flat = QuantileSketch()
    for n in range(3000):
        flat.add(1.05 ** (n - 1500) if n < 3000 else 1.0)
    assert len(flat._buckets) <= module._MOST_BUCKETS


def test_values_before_a_long_pause_lose_their_weight():
    seen = QuantileSketch(seconds=60)
    for _ in range(1000):
        seen.add(5.0, at=0.0)
    seen.add(1.0, at=1e9)
    assert seen.quantile(0.999) == pytest.approx(1.0, rel=1.001 * ERROR)


@given(st.lists(VALUES, max_size=30), st.lists(VALUES, max_size=30), SHARES)
def test_a_merged_sketch_equals_one_of_all_values(some, others, share):
    one, other = QuantileSketch(), QuantileSketch()
    for value in some:
        one.add(value)
    for value in others:
        other.add(value)
    one.merge(other)
    if some or others:
        assert is_near(one.quantile(share), [(v, 1.0) for v in (*some, *others)], share)
    assert one.weight() == pytest.approx(len(some) + len(others))


def test_merged_values_are_decayed_by_their_age():
    old, new = QuantileSketch(seconds=10), QuantileSketch(seconds=10)
    for _ in range(8):
        old.add(100.0, at=0.0)
    new.add(1.0, at=30.0)
    for merged in (QuantileSketch(seconds=10), QuantileSketch(seconds=10)):
        merged.merge(old)
        merged.merge(new)
        assert merged.weight() == pytest.approx(2.0), "eight values, three half-lives old, and one new value"
    new.merge(old)
    assert new.weight() == pytest.approx(2.0)


def test_a_mixture_applies_the_given_weights():
    slow, fast = QuantileSketch(), QuantileSketch()
    for _ in range(100):
        slow.add(10.0)
    fast.add(1.0)
    assert quantiles([(slow, 1), (fast, 3)], (0.5, 0.9)) == pytest.approx([1.0, 10.0], rel=1.001 * ERROR)
    with pytest.raises(ValueError, match="no value was seen"):
        quantiles([(QuantileSketch(), 1.0)], (0.5,))


def test_invalid_values_are_ignored_and_zero_is_counted():
    seen = QuantileSketch()
    for value in (math.nan, math.inf, -1.0):
        seen.add(value)
    assert (seen.weight(), seen.quantile(0.5), seen.share_below(1.0)) == (0, None, 0.5)
    seen.add(0.0)
    seen.add(3.0)
    assert seen.quantile(0.5) == 0.0
    assert seen.share_below(1.0) == 0.5
    assert seen.share_below(3.0) == pytest.approx(0.75)


@given(
    st.floats(0.01, 10),
    st.floats(0, 10),
    st.lists(st.integers(0, 1000), min_size=8, max_size=50, unique=True),
)
def test_regression_recovers_a_line_from_its_points(slope, start, xs):
    line = DecayedRegression(calls=1000)
    for x in xs:
        line.add(x, start + slope * x)
    assert line.slope == pytest.approx(slope, rel=1e-6)
    if start > 1e-3:
        assert line.intercept == pytest.approx(start, rel=1e-3, abs=1e-6)


def test_regression_finds_no_line_in_noise_or_too_few_points():
    noise, few, flat = DecayedRegression(100), DecayedRegression(100), DecayedRegression(100)
    for n in range(50):
        noise.add(n % 7, [1.0, 5.0, 2.0, 4.0, 3.0][n % 5])
        flat.add(100, n)
    for n in range(4):
        few.add(n, n)
    assert noise.slope is few.slope is flat.slope is flat.intercept is None

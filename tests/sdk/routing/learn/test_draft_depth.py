"""Draft depth: the closed form matches simulation, and load, prompt length and cost bound the depth."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specclient.draft_target.presets import DEPTHS
from specclient.routing.learn.draft_depth import (
    BOUNDS,
    best_depth,
    break_even,
    drafting_pays,
    estimated_acceptance,
    expected_tokens,
    max_depth,
    speedup,
)
from specclient.types.server_load import ServerLoad

ALPHA, COST = st.floats(0, 1), st.floats(0, 2)


def simulated(alpha, depth, cost_ratio, rounds=20_000, seed=1):
    """Return simulated tokens per verification and the speed-up over plain decoding."""
    rng, tokens = random.Random(seed), 0
    for _ in range(rounds):
        accepted = next((k for k in range(depth) if rng.random() >= alpha), depth)
        tokens += accepted + 1
    return tokens / rounds, tokens / (rounds * (depth * cost_ratio + 1))


@pytest.mark.parametrize(
    ("alpha", "depth", "cost"), [(0, 3, 0.1), (0.3, 1, 0.5), (0.7, 4, 0.05), (0.9, 8, 0.2), (1, 5, 0)]
)
def test_the_closed_form_matches_simulation(alpha, depth, cost):
    tokens, times = simulated(alpha, depth, cost)
    assert expected_tokens(alpha, depth) == pytest.approx(tokens, rel=0.02)
    assert speedup(alpha, depth, cost) == pytest.approx(times, rel=0.02)


@given(ALPHA, COST, st.sampled_from([None, *BOUNDS]), st.integers(0, 10**6))
def test_the_best_depth_has_the_highest_speedup_and_never_loses(alpha, cost, task, prompt):
    most = max_depth(task, None, prompt)
    best = best_depth(alpha, cost, task=task, prompt_tokens=prompt)
    gains = [speedup(alpha, depth, cost) for depth in range(most + 1)]
    assert gains[best] == max(gains) >= 1.0
    assert 0 <= best <= most


def test_a_losing_draft_gets_depth_zero():
    assert best_depth(0.1, 0.5) == 0
    assert best_depth(0.0, 0.0) == 0, "nothing is gained, so nothing is drafted"
    assert best_depth(0.8, 0.05) > 2


@given(st.floats(0, 0.95), st.integers(1, 8))
def test_at_break_even_drafting_neither_wins_nor_loses(cost, depth):
    alpha = break_even(cost, depth)
    assert speedup(alpha, depth, cost) == pytest.approx(1.0, abs=1e-6)
    assert speedup(min(alpha + 0.05, 1), depth, cost) > 1 - 1e-9


def test_a_draft_as_dear_as_its_target_never_breaks_even():
    assert break_even(1.5) == float("inf")
    assert break_even(0.0) == pytest.approx(0, abs=1e-6)


@given(st.floats(0.01, 0.99), st.integers(1, 8))
def test_acceptance_is_recovered_from_counts_of_verifications(alpha, depth):
    accepted = expected_tokens(alpha, depth) - 1
    assert estimated_acceptance(1000 * accepted, 1000 * depth, 1000) == pytest.approx(alpha, abs=1e-6)
    assert accepted / depth <= alpha + 1e-9, "accepted / drafted tokens underestimates alpha"


def test_the_bounds_equal_the_client_side_workflows():
    assert {BOUNDS[task] for task in BOUNDS} == set(DEPTHS.values())
    assert BOUNDS["document"] == DEPTHS["documents"]


def test_depth_shrinks_with_load_and_grows_when_idle():
    depths = [
        best_depth(0.9, 0.02, task="code", load=ServerLoad(running=n, slots=100))
        for n in (5, 40, 60, 70, 75, 81)
    ]
    assert depths == sorted(depths, reverse=True)
    assert depths[0] > BOUNDS["code"][1] == depths[1] > depths[2] > depths[3] > depths[-1] == 0
    assert best_depth(0.9, 0.02, task="code", load=ServerLoad(running=4, waiting=1, slots=8)) == 0, "a queue"
    assert best_depth(0.9, 0.02, load=ServerLoad(running=1, slots=8, cache_use=0.95)) == 0, "no memory"


def test_depth_shrinks_with_prompt_length():
    depths = [best_depth(0.95, 0.01, task="document", prompt_tokens=n) for n in (1000, 10_000, 20_000, 10**6)]
    assert depths == sorted(depths, reverse=True)
    assert depths[0] > depths[1] > depths[-1] > 0


@pytest.mark.parametrize(
    ("used", "tokens", "memory", "pays"),
    [
        (0.3, 200, 0.5, True),
        (0.49, 101, 0.79, True),
        (0.3, 100, 0.5, None),
        (0.6, 200, 0.5, None),
        (0.3, 200, 0.85, None),
        (0.81, 200, 0.5, False),
        (0.3, 200, 0.95, False),
        (None, None, None, True),
    ],
)
def test_the_published_rule_of_thumb_is_followed(used, tokens, memory, pays):
    assert drafting_pays(used, tokens, memory) is pays


@given(st.floats(0, 0.2), st.floats(0, 0.75), st.sampled_from(list(BOUNDS)))
def test_a_typical_pair_drafts_where_the_rule_of_thumb_says_so(cost, memory, task):
    load = ServerLoad(running=3, slots=10, cache_use=memory)
    assert drafting_pays(load.utilisation, 200, memory)
    assert best_depth(0.7, cost, task=task, load=load) > 0


@pytest.mark.parametrize(
    ("load", "used"),
    [
        (ServerLoad(), 0.0),
        (ServerLoad(running=2, slots=4), 0.5),
        (ServerLoad(running=8, slots=4), 1.0),
        (ServerLoad(running=1, waiting=3), 1.0),
        (ServerLoad(running=3, cache_use=0.4), 0.4),
        (ServerLoad(running=3), None),
    ],
)
def test_utilisation_is_derived_from_slots_queue_or_cache(load, used):
    assert load.utilisation == used

"""The best shape of a draft: known optima, simulated rounds, and costs that make drafts shorter."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from specclient_local.drafting.best_shape import (
    RoundLoad,
    best_length,
    best_widths,
    expected_tokens,
)
from specclient_local.drafting.drafter import chain, shape_size
from specclient_local.drafting.round_costs import RoundCosts

FLAT = (1.0,) * 9
BUSY = RoundCosts(0.1, FLAT, slots=8, full_draft=0.3, full_verify=tuple(1.5 + 0.6 * k for k in range(9)))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.77, 1.0])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_expected_tokens_equals_the_mean_of_simulated_rounds(alpha, length):
    rng, rounds, won = random.Random(0), 20_000, 0
    for _ in range(rounds):
        won += 1
        for _ in range(length):
            if rng.random() >= alpha:
                break
            won += 1
    assert won / rounds == pytest.approx(expected_tokens(alpha, length), abs=0.05)


def test_a_free_draft_gets_the_maximum_length_and_a_useless_one_zero():
    assert best_length(0.9, RoundCosts(0.0, FLAT)) == 8
    assert best_length(0.9, RoundCosts(0.0, FLAT[:4])) == 3
    assert best_length(0.0, RoundCosts(0.1, FLAT)) == 0
    assert best_length(0.9, RoundCosts(2.0, FLAT)) == 0
    assert best_length(1.0, RoundCosts(0.5, FLAT)) == 8


def test_drafting_that_is_hardly_faster_than_plain_decoding_is_left_out():
    """1.5 tokens for the cost of 1.45 plain steps are within the errors of both; for 1.4 they are not."""
    assert best_length(0.5, RoundCosts(0.0, (1.0, 1.45, 9.0))) == 0
    assert best_length(0.5, RoundCosts(0.0, (1.0, 1.4, 9.0))) == 1


def test_best_length_equals_known_optima():
    """The argmax of (1 - a^(K+1)) / ((1 - a)(0.1 K + 1)), computed by hand for five a."""
    found = [best_length(alpha, RoundCosts(0.1, FLAT)) for alpha in (0.3, 0.5, 0.7, 0.8, 0.9)]
    assert found == [1, 2, 4, 6, 8]


def test_costly_verification_rows_shorten_the_draft():
    dear = tuple(1.0 + 0.3 * k for k in range(9))
    assert best_length(0.8, RoundCosts(0.1, dear)) < best_length(0.8, RoundCosts(0.1, FLAT))


def test_more_drafting_requests_shorten_the_draft_down_to_zero():
    lengths = [best_length(0.8, BUSY, drafting) for drafting in range(1, 9)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == best_length(0.8, RoundCosts(0.1, FLAT)) > lengths[4]
    assert best_length(0.3, BUSY, 8) == 0 < best_length(0.3, BUSY, 1)
    assert best_length(0.8, BUSY, 1, others=7) <= lengths[0]


def test_trees_are_chosen_if_rows_are_free_and_chains_if_they_are_costly():
    free, dear = (
        RoundCosts(0.2, (1.0,) * 16),
        RoundCosts(0.2, tuple(1.0 + 0.3 * k for k in range(16)), row=0.1),
    )
    wide = best_widths(0.6, 0.4, free, RoundLoad())
    assert max(wide) > 1
    assert shape_size(wide) <= 15
    assert set(best_widths(0.6, 0.4, dear, RoundLoad())) == {1}
    assert set(best_widths(0.6, 0.0, free, RoundLoad())) == {1}
    assert best_widths(0.05, 0.0, dear, RoundLoad()) == ()


@pytest.mark.parametrize("what", ["level", "tree_overhead"])
def test_tree_overhead_makes_chains_preferable(what):
    free = RoundCosts(0.2, (1.0,) * 16)
    dear = replace(free, **{what: 0.5})
    assert max(best_widths(0.6, 0.4, free, RoundLoad())) > 1
    assert set(best_widths(0.6, 0.4, dear, RoundLoad())) == {1}
    assert best_widths(0.6, 0.0, dear, RoundLoad()) == best_widths(0.6, 0.0, free, RoundLoad())


def test_best_widths_are_fastest_in_simulated_rounds():
    """The chosen widths are compared with others by simulation with per-sibling acceptance rates."""
    cost, rng = RoundCosts(0.2, tuple(1.0 + 0.02 * k for k in range(16)), row=0.02), random.Random(0)

    def simulated_speed(widths, alpha, beta, rounds=20_000):
        won = 0
        for _ in range(rounds):
            won += 1
            for width in widths:
                if not any(rng.random() < (alpha if i == 0 else beta) for i in range(width)):
                    break
                won += 1
        return won / rounds / cost.tree(widths)

    best = best_widths(0.5, 0.4, cost, RoundLoad())
    speeds = {
        w: simulated_speed(w, 0.5, 0.4) for w in [best, chain(3), chain(5), (2, 2, 2), (4, 2), (2, 1, 1)]
    }
    assert max(best) > 1
    assert speeds[best] > 0.98 * max(speeds.values())

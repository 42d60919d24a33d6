"""Draft length policies: known optima, limits, batching, and adaptation to acceptance."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.drafter import chain, shape_size
from specclient_local.drafting.length_policy import (
    AdaptiveLength,
    RoundLoad,
    StepLength,
    best_length,
    best_widths,
    expected_tokens,
)
from specclient_local.drafting.policy_selection import length_policy_for
from specclient_local.drafting.round_costs import RoundCosts, costs_per_row_count, interpolate_costs
from specclient_local.request.token_tree import ROOT, TokenTree
from tiny_models import sequence

FLAT = (1.0,) * 9


def learn(length, drafted, accepted):
    length.update(TokenTree.chain([0] * drafted), list(range(accepted)))


def next_length(length, **load):
    return len(length.next(RoundLoad(**load)))


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


def test_best_length_equals_known_optima():
    """The argmax of (1 - a^(K+1)) / ((1 - a)(0.1 K + 1)), computed by hand for five a."""
    found = [best_length(alpha, RoundCosts(0.1, FLAT)) for alpha in (0.3, 0.5, 0.7, 0.8, 0.9)]
    assert found == [1, 2, 4, 6, 8]


def test_costly_verification_rows_shorten_the_draft():
    dear = tuple(1.0 + 0.3 * k for k in range(9))
    assert best_length(0.8, RoundCosts(0.1, dear)) < best_length(0.8, RoundCosts(0.1, FLAT))


def test_unmeasured_row_counts_are_interpolated():
    assert costs_per_row_count([1, 2, 5], [2.0, 2.2, 2.8]) == pytest.approx([2.0, 2.2, 2.4, 2.6, 2.8])


def test_costs_never_decrease_with_the_row_count():
    assert costs_per_row_count([1, 2, 3], [2.0, 1.0, 4.0]) == [2.0, 2.0, 4.0]


def test_costs_beyond_the_table_are_extrapolated():
    assert interpolate_costs((1.0, 1.5, 1.7), 1.5) == pytest.approx(1.6)
    assert interpolate_costs((1.0, 1.5, 1.7), 4) == pytest.approx(2.1)
    assert interpolate_costs((), 3) == 0.0


def test_adaptive_length_follows_observed_acceptance():
    good, bad = (AdaptiveLength(RoundCosts(0.15, FLAT)) for _ in range(2))
    for _ in range(60):
        learn(good, 4, 4)
        learn(bad, 4, 0)
    assert next_length(good) == 8
    assert bad.alpha < 0.1
    assert next_length(bad) == 0
    recovering = bad.alpha
    learn(bad, 2, 2)
    assert bad.alpha > recovering


def test_a_rejection_counts_once_and_an_empty_round_does_not_count():
    one = AdaptiveLength(RoundCosts(0.1, FLAT), prior=0.5, weight=2.0)
    learn(one, 0, 0)
    assert one.alpha == 0.5
    learn(one, 4, 1)
    assert one.alpha == pytest.approx((1 * 0.98 + 1) / (2 * 0.98 + 2))


def test_a_policy_that_stopped_drafting_probes_occasionally():
    hopeless = AdaptiveLength(RoundCosts(5.0, FLAT))
    assert [next_length(hopeless) for _ in range(32)].count(2) == 2


BUSY = RoundCosts(0.1, FLAT, slots=8, full_draft=0.3, full_verify=tuple(1.5 + 0.6 * k for k in range(9)))


def test_more_drafting_requests_shorten_the_draft_down_to_zero():
    lengths = [best_length(0.8, BUSY, drafting) for drafting in range(1, 9)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == best_length(0.8, RoundCosts(0.1, FLAT)) > lengths[4]
    assert best_length(0.3, BUSY, 8) == 0 < best_length(0.3, BUSY, 1)
    assert best_length(0.8, BUSY, 1, others=7) <= lengths[0]


def test_a_rounds_cost_lies_between_one_sequence_and_a_full_batch():
    assert BUSY.round(0) == 1.0
    assert BUSY.round(0, drafting=8) == 1.5
    assert BUSY.round(2) == pytest.approx(0.2 + 1.0)
    assert BUSY.round(2, drafting=8) == pytest.approx(0.6 + 2.7)
    assert BUSY.round(4, drafting=4, others=4) == pytest.approx(4 * (0.1 + 0.2 * 3 / 7) + 2.7)


def test_a_policy_that_does_not_draft_because_of_load_does_not_probe():
    good = AdaptiveLength(BUSY, prior=0.45)
    assert next_length(good) > 0
    assert {next_length(good, drafting=8) for _ in range(40)} == {0}
    assert next_length(good) > 0


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


def test_costly_drawing_shortens_sampled_drafts():
    cost = RoundCosts(0.1, FLAT, drawn=0.4, far=RoundCosts(0.1, FLAT, drawn=0.4, context=500))
    assert best_length(0.8, cost.sampled()) < best_length(0.8, cost)
    assert cost.sampled().at(400).draft == pytest.approx(0.5)
    sampled, greedy = (
        length_policy_for(sequence([1, 2], method="draft", temperature=heat), DraftModel, cost)
        for heat in (1.0, 0.0)
    )
    assert len(sampled.next(RoundLoad())) < len(greedy.next(RoundLoad()))


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


def test_first_children_and_later_siblings_have_separate_acceptance_rates():
    length = AdaptiveLength(RoundCosts(0.1, FLAT), prior=0.5, weight=2.0, widths=True)
    tree = TokenTree()
    first, second = tree.add(ROOT, 5), tree.add(ROOT, 6)
    tree.add(first, 7)
    below = tree.add(second, 8)
    length.update(tree, [second, below])
    assert length.alpha == pytest.approx((1 * 0.98 + 1) / (2 * 0.98 + 2))
    assert length.beta == pytest.approx((0.5 * 0.98 + 1) / (2 * 0.98 + 1))
    length.update(tree, [])
    assert length.beta < (0.5 * 0.98 + 1) / (2 * 0.98 + 1)


def test_a_multi_drafter_tree_counts_any_accepted_child():
    length = AdaptiveLength(RoundCosts(0.1, FLAT), prior=0.5, weight=2.0)
    tree = TokenTree()
    tree.add(ROOT, 5)
    length.update(tree, [tree.add(ROOT, 6)])
    assert length.alpha > 0.5


def test_step_length_follows_the_last_round_within_bounds():
    length = StepLength()
    lengths = []
    for share in (1.0, 0.8, 0.5, 0.3, *[0.0] * 8, *[1.0] * 12):
        lengths.append(next_length(length))
        learn(length, lengths[-1], round(share * lengths[-1]))
    assert lengths[:5] == [5, 6, 7, 7, 6]
    assert min(lengths) == 3
    assert next_length(length) == 10
    learn(length, 0, 0)
    assert next_length(length) == 10


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

"""The draft length against a brute-force optimum, at the edges, and as it learns."""

from __future__ import annotations

import random

import pytest
from specclient_local.drafting.length import Costs, DraftLength, best_length, costs, expected_tokens

FLAT = (1.0,) * 9


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.77, 1.0])
@pytest.mark.parametrize("length", [0, 1, 4])
def test_expected_tokens_is_the_mean_over_simulated_rounds(alpha, length):
    dice, rounds, won = random.Random(0), 20_000, 0
    for _ in range(rounds):
        won += 1
        for _ in range(length):
            if dice.random() >= alpha:
                break
            won += 1
    assert won / rounds == pytest.approx(expected_tokens(alpha, length), abs=0.05)


def test_a_free_draft_is_drafted_as_far_as_allowed_and_a_useless_one_not_at_all():
    assert best_length(0.9, Costs(0.0, FLAT)) == 8
    assert best_length(0.9, Costs(0.0, FLAT[:4])) == 3
    assert best_length(0.0, Costs(0.1, FLAT)) == 0
    assert best_length(0.9, Costs(2.0, FLAT)) == 0
    assert best_length(1.0, Costs(0.5, FLAT)) == 8


def test_known_optima():
    """The argmax of (1 - a^(K+1)) / ((1 - a)(0.1 K + 1)), worked out by hand for five a."""
    found = [best_length(alpha, Costs(0.1, FLAT)) for alpha in (0.3, 0.5, 0.7, 0.8, 0.9)]
    assert found == [1, 2, 4, 6, 8]


def test_rows_that_cost_shorten_the_draft():
    dear = tuple(1.0 + 0.3 * k for k in range(9))
    assert best_length(0.8, Costs(0.1, dear)) < best_length(0.8, Costs(0.1, FLAT))


def test_costs_are_in_plain_steps_and_interpolated():
    cost = costs([0.5], [1, 2, 5, 9], [[2.0, 2.2, 2.8, 4.0]])
    assert cost.draft == 0.25
    assert cost.verify == pytest.approx((1.0, 1.1, 1.2, 1.3, 1.4, 1.55, 1.7, 1.85, 2.0))


def test_noise_never_makes_more_rows_cheaper():
    assert costs([0.5], [1, 2, 3], [[2.0, 1.0, 4.0]]).verify == (1.0, 1.0, 2.0)


def test_a_context_shorter_than_the_longest_draft_bounds_the_costs():
    assert len(costs([0.5], [1, 2, 3], [[1.0, 1.0, 1.0]]).verify) == 3


def test_it_learns_from_rounds():
    good, bad = (DraftLength(Costs(0.15, FLAT)) for _ in range(2))
    for _ in range(60):
        good.update(4, 4)
        bad.update(4, 0)
    assert good.next() == 8
    assert bad.alpha < 0.1
    assert bad.next() == 0
    recovering = bad.alpha
    bad.update(2, 2)
    assert bad.alpha > recovering


def test_a_refusal_counts_once_and_an_empty_round_not():
    one = DraftLength(Costs(0.1, FLAT), prior=0.5, weight=2.0)
    one.update(0, 0)
    assert one.alpha == 0.5
    one.update(4, 1)
    assert one.alpha == pytest.approx((1 * 0.98 + 1) / (2 * 0.98 + 2))


def test_who_stopped_drafting_tries_again_now_and_then():
    hopeless = DraftLength(Costs(5.0, FLAT))
    assert [hopeless.next() for _ in range(32)].count(2) == 2


BUSY = Costs(0.1, FLAT, slots=8, full_draft=0.3, full_verify=tuple(1.5 + 0.6 * k for k in range(9)))


def test_company_shortens_the_draft_down_to_none():
    lengths = [best_length(0.8, BUSY, drafting) for drafting in range(1, 9)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] == best_length(0.8, Costs(0.1, FLAT)) > lengths[4]
    assert best_length(0.3, BUSY, 8) == 0 < best_length(0.3, BUSY, 1)
    assert best_length(0.8, BUSY, 1, others=7) <= lengths[0]


def test_a_rounds_cost_lies_between_one_sequence_and_a_full_batch():
    assert BUSY.round(0) == 1.0
    assert BUSY.round(0, drafting=8) == 1.5
    assert BUSY.round(2) == pytest.approx(0.2 + 1.0)
    assert BUSY.round(2, drafting=8) == pytest.approx(0.6 + 2.7)
    assert BUSY.round(4, drafting=4, others=4) == pytest.approx(4 * (0.1 + 0.2 * 3 / 7) + 2.7)


def test_who_is_kept_from_drafting_by_the_load_does_not_try():
    good = DraftLength(BUSY, prior=0.45)
    assert good.next() > 0
    assert {good.next(drafting=8) for _ in range(40)} == {0}
    assert good.next() > 0


def test_a_full_batch_is_measured_in_the_same_unit():
    cost = costs([0.5, 1.0], [1, 3], [[2.0, 3.0], [4.0, 8.0]], slots=4)
    assert (cost.draft, cost.full_draft, cost.slots) == (0.25, 0.5, 4)
    assert cost.verify == (1.0, 1.25, 1.5)
    assert cost.full_verify == (2.0, 3.0, 4.0)

"""Draft lengths that are chosen for all requests of a batch together."""

from __future__ import annotations

from itertools import product

import pytest
from specclient_local.drafting.batch_lengths import BatchLengths, best_lengths
from specclient_local.drafting.length_policy import AdaptiveLength
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.request.token_tree import TokenTree

ROWS_ARE_CHEAP = RoundCosts(0.02, (1.0,) * 9, 8, 0.06, tuple(1.2 + 0.05 * k for k in range(9)))
ROWS_COST = RoundCosts(
    0.02, tuple(1.0 + 0.1 * k for k in range(9)), 8, 0.06, tuple(2.0 + k for k in range(9))
)
ALPHAS = (0.9, 0.75, 0.5, 0.3)


def policies(cost, alphas):
    """Return policies whose estimated acceptance is as given."""
    return [AdaptiveLength(cost, prior=alpha, weight=1e9) for alpha in alphas]


def speed(lengths, alphas, cost, others=0):
    tokens = others + sum(sum(a**k for k in range(n + 1)) for a, n in zip(alphas, lengths, strict=True))
    return tokens / cost.chains(lengths, others)


@pytest.mark.parametrize("others", [0, 4])
@pytest.mark.parametrize("cost", [ROWS_ARE_CHEAP, ROWS_COST])
def test_no_other_lengths_give_more_tokens_per_cost(cost, others):
    alphas = (0.9, 0.7, 0.4)
    found, gain = best_lengths(alphas, cost, others)
    best = max(speed(lengths, alphas, cost, others) for lengths in product(range(9), repeat=3))
    assert speed(found, alphas, cost, others) == pytest.approx(best, rel=0.01)
    assert gain == pytest.approx(speed(found, alphas, cost, others) / speed((0, 0, 0), alphas, cost, others))


def test_requests_that_accept_more_draft_more():
    assert best_lengths(ALPHAS, ROWS_COST)[0] == tuple(sorted(best_lengths(ALPHAS, ROWS_COST)[0])[::-1])
    some = best_lengths((*ALPHAS, *ALPHAS), ROWS_COST)[0]
    assert some[0] > 0
    assert some[3] == 0
    assert all(best_lengths(ALPHAS, ROWS_ARE_CHEAP)[0])


def test_lengths_of_a_batch_that_gains_nothing_are_zero_and_nothing_is_tried():
    batch, dear = BatchLengths(), RoundCosts(0.5, (1.0, 1.9, 2.8), 8, 4.0, (8.0, 15.0, 22.0))
    chosen = [batch.next(policies(dear, [0.6] * 8), 64, 0).lengths for _ in range(40)]
    assert chosen == [[0] * 8] * 40


def test_one_request_at_a_time_tries_a_draft_where_a_better_one_would_gain():
    batch = BatchLengths()
    chosen = [batch.next(policies(ROWS_ARE_CHEAP, [0.02] * 4), 64, 0).lengths for _ in range(64)]
    assert [lengths for lengths in chosen if any(lengths)] == [
        [0, 2, 0, 0], [0, 0, 2, 0], [0, 0, 0, 2], [2, 0, 0, 0]
    ]  # fmt: skip


def run(batch, seconds_of, rounds, alphas=(0.75,) * 4):
    """Choose lengths and report times; return the share of rounds with drafts."""
    drafted = 0
    for _ in range(rounds):
        timed = batch.next(policies(ROWS_COST, alphas), 64, 0, "kind")
        timed.end(seconds_of(timed.lengths))
        drafted += any(timed.lengths)
    return drafted / rounds


def test_drafts_that_lose_by_measured_times_stop_and_are_tried_again():
    def slow(lengths):
        return ROWS_COST.chains(lengths) * (2.0 if any(lengths) else 1.0)

    batch = BatchLengths()
    assert run(batch, ROWS_COST.chains, 100) > 0.9
    assert run(BatchLengths(), slow, 600) < 0.1
    run(batch, slow, 20)
    assert run(batch, ROWS_COST.chains, 200) > 0.5, "what was slow once is not slow for ever"


def test_rounds_without_drafts_are_measured_first_and_again_while_the_gain_is_small():
    assert 1.05 < best_lengths((0.5,) * 4, ROWS_COST)[1] < 1.3 < best_lengths((0.75,) * 4, ROWS_COST)[1]
    assert run(BatchLengths(), ROWS_COST.chains, 640) == 637 / 640
    assert 0.97 < run(BatchLengths(), ROWS_COST.chains, 640, (0.5,) * 4) < 0.99


def test_a_rejected_draft_lowers_the_length_of_its_request_alone():
    batch, both = BatchLengths(), [AdaptiveLength(ROWS_ARE_CHEAP), AdaptiveLength(ROWS_ARE_CHEAP)]
    for _ in range(3):
        batch.next(both, 64, 0).end(1.0)
    before = batch.next(both, 64, 0).lengths
    for _ in range(20):
        both[0].update(TokenTree.chain([1, 2]), [])
        both[1].update(TokenTree.chain([1, 2]), [0, 1])
    after = batch.next(both, 64, 0).lengths
    assert before[0] == before[1] > 0
    assert after[0] < after[1]


def test_rounds_without_drafts_in_which_the_machine_slept_do_not_end_the_batch():
    batch, given = BatchLengths(), policies(ROWS_ARE_CHEAP, ALPHAS)
    for _ in range(20):
        timed = batch.next(given, 64, 0)
        timed.end(1.0 if any(timed.lengths) else 1000.0)
    assert all(timed.lengths)

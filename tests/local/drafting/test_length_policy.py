"""Draft length policies: limits, load, and adaptation to acceptance."""

from __future__ import annotations

import pytest
from specclient_local.drafting.best_shape import RoundLoad, best_length, common_speeds
from specclient_local.drafting.draft_model import DraftModel
from specclient_local.drafting.length_policy import (
    AdaptiveLength,
    CommonLength,
    RecentAcceptance,
    StepLength,
)
from specclient_local.drafting.policy_selection import length_policy_for
from specclient_local.drafting.round_costs import RecordedCosts, RoundCosts
from specclient_local.request.token_tree import ROOT, TokenTree
from tiny_models import sequence

FLAT = (1.0,) * 9
BUSY = RoundCosts(0.1, FLAT, slots=8, full_draft=0.3, full_verify=tuple(1.5 + 0.6 * k for k in range(9)))


def learn(length, drafted, accepted):
    length.update(TokenTree.chain([0] * drafted), list(range(accepted)))


def next_length(length, **load):
    return len(length.next(RoundLoad(**load)))


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


def test_a_policy_that_does_not_draft_because_of_load_does_not_probe():
    good = AdaptiveLength(BUSY, prior=0.45)
    assert next_length(good) > 0
    assert {next_length(good, drafting=8) for _ in range(40)} == {0}
    assert next_length(good) > 0


def test_a_choice_is_kept_only_while_nothing_that_it_depends_on_changes():
    policy = AdaptiveLength(BUSY, prior=0.45)
    alone = next_length(policy)
    assert next_length(policy, drafting=8) == 0
    assert next_length(policy) == alone
    for _ in range(60):
        learn(policy, 4, 4)
    assert next_length(policy) > alone
    far = RoundCosts(5.0, FLAT, context=4000)
    longer = AdaptiveLength(RoundCosts(0.1, FLAT, far=far), prior=0.9)
    assert next_length(longer, context=10) > next_length(longer, context=4000)


RECORDED = RoundCosts(
    0.1,
    FLAT,
    recorded=(
        RecordedCosts(1, 0.1, FLAT),
        RecordedCosts(64, 0.2, tuple(1.2 + 0.25 * k for k in range(9))),
    ),
)


def best_common_length(alphas, others=0):
    costs = [RECORDED.round(length, len(alphas), others) for length in range(len(RECORDED.verify))]
    speeds = common_speeds(alphas, costs, others)
    return speeds.index(max(speeds))


def test_a_common_length_has_most_tokens_of_all_requests_per_cost():
    assert best_common_length([0.7]) == best_length(0.7, RECORDED)
    assert best_common_length([0.3] * 64) == 0
    alike = best_common_length([0.7] * 64)
    assert alike == best_length(0.7, RECORDED, 64) > 0
    assert best_common_length([0.9] * 32 + [0.3] * 32) > 0, "those that gain pay for the others"
    assert best_common_length([0.7] * 8, others=56) == 0


def lengths_of_rounds(prior, seconds, rounds=200):
    """Return the lengths that 64 requests choose while their rounds take ``seconds(length)``."""
    common, found = CommonLength(), []
    policies = [AdaptiveLength(RECORDED, prior=prior) for _ in range(64)]
    for _ in range(rounds):
        found.append(common.next(policies, 100, 0, "sampled"))
        common.measured.add("sampled", found[-1], seconds(found[-1]))
    return found


def test_measured_rounds_end_drafts_that_gain_nothing_at_their_real_cost():
    def calibrated(length):
        return 0.01 * RECORDED.round(length, 64)

    chosen = lengths_of_rounds(0.45, calibrated)
    assert chosen[:3] == [0, 0, 0], "plain rounds, to compare with"
    assert chosen.count(1) > 180
    slower = lengths_of_rounds(0.45, lambda length: calibrated(length) * (1.1 if length else 1.0))
    assert slower.count(0) > 180
    assert set(slower[-50:]) == {0, 2}, "it still probes"
    faster = lengths_of_rounds(0.3, lambda length: calibrated(length) * (0.8 if length else 1.0))
    assert chosen_later(faster) > 0


def chosen_later(lengths):
    return max(set(lengths[-50:]), key=lengths[-50:].count)


def test_requests_without_drafts_probe_in_the_same_round():
    common = CommonLength()
    for _ in range(3):
        common.measured.add(None, 0, 0.01)
    policies = [AdaptiveLength(RECORDED, prior=0.2) for _ in range(64)]
    lengths = [common.next(policies, 100, 0) for _ in range(32)]
    assert (lengths.count(0), lengths.count(2)) == (30, 2)
    for policy in policies:
        for _ in range(20):
            learn(policy, 2, 2)
    assert common.next(policies, 100, 0) > 2


def test_a_requests_prior_is_the_acceptance_of_recent_drafts():
    recent = RecentAcceptance()
    first = AdaptiveLength(RECORDED, recent=recent)
    assert first.alpha == 0.7
    for _ in range(400):
        learn(first, 2, 2)
    second = AdaptiveLength(RECORDED, recent=recent)
    assert second.alpha == recent.prior > 0.95
    for _ in range(2000):
        learn(second, 2, 0)
    assert AdaptiveLength(RECORDED, recent=recent).alpha == RecentAcceptance.LEAST


def test_costly_drawing_shortens_sampled_drafts():
    cost = RoundCosts(0.1, FLAT, drawn=0.4, far=RoundCosts(0.1, FLAT, drawn=0.4, context=500))
    assert best_length(0.8, cost.sampled()) < best_length(0.8, cost)
    assert cost.sampled().at(400).draft == pytest.approx(0.5)
    sampled, greedy = (
        length_policy_for(sequence([1, 2], method="draft", temperature=heat), DraftModel, cost)
        for heat in (1.0, 0.0)
    )
    assert len(sampled.next(RoundLoad())) < len(greedy.next(RoundLoad()))


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

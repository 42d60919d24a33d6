"""Drafting from a user's prediction: matching, following, and counting accepted and rejected tokens."""

from __future__ import annotations

import random

import pytest
from specclient_local.decoding.speculate import Speculator
from specclient_local.drafting.best_shape import RoundLoad
from specclient_local.drafting.drafter import chain
from specclient_local.drafting.length_policy import DoublingLength
from specclient_local.drafting.prediction import PredictionCursor, PredictionDrafter
from specclient_local.drafting.round_costs import RoundCosts
from specclient_local.drafting.suffix_index import LONGEST_MATCH, SuffixIndex
from specclient_local.model.decoder_runner import DecoderRunner
from specclient_local.request.sequence import PredictionProgress
from specclient_local.request.token_tree import TokenTree
from tiny_models import run, sequence


def longest(tokens, context):
    """Return the length of the longest suffix of ``context`` in ``tokens``, by trying every position."""
    return max(
        (
            next((n for n in range(min(i, len(context))) if tokens[i - 1 - n] != context[-1 - n]), None)
            or (min(i, len(context)) if tokens[max(0, i - len(context)) : i] == context[-i:] else 0)
            for i in range(1, len(tokens) + 1)
        ),
        default=0,
    )


def test_find_returns_the_longest_match():
    rng = random.Random(0)
    for _ in range(300):
        tokens = [rng.randrange(6) for _ in range(rng.randrange(12))]
        context = [rng.randrange(6) for _ in range(rng.randrange(8))]
        found = SuffixIndex(tokens).find(context, near=rng.randrange(12))
        if found is None:
            assert not context or context[-1] not in tokens
            continue
        place, matched = found
        assert tokens[place - matched : place] == context[len(context) - matched :]
        assert matched == longest(tokens, context)


def test_of_equal_matches_the_nearest_and_then_later_one_is_returned():
    index = SuffixIndex([1, 2, 9, 1, 2, 8, 1, 2, 7])
    assert index.find([1, 2], near=0) == (2, 2)
    assert index.find([1, 2], near=6) == (5, 2)
    assert index.find([1, 2], near=7) == (8, 2)
    assert index.find([5, 9, 1, 2], near=0) == (5, 3)
    index.append(1)
    index.append(2)
    assert index.find([1, 2], near=11) == (11, 2)
    assert index.find([7, 1, 2], near=0) == (11, 3)
    assert index.find([4], near=0) is None
    assert index.find([], near=0) is None


def test_match_lengths_are_limited():
    tokens = list(range(100))
    assert SuffixIndex(tokens).find(tokens[:90], near=0) == (90, LONGEST_MATCH)


def test_a_search_examines_a_limited_number_of_positions(monkeypatch):
    index, examined = SuffixIndex([7] * 20_000), []
    original = SuffixIndex._matching
    monkeypatch.setattr(
        SuffixIndex, "_matching", lambda self, c, place: examined.append(place) or original(self, c, place)
    )
    assert index.find([7] * 50, near=10_000) == (10_000, LONGEST_MATCH)
    assert len(examined) <= 16


def place(prediction):
    return PredictionCursor(list(prediction), 0)


def test_the_cursor_follows_the_answer_and_recovers_after_edits():
    text = list(range(100, 140))
    at = place(text)
    assert at.next(4) == text[:4]
    answer = text[:6]
    at.follow(answer)
    assert at.next(3) == text[6:9]
    # one token is replaced: the cursor continues with the next
    answer += [1]
    at.follow(answer)
    assert at.next(2) == text[7:9]
    # tokens are inserted: no draft until the answer matches the text again
    at.record(0)
    answer += [2, 3]
    at.follow(answer)
    assert at.next(5) == []
    answer += text[7:9]
    at.follow(answer)
    assert at.next(2) == text[9:11]
    # tokens are deleted
    at.record(2)
    answer += text[9:11] + text[20:21]
    at.follow(answer)
    assert at.next(2) == text[21:23]
    # an earlier part is repeated
    answer += text[2:8]
    at.follow(answer)
    assert at.next(2) == text[8:10]


def test_nothing_is_drafted_after_the_end_of_a_prediction():
    at = place([5, 6])
    at.follow([5, 6])
    assert at.next(4) == []
    at.follow([5, 6, 9])
    assert at.next(4) == []
    assert place([]).next(3) == []


def test_rejected_drafts_raise_the_required_match_length():
    at = place([*range(10, 30), 1, 2, 3, 4, 50])
    at.follow([90])
    at.record(0)
    at.record(0)
    at.follow([90, 1, 2])
    assert at.next(1) == []  # two equal tokens are no longer enough
    at.follow([90, 1, 2, 3])
    assert at.next(1) == [4]
    at.record(1)
    at.follow([90, 1, 2, 3, 4, 91, 11])
    assert at.next(1) == []  # one equal token, far from the last position
    at.follow([90, 1, 2, 3, 4, 91, 11, 12])
    assert at.next(1) == [13]


def test_each_predicted_token_counts_once():
    predicted = PredictionProgress([1, 2, 3, 4, 5, 6])
    predicted.count(range(4), 2)
    predicted.appear(2)
    assert (predicted.accepted, predicted.rejected) == (2, 2)
    predicted.count(range(2, 5), 3)
    predicted.appear(1)  # the answer ended within the accepted tokens
    assert (predicted.accepted, predicted.rejected) == (3, 2)
    predicted.count(range(2), 2)
    predicted.appear(2)
    predicted.appear(0)
    assert (predicted.accepted, predicted.rejected) == (3, 2)


def test_doubling_length_grows_while_drafts_are_accepted():
    length = DoublingLength()
    lengths = []
    for accepted in (7, 15, 15, 4, 0, 1, 3, 7):
        lengths.append(len(length.next(RoundLoad())))
        learn(length, lengths[-1], min(accepted, lengths[-1]))
    assert lengths == [7, 15, 15, 15, 3, 1, 3, 7]
    learn(length, 0, 0)
    assert len(length.next(RoundLoad())) == 15


def learn(length, drafted, accepted):
    length.update(TokenTree.chain([0] * drafted), list(range(accepted)))


def test_doubling_length_is_limited_by_costs():
    dear = RoundCosts(
        0.0, tuple(1.0 + 0.4 * k for k in range(16)), 4, 0.0, tuple(2.0 + 3 * k for k in range(16))
    )
    length = DoublingLength(dear)
    assert 0 < len(length.next(RoundLoad())) < 7
    assert length.next(RoundLoad(drafting=4)) == ()
    for _ in range(60):
        learn(length, 3, 0)
    assert [len(length.next(RoundLoad())) for _ in range(32)].count(0) == 30


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_new_tokens_do_not_exceed_steps_plus_accepted_tokens(checkpoint, temperature):
    target = DecoderRunner.load(checkpoint(eos_token_id=None), dtype="float32", slots=1, context=128)
    speculator = Speculator(target)
    options = {"max_tokens": 60, "temperature": temperature, "seed": 3}
    plain = run(speculator, sequence([5, 6], method="plain", **options))
    target.truncate(0, 0)
    request = sequence([5, 6], method="prediction", predicted=[*plain[:20], 9, *plain[25:]], **options)
    tokens = run(speculator, request)
    tally = request.counts
    assert len(tokens) <= tally.steps + tally.accepted < 60 + 16
    assert tally.accepted > (30 if temperature == 0 else 0)
    speculator.end(request)


def test_requests_use_only_their_own_predictions(checkpoint):
    drafter = PredictionDrafter()
    one = sequence([5], slot=0, method="prediction", predicted=[1, 2, 3])
    other = sequence([5], slot=1, method="prediction", predicted=[7, 8])
    for request in (one, other, one):
        assert drafter.begin(request)
    assert drafter.propose([one], [chain(2)])[0].tokens == [1, 2]
    assert drafter.propose([other], [chain(9)])[0].tokens == [7, 8]
    drafter.end(one)
    drafter.end(one)
    again = sequence([5], slot=0, method="prediction", predicted=[4])
    drafter.begin(again)
    assert drafter.propose([again], [chain(2)])[0].tokens == [4]


def test_proposals_are_picked_and_have_no_q():
    drafter = PredictionDrafter()
    request = sequence([5], method="prediction", predicted=[1, 2, 3])
    drafter.begin(request)
    (tree,) = drafter.propose([request], [chain(3)])
    assert tree.is_chain
    assert tree.q == [None] * 3


def test_the_cost_per_token_does_not_grow_with_the_prediction(monkeypatch):
    """The test counts examined positions, not seconds, in 100,000 tokens with frequent mismatches."""
    rng = random.Random(1)
    text = [rng.randrange(50) for _ in range(100_000)]
    examined = []
    original = SuffixIndex._matching
    monkeypatch.setattr(
        SuffixIndex, "_matching", lambda self, c, p: examined.append(p) or original(self, c, p)
    )
    at, answer = place(text), []
    for i in range(500):
        answer.append(rng.randrange(50) if i % 5 == 0 else text[i])
        at.follow(answer)
        at.record(i % 2)
    assert len(examined) <= 16 * 500
